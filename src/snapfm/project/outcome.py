"""What becomes of lanes and samples while they are iterated on, and how many iterations they have left."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from snapfm.errors import Status
from snapfm.kernels.layout import UNKNOWN

Counts = npt.NDArray[np.int64]
Index = npt.NDArray[np.int64]

# The status of a sample whose parts ended in different ways: the later in this order. One part that is proven infeasible
# makes the sample so, whatever the others would have done.
_GRAVITY = (Status.CONVERGED, Status.STALLED, Status.ITERATION_LIMIT, Status.INFEASIBLE, Status.NONFINITE)
_RANK = np.argsort([int(status) for status in _GRAVITY])


@dataclass(frozen=True)
class Ended:
    """Status, iterations and second-order knowledge of lanes or samples."""

    status: Counts
    iterations: Counts
    second: Counts

    @classmethod
    def unfinished(cls, lanes: int) -> Ended:
        """Begin with nothing done."""
        return cls(np.full(lanes, int(Status.ITERATION_LIMIT)), np.zeros(lanes, np.int64), np.full(lanes, UNKNOWN))

    def joined(self, samples: int, parts: int) -> Ended:
        """Join the parts of each sample."""
        if parts == 1:
            return self
        shape = (samples, parts)
        return Ended(
            gravest(self.status.reshape(shape)),
            self.iterations.reshape(shape).max(axis=1),
            self.second.reshape(shape).min(axis=1),
        )


@dataclass(frozen=True)
class Room:
    """Iterations that lanes have left, and the limit that attempts are shares of."""

    left: Counts
    limit: int

    def upto(self, share: float) -> Counts:
        """Give what one attempt may use."""
        return np.clip(self.left, 0, max(1, round(share * self.limit)))

    def less(self, used: Counts) -> Room:
        """Give what is left after so many more."""
        return Room(self.left - used, self.limit)

    def at(self, lanes: Index) -> Room:
        """Give that of some lanes."""
        return Room(self.left[lanes], self.limit)


def gravest(status: Counts) -> Counts:
    """Join the statuses (b, parts) of the parts of samples."""
    if not status.any():
        return status[:, 0]
    found: Counts = np.array([int(status) for status in _GRAVITY])[_RANK[status].max(axis=1)]
    return found
