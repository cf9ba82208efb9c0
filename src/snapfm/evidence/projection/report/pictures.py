"""Fields before and after projection by ours, and what it changed: a few samples of every case that kept them."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from snapfm.errors import DataError
from snapfm.evidence.page import canvas
from snapfm.evidence.page.document import Block, Head, Picture, Section, Words
from snapfm.evidence.page.svg import inline, panel
from snapfm.evidence.projection.report.book import Book, title
from snapfm.evidence.projection.suite import OURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FIELDS = "fields"
_SHOWN = 3  # samples of a picture
_LEFT, _TOP, _BOTTOM, _COLUMN, _ROW, _BAR, _GAP = 62, 26, 40, 170, 160, 72, 12  # pixels
_ROWS = ("before", "after", "change")

Array = NDArray[np.float64]


def fields(book: Book) -> Section | None:
    """Draw the first samples of every case that kept fields."""
    blocks: list[Block] = []
    for place, case in enumerate(book.cases):
        file = case.folder / FIELDS / f"{case.name}.npz"
        if not file.is_file():
            continue
        before, after, axes, label = _load(file)
        late = " at the last time" if before.ndim > 3 else ""
        of = f" of input {label}" if label else ""
        caption = f"Before, after, and the change{late}{of}; the first two share one color scale"
        drawn = _drawn(case.title, before, after, axes, f"fields{place}")
        blocks += [Head(case.title), Picture(drawn, caption, wide=True)]
    if not blocks:
        return None
    about = (
        f"What {title(OURS)} was given and what it gave back; the change has a scale of its own, white at zero. Of large fields "
        "every few points are shown."
    )
    return Section("Fields", (Words(about), *blocks))


def _load(file: Path) -> tuple[Array, Array, tuple[str, ...], str]:
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
    """Name axes as the problems do: space first, time last."""
    return (*(("x", "y", "z")[: count - 1] if count <= 4 else (f"axis {place}" for place in range(count - 1))), "t")


def _drawn(name: str, before: Array, after: Array, axes: tuple[str, ...], identity: str) -> str:
    shown = min(_SHOWN, len(before))
    width, height = _LEFT + _COLUMN * shown + _BAR, _TOP + _ROW * len(_ROWS) + _BOTTOM
    rows = (before[:shown], after[:shown], after[:shown] - before[:shown])
    state, change = canvas.scale(np.stack(rows[:2])), canvas.around_zero(rows[2])
    with canvas.style():
        figure = panel((width, height))
        for row, (label, values, scale) in enumerate(zip(_ROWS, rows, (state, state, change))):
            bottom, high = (_BOTTOM + (len(_ROWS) - 1 - row) * _ROW) / height, (_ROW - _GAP) / height
            for column in range(shown):
                place = ((_LEFT + _COLUMN * column) / width, bottom, (_COLUMN - _GAP) / width, high)
                one, flat = figure.add_axes(place), canvas.plane(values[column])
                image = one.imshow(flat, origin="lower", aspect="auto", interpolation="nearest", **scale)
                if row == 0:
                    one.set_title(f"sample {column + 1}", fontsize=8.5)
                _label(one, axes, f"{label}\n" if column == 0 else "", lower=row == len(_ROWS) - 1)
            canvas.color_bar(figure, image, ((_LEFT + _COLUMN * shown) / width, bottom, 9 / width, high), 7, 5)
        return inline(figure, identity, f"{name}: fields before and after projection, and the change")


def _label(axes: Axes, names: tuple[str, ...], row: str, lower: bool) -> None:
    """Name the axes at the edge of the picture; (x, t) as it is, of (x, y, t) the last state with y upwards."""
    up, across = (names[0], names[1]) if len(names) == 2 else (names[1], names[0])
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_visible(True)
    if lower:
        axes.set_xlabel(across, fontsize=8.5)
    if row:
        axes.set_ylabel(f"{row}{up}", fontsize=8.5)
