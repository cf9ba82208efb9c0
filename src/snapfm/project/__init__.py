"""The nearest field that obeys: projectors, their results and the judge."""

from snapfm.project.base import Projection
from snapfm.project.projector import Projector

__all__ = ["Projection", "Projector"]
