"""Flow models that obey physical laws: exact, certified, batched projection for PyTorch."""

from snapfm import plot
from snapfm.errors import Status
from snapfm.laws import Bounds, Equality, Inequality, Law, Oracle
from snapfm.problems import problem
from snapfm.project import Metric, Projection, Projector
from snapfm.sampling import Samples, Spread, sample

__version__ = "0.1.0"

__all__ = [
    "Bounds", "Equality", "Inequality", "Law", "Metric", "Oracle", "Projection", "Projector", "Samples", "Spread", "Status",
    "plot", "problem", "sample",
]  # fmt: skip
