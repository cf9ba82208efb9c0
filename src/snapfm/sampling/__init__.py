"""From noise to fields: PCFM and its rivals behind one door, on one signature.

`sample` is the door; a sampler is a small frozen value that says how to walk. May import flow, project and problems.
"""

from snapfm.sampling.base import Sampler, Samples
from snapfm.sampling.dflow import DFlow
from snapfm.sampling.eci import ECI
from snapfm.sampling.end import EndProjection
from snapfm.sampling.flow import Flow
from snapfm.sampling.guidance import Guidance
from snapfm.sampling.path import COSINE, STRAIGHT, Path
from snapfm.sampling.pcfm import PCFM
from snapfm.sampling.projected import Projected
from snapfm.sampling.relax import Relaxation
from snapfm.sampling.sample import sample

__all__ = [
    "COSINE", "ECI", "PCFM", "STRAIGHT", "DFlow", "EndProjection", "Flow", "Guidance", "Path", "Projected", "Relaxation",
    "Sampler", "Samples", "sample",
]  # fmt: skip
