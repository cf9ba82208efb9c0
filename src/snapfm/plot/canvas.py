"""The canvas of all pictures: figures of an exact pixel size in one style and one set of colors.

Drawn on matplotlib's Agg canvas without pyplot, so that no window, backend or setting of the caller is touched. The only place
that imports matplotlib's figures.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from snapfm.errors import require

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Row: TypeAlias = tuple[str, Sequence[NDArray[Any] | str], dict[str, Any]]  # name, planes, color scale
Extent: TypeAlias = tuple[float, float, float, float]

# Okabe–Ito without its yellow and black: distinct with every common color blindness, and on light and dark paper.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
INK, FAINT, EDGE, LABEL = "#333333", "#777777", "#999999", "#555555"
DIVERGING = "RdBu_r"  # white at zero, safe for color blindness
SEQUENTIAL = "viridis"
_DPI = 200  # on a page a picture is shown at half its pixels
_COLUMN, _SQUARE = 236, 196  # pixels of an image with its gap, and of the image alone
_LEFT, _RIGHT, _TOP, _BOTTOM, _BETWEEN = 130, 150, 60, 28, 34  # pixels around and between the rows
_LETTERS = 16  # of a row's name that fit beside one image; longer names are broken at their commas
_BOTH_SIGNS = 0.05  # a negative part of this share of the positive one makes a field one of both signs

_STYLE: dict[str, object] = {
    "font.family": "DejaVu Sans",  # ships with matplotlib: the same letters on every machine
    "font.size": 9, "axes.titlesize": 9.5, "axes.titlelocation": "left", "axes.titlecolor": INK, "axes.labelsize": 9,
    "axes.labelcolor": INK, "axes.edgecolor": EDGE, "axes.linewidth": 0.8, "axes.spines.top": False,
    "axes.spines.right": False, "text.color": INK, "xtick.color": EDGE, "ytick.color": EDGE, "xtick.labelcolor": LABEL,
    "ytick.labelcolor": LABEL, "xtick.labelsize": 8, "ytick.labelsize": 8, "legend.frameon": False, "legend.fontsize": 8,
}  # fmt: skip


@contextmanager
def style() -> Iterator[None]:
    """Draw with matplotlib's defaults and this style inside the block; the caller's settings are restored after it."""
    matplotlib = require("matplotlib", "pictures", "plot")
    # The backend is left out: setting it, even to its default, would load and switch a GUI toolkit.
    defaults = {name: value for name, value in matplotlib.rcParamsDefault.items() if not name.startswith("backend")}
    with matplotlib.rc_context(defaults | _STYLE):
        yield


def figure(pixels: tuple[int, int], dpi: int) -> Figure:
    """Make a white figure of that width and height; letters and lines grow with dpi."""
    width, height = pixels
    module = require("matplotlib.figure", "pictures", "plot")
    made: Figure = module.Figure(figsize=(width / dpi, height / dpi), dpi=dpi, facecolor="white")
    # Notebooks show a figure that pyplot does not know only if it says how.
    made._repr_png_ = partial(png, made)  # type: ignore[attr-defined]
    return made


def charts(pixels: tuple[int, int], dpi: int, rows: int = 1, columns: int = 1) -> tuple[Figure, list[list[Axes]]]:
    """Make a figure with a grid of axes that share scales along rows and columns, and with room for all their texts."""
    drawn = figure(pixels, dpi)
    drawn.set_layout_engine("constrained")
    return drawn, drawn.subplots(rows, columns, sharex=True, sharey="row", squeeze=False).tolist()


def legend(drawn: Figure, axes: Axes) -> None:
    """Explain the labels of axes above them all, if there are any."""
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        drawn.legend(handles, labels, loc="outside upper right", ncols=len(labels))


def png(drawn: Figure) -> bytes:
    """Encode a figure; the same figure has the same bytes, as the file holds no date or version."""
    buffer = io.BytesIO()
    drawn.savefig(buffer, format="png", dpi="figure", metadata={"Software": None})
    return buffer.getvalue()


def scale(values: NDArray[Any]) -> dict[str, Any]:
    """Choose colors for fields: white at zero for both signs, otherwise from least to most; only finite values count."""
    low, high = _range(values)
    return around_zero(values) if low < -_BOTH_SIGNS * high else {"cmap": SEQUENTIAL, "vmin": low, "vmax": high}


def around_zero(values: NDArray[Any]) -> dict[str, Any]:
    """Choose diverging colors, white at zero."""
    reach = max(abs(bound) for bound in _range(values)) or 1.0
    return {"cmap": DIVERGING, "vmin": -reach, "vmax": reach}


def image_figure(
    titles: Sequence[str], rows: Sequence[Row], names: tuple[str, str], extent: Extent | None = None
) -> Figure:
    """Draw planes as rows of images under column titles; a row has a name, its planes and their common color scale.

    A plane is an array whose first axis points upwards. A string in its place is written into an empty panel. `names` and
    `extent` are those of the axes, across and up.
    """
    width, height = _LEFT + _COLUMN * len(titles) + _RIGHT, _TOP + (_SQUARE + _BETWEEN) * len(rows) + _BOTTOM
    drawn = figure((width, height), _DPI)
    for place, (label, planes, colors) in enumerate(rows):
        bottom, last = (_BOTTOM + (len(rows) - 1 - place) * (_SQUARE + _BETWEEN)) / height, place == len(rows) - 1
        image = None
        for column, plane in enumerate(planes):
            axes = drawn.add_axes(
                ((_LEFT + _COLUMN * column) / width, bottom, _SQUARE / width, _SQUARE / height), facecolor="#f3f3f0"
            )
            write = partial(axes.text, transform=axes.transAxes, ha="center", va="center")
            if isinstance(plane, str):
                write(0.5, 0.5, plane, color=FAINT, fontsize=7.5)
            else:
                looks: dict[str, Any] = {
                    "origin": "lower",
                    "aspect": "auto",
                    "extent": extent,
                    "interpolation": "nearest",
                }
                image = axes.imshow(plane, **looks, **colors)
            axes.spines[:].set_visible(True)
            _ticks(axes.set_xticks, extent[:2] if extent and last else None)
            _ticks(axes.set_yticks, extent[2:] if extent and column == 0 else None)
            axes.tick_params(labelsize=6.5, length=2)
            if place == 0:
                axes.set_title(titles[column], fontsize=8)
            if last:
                axes.set_xlabel(names[0], fontsize=7.5, labelpad=-6 if extent else 2)
            if column == 0:
                axes.set_ylabel(names[1], fontsize=7.5, labelpad=-6 if extent else 2)
                write(-0.42, 0.5, _broken(label), rotation=90, fontsize=8.5)
        if image is None:
            continue
        beside = ((width - _RIGHT + 4) / width, bottom, 14 / width, _SQUARE / height)
        bar = drawn.colorbar(image, cax=drawn.add_axes(beside))
        bar.outline.set_visible(False)
        bar.ax.tick_params(labelsize=6.5, length=2)
        bar.ax.locator_params(nbins=4)
    return drawn


def _broken(label: str) -> str:
    """Break the name of a row at its commas, so that it does not run into the names of its neighbors."""
    lines: list[str] = []
    for part in label.split(", "):
        if lines and len(lines[-1]) + len(part) + 2 <= _LETTERS:
            lines[-1] += f", {part}"
        else:
            lines.append(part)
    return ",\n".join(lines)


def _ticks(set_ticks: Callable[..., Any], ends: tuple[float, ...] | None) -> None:
    """Label both ends of an axis, or draw no ticks."""
    set_ticks([] if ends is None else ends, [] if ends is None else [f"{end:.3g}" for end in ends])


def _range(values: NDArray[Any]) -> tuple[float, float]:
    finite = values[np.isfinite(values)]
    return (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
