"""From noise to fields: PCFM and other samplers, all called through `sample`.

A sampler is a small frozen value that holds settings and has `run(task)`. May import project and what is below it.
"""

from snapfm.sampling.conditional.sampler import Conditional
from snapfm.sampling.conditional.spread import Spread
from snapfm.sampling.flow import EndProjection, Flow
from snapfm.sampling.gradient import DFlow, Guidance
from snapfm.sampling.path import COSINE, STRAIGHT, Path
from snapfm.sampling.pcfm import PCFM, Relaxation
from snapfm.sampling.projected import ECI, Projected
from snapfm.sampling.sample import sample
from snapfm.sampling.task import Sampler, Samples

__all__ = [
    "COSINE", "ECI", "PCFM", "SAMPLERS", "STRAIGHT", "Conditional", "DFlow", "EndProjection", "Flow", "Guidance", "Path",
    "Projected", "Relaxation", "Sampler", "Samples", "Spread", "sample",
]  # fmt: skip

_KINDS: tuple[type[Sampler], ...] = (PCFM, Conditional, ECI, Projected, EndProjection, Guidance, DFlow, Flow)
SAMPLERS = {kind.__name__: kind for kind in _KINDS}
"""The samplers of the library by name, in the order in which messages list them."""
