"""Fields before and after our projection, and the change: a few samples of every case that kept them."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np

from snapfm import plot
from snapfm.arrays import Values
from snapfm.errors import DataError
from snapfm.plot import canvas
from snapfm_bench.pages.document import Block, Head, Picture, Section, Words
from snapfm_bench.pages.html import image
from snapfm_bench.suites.projection.report.loaded import Report, title
from snapfm_bench.suites.projection.suite import OURS

FIELDS = "fields"
_SHOWN = 3  # samples of a picture; of those with three axes one, in slices


def fields(book: Report) -> Section | None:
    """Draw the first samples of every case that kept fields."""
    blocks: list[Block] = []
    for case in book.cases:
        file = case.folder / FIELDS / f"{case.name}.npz"
        if not file.is_file():
            continue
        before, after, axes, label = _load(file)
        of = f" of input {label}" if label else ""
        caption = f"Before, after, and the change{of}; the first two share one color scale"
        what = f"{case.title}: fields before and after projection, and the change"
        blocks += [Head(case.title), Picture(image(_drawn(before, after, axes), what), caption, wide=True)]
    if not blocks:
        return None
    about = (
        f"What {title(OURS)} was given and what it gave back; the change has a scale of its own, white at zero. Of large fields "
        "every few points are shown."
    )
    return Section("Fields", (Words(about), *blocks))


def _load(file: Path) -> tuple[Values, Values, tuple[str, ...], str]:
    try:
        with np.load(file, allow_pickle=False) as packed:
            before, after = (np.asarray(packed[name], dtype=np.float64) for name in ("before", "after"))
            axes = tuple(str(name) for name in packed["axes"]) if "axes" in packed else ()
            label = str(packed["input"]) if "input" in packed else ""
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as cause:
        raise _damaged(file, str(cause)) from cause
    if before.shape != after.shape or before.ndim < 3 or not len(before):
        raise _damaged(file, f"shapes {before.shape} and {after.shape}")
    return before, after, axes if len(axes) == before.ndim - 1 else _names(before.ndim - 1), label


def _damaged(file: Path, what: str) -> DataError:
    return DataError(
        f"{file} is expected to hold arrays `before` and `after` of one shape (samples, *field), fields of two axes or more; got "
        f"{what}. Remove it, or run the case again."
    )


def _names(count: int) -> tuple[str, ...]:
    """Return names of axes in the order of the problems: space first, time last."""
    return (*(("x", "y", "z")[: count - 1] if count <= 4 else (f"axis {place}" for place in range(count - 1))), "t")


def _drawn(before: Values, after: Values, axes: tuple[str, ...]) -> bytes:
    return canvas.png(plot.fields(after, before, count=_SHOWN if len(axes) == 2 else None, dims=axes))
