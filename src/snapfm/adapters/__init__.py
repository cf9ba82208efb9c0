"""Any flow model in front: small adapters, put around each other, that turn a model into velocity(u, tau).

The highest room below the commands: may import sampling, project and laws; nothing below imports it, and no other library
is imported. What `snapfm.sample` asks of a velocity it finds as attributes: `path`, `shape`, `noise_from`, `of_samples`.
"""

from snapfm.adapters.base import Adapter
from snapfm.adapters.calls import field_first, joined, time_first
from snapfm.adapters.condition import conditioned
from snapfm.adapters.diffusion import predicts_data, predicts_noise
from snapfm.adapters.layout import channels, flat
from snapfm.adapters.libraries import flow_matching, matcher_path, scheduler_path, torchcfm
from snapfm.adapters.paths import Timesteps, variance_preserving
from snapfm.adapters.projector import UnitsProjector
from snapfm.adapters.units import Normalized

__all__ = [
    "Adapter",
    "Normalized",
    "Timesteps",
    "UnitsProjector",
    "channels",
    "conditioned",
    "field_first",
    "flat",
    "flow_matching",
    "joined",
    "matcher_path",
    "predicts_data",
    "predicts_noise",
    "scheduler_path",
    "time_first",
    "torchcfm",
    "variance_preserving",
]
