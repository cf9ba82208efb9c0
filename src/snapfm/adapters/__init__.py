"""Adapters that turn any flow or diffusion model into velocity(u, tau). They can be nested.

The highest layer below the commands: may import sampling, project and laws; nothing below imports it, and it imports no other
library. `snapfm.sample` reads these attributes of a velocity: `path`, `shape`, `noise_from`, `of_samples`.
"""

from snapfm.adapters.base import Adapter
from snapfm.adapters.calls import channels, conditioned, field_first, flat, joined, time_first
from snapfm.adapters.diffusion import predicts_data, predicts_noise, predicts_v
from snapfm.adapters.libraries import diffusers, flow_matching, matcher_path, scheduler_path, torchcfm
from snapfm.adapters.paths import Timesteps, variance_preserving
from snapfm.adapters.units import Normalized

__all__ = [
    "Adapter", "Normalized", "Timesteps", "channels", "conditioned", "diffusers", "field_first", "flat",
    "flow_matching", "joined", "matcher_path", "predicts_data", "predicts_noise", "predicts_v", "scheduler_path", "time_first",
    "torchcfm", "variance_preserving",
]  # fmt: skip
