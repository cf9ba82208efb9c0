"""Fields before and after projection by ours, and what it changed: a few samples of every case that kept them."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from snapfm.bench.report.book import OURS, Book, Case
from snapfm.bench.report.document import Block, Head, Picture, Section, Words
from snapfm.bench.report.svg import inline, panel
from snapfm.bench.report.titles import title
from snapfm.demo import canvas
from snapfm.errors import DataError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FIELDS = "fields"
_SHOWN = 3  # samples of a picture
_SEQUENTIAL = "viridis"
_LEFT, _TOP, _BOTTOM, _COLUMN, _ROW, _BAR = 62, 26, 40, 170, 160, 72  # pixels
_GAP = 12
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
        blocks += [Head(case.title), Picture(_drawn(case, before, after, axes, f"fields{place}"), caption, wide=True)]
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


def _drawn(case: Case, before: Array, after: Array, axes: tuple[str, ...], name: str) -> str:
    shown = min(_SHOWN, len(before))
    width, height = _LEFT + _COLUMN * shown + _BAR, _TOP + _ROW * len(_ROWS) + _BOTTOM
    rows = (before[:shown], after[:shown], after[:shown] - before[:shown])
    state, change = _scale(np.stack(rows[:2])), _around_zero(rows[2])
    with canvas.style():
        figure = panel((width, height))
        for row, (label, values, scale) in enumerate(zip(_ROWS, rows, (state, state, change))):
            bottom = _BOTTOM + (len(_ROWS) - 1 - row) * _ROW
            for column in range(shown):
                place = ((_LEFT + _COLUMN * column) / width, bottom / height)
                panel_axes = figure.add_axes((*place, (_COLUMN - _GAP) / width, (_ROW - _GAP) / height))
                image = _show(panel_axes, values[column], scale)
                if row == 0:
                    panel_axes.set_title(f"sample {column + 1}", fontsize=8.5)
                _label(panel_axes, axes, f"{label}\n" if column == 0 else "", lower=row == len(_ROWS) - 1)
            left = (_LEFT + _COLUMN * shown) / width
            bar = figure.colorbar(
                image, cax=figure.add_axes((left, bottom / height, 9 / width, (_ROW - _GAP) / height))
            )
            bar.outline.set_visible(False)
            bar.ax.tick_params(labelsize=7, length=2)
            bar.ax.locator_params(nbins=5)
        return inline(figure, name, f"{case.title}: fields before and after projection, and the change")


def _show(axes: Axes, values: Array, scale: dict[str, Any]) -> Any:
    flat = values if values.ndim == 2 else _last_state(values).T
    return axes.imshow(flat, origin="lower", aspect="auto", interpolation="nearest", **scale)


def _last_state(values: Array) -> Array:
    """Cut a field to its first two axes, at the end of all others: the last is time."""
    while values.ndim > 2:
        values = values[..., -1]
    return values


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


def _scale(values: Array) -> dict[str, Any]:
    """White at zero for fields of both signs, otherwise from least to most; what is not finite stays blank."""
    low, high = _range(values)
    if low < -0.05 * high:
        return _around_zero(values)
    return {"cmap": _SEQUENTIAL, "vmin": low, "vmax": high}


def _around_zero(values: Array) -> dict[str, Any]:
    reach = max(abs(bound) for bound in _range(values)) or 1.0
    return {"cmap": canvas.COLOR_MAP, "vmin": -reach, "vmax": reach}


def _range(values: Array) -> tuple[float, float]:
    finite = values[np.isfinite(values)]
    return (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
