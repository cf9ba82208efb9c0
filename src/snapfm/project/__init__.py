"""The nearest field that obeys: projectors, their results and the judge."""

from snapfm.project.base import Moved, Projection
from snapfm.project.projector import Projector

__all__ = ["Moved", "Projection", "Projector"]
