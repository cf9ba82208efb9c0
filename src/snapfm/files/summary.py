"""What became of all samples of a file, read from the file itself, in slices: whoever computed them, and however many."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from snapfm.errors import ProjectionFailed, Status
from snapfm.files import archive
from snapfm.files.block import NEVER, NEVER_COMPUTED
from snapfm.files.stream import Written
from snapfm.solve.base import OnFailure

_SLICE = 100_000  # samples whose certificates are read at a time
_BY_LAW = ("before", "after")  # the violation of each law, in files of projected fields


@dataclass(frozen=True)
class FileTotals:
    """Statuses and violations of all samples that are there."""

    statuses: dict[str, int]  # from the name of a status to its number of samples, if any
    violation: float | None  # largest of all samples; None if one of them is not a number
    before: tuple[float, ...] = ()  # largest violation of each law before and after, of files of projected fields
    after: tuple[float, ...] = ()

    @property
    def converged(self) -> int:
        """How many samples obey their laws."""
        return self.statuses.get(Status.CONVERGED.name, 0)

    @property
    def failed(self) -> int:
        """How many samples do not; the file marks them by their status."""
        return sum(self.statuses.values()) - self.converged


def totals(written: Written, on_failure: OnFailure) -> FileTotals:
    """Sum up a file, or of an unfinished one the share that was computed here.

    Refuses a file that was allowed to keep failed samples, unless the caller allows it too.
    """
    counts, worst = Counter[int](), 0.0
    by_law: dict[str, np.ndarray] = {}
    for some in _slices(written):
        there, status, violation, *sizes_by_law = written.read((archive.MARK, "status", "violation", *_BY_LAW), some)
        assert there is not None  # every file of samples has these three
        assert status is not None
        assert violation is not None
        kept = there >= 0
        counts.update(status[kept].tolist())
        worst = float(np.max(violation[kept], initial=worst))  # NaN wins
        for name, sizes in zip(_BY_LAW, sizes_by_law, strict=True):
            if sizes is not None:
                largest = sizes[kept].max(axis=0, initial=0.0)
                by_law[name] = np.maximum(by_law.get(name, largest), largest)
    statuses = {kind.name: counts[int(kind)] for kind in Status if counts[int(kind)]}
    if counts[NEVER]:
        statuses[NEVER_COMPUTED] = counts[NEVER]
    sizes_of = {name: tuple(float(size) for size in sizes) for name, sizes in by_law.items()}
    found = FileTotals(
        statuses, worst if math.isfinite(worst) else None, sizes_of.get("before", ()), sizes_of.get("after", ())
    )
    if found.failed and on_failure == "raise":
        raise ProjectionFailed(
            f"{written.path} is expected to hold converged samples; {found.failed} of {written.count} did not converge, which it "
            "was allowed to keep. Accept them with --keep-failed (on_failure='keep'), or write to another file."
        )
    return found


def _slices(written: Written) -> Iterator[slice]:
    """Cut what there is to sum up into slices that fit into memory."""
    for first, last in written.spans:
        for start in range(first, last, _SLICE):
            yield slice(start, min(start + _SLICE, last))
