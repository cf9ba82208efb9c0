"""The nearest field that obeys: projectors, their results and the judge."""

from snapfm.project.base import Moved, Projection
from snapfm.project.metric import Metric
from snapfm.project.projector import Projector

__all__ = ["Metric", "Moved", "Projection", "Projector"]
