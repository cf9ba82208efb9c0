"""Fields that obey, near the input: projectors, their results and the judge."""

from snapfm.project.metric import Metric
from snapfm.project.projector import Projector
from snapfm.solve.projection import Moved, Projection

__all__ = ["Metric", "Moved", "Projection", "Projector"]
