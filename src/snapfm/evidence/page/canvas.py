"""The canvas of all pictures: figures of an exact pixel size in one style and one set of colors, as PNG bytes.

Drawn on matplotlib's Agg canvas without pyplot, so that no window, backend or setting of the caller is touched. Also has the
two pictures that several pages share: images of fields, and the pattern of a Jacobian.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from snapfm.errors import require
from snapfm.structure import CompiledLaws

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe–Ito without its yellow and black: distinct with every common color blindness, and on light and dark paper.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
INK, FAINT, EDGE, LABEL = "#333333", "#777777", "#999999", "#555555"
DIVERGING = "RdBu_r"  # white at zero, safe for color blindness
SEQUENTIAL = "viridis"
_DPI = 200  # on a page a picture is shown at half its pixels
_COLUMN, _SQUARE = 236, 196  # pixels of an image with its gap, and of the image alone
_LEFT, _RIGHT, _TOP, _BOTTOM, _BETWEEN = 130, 150, 60, 28, 34  # pixels around and between the rows
_PATTERN_PIXELS, _PATTERN_DPI = (1500, 750), 150
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
    matplotlib = require("matplotlib", "pictures", "report")
    # The backend is left out: setting it, even to its default, would load and switch a GUI toolkit.
    defaults = {name: value for name, value in matplotlib.rcParamsDefault.items() if not name.startswith("backend")}
    with matplotlib.rc_context(defaults | _STYLE):
        yield


def figure(pixels: tuple[int, int], dpi: int) -> Figure:
    """Make a white figure of that width and height; letters and lines grow with dpi."""
    width, height = pixels
    module = require("matplotlib.figure", "pictures", "report")
    made: Figure = module.Figure(figsize=(width / dpi, height / dpi), dpi=dpi, facecolor="white")
    return made


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


def plane(field: NDArray[Any]) -> NDArray[Any]:
    """Cut a field to what an image shows: (x, t) as it is, of (x, y, t) the last state with y upwards."""
    if field.ndim == 2:
        return field
    while field.ndim > 2:
        field = field[..., -1]
    return field.T


def image_grid(
    titles: Sequence[str],
    rows: Sequence[tuple[str, Sequence[NDArray[Any] | str], dict[str, Any]]],
    names: tuple[str, str],
    extent: tuple[float, float, float, float] | None = None,
) -> bytes:
    """Draw fields as rows of images under column titles; a row has a name, its fields and their common color scale.

    A string in place of a field is written into an empty panel. `names` and `extent` are those of the axes, across and up.
    """
    width, height = _LEFT + _COLUMN * len(titles) + _RIGHT, _TOP + (_SQUARE + _BETWEEN) * len(rows) + _BOTTOM
    with style():
        drawn = figure((width, height), _DPI)
        for place, (label, fields, colors) in enumerate(rows):
            bottom, last = (_BOTTOM + (len(rows) - 1 - place) * (_SQUARE + _BETWEEN)) / height, place == len(rows) - 1
            for column, field in enumerate(fields):
                axes = drawn.add_axes(
                    ((_LEFT + _COLUMN * column) / width, bottom, _SQUARE / width, _SQUARE / height), facecolor="#f3f3f0"
                )
                if isinstance(field, str):
                    axes.text(
                        0.5, 0.5, field, transform=axes.transAxes, ha="center", va="center", color=FAINT, fontsize=7.5
                    )
                else:
                    image = axes.imshow(
                        plane(field), origin="lower", aspect="auto", extent=extent, interpolation="nearest", **colors
                    )
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
                    axes.text(
                        -0.42, 0.5, label, transform=axes.transAxes, rotation=90, va="center", ha="center", fontsize=8.5
                    )
            beside = ((width - _RIGHT + 4) / width, bottom, 14 / width, _SQUARE / height)
            bar = drawn.colorbar(image, cax=drawn.add_axes(beside))
            bar.outline.set_visible(False)
            bar.ax.tick_params(labelsize=6.5, length=2)
            bar.ax.locator_params(nbins=4)
        return png(drawn)


def _ticks(set_ticks: Callable[..., Any], ends: tuple[float, ...] | None) -> None:
    """Label both ends of an axis, or draw no ticks."""
    set_ticks([] if ends is None else ends, [] if ends is None else [f"{end:.3g}" for end in ends])


def _range(values: NDArray[Any]) -> tuple[float, float]:
    finite = values[np.isfinite(values)]
    return (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)


def drawn_pattern(structure: CompiledLaws, title: str) -> bytes:
    """Draw the pattern as PNG bytes: rows down, unknowns across."""
    pattern, laws = structure.pattern, structure.slices()
    row = pattern.row_of()
    # A mark is about as high as a row's share of the picture, but never invisible.
    mark = float(np.clip(260.0 / max(structure.rows, 1), 1.6, 8.0))
    with style():
        drawn = figure(_PATTERN_PIXELS, _PATTERN_DPI)
        drawn.set_layout_engine("constrained")
        axes = drawn.add_subplot()
        for i, (name, rows) in enumerate(laws.items()):
            here = (row >= rows.start) & (row < rows.stop)
            axes.plot(
                pattern.indices[here], row[here], linestyle="none", marker="s", markersize=mark, markeredgewidth=0,
                color=(*COLORS, "#000000")[i % 7],
                label=f"{name}: {rows.stop - rows.start} rows, {int(here.sum())} non-zeros",
            )  # fmt: skip
        axes.set(xlim=(-0.5, structure.unknowns - 0.5), ylim=(structure.rows - 0.5, -0.5), ylabel="row")
        axes.set_xlabel(f"unknown (field of {'×'.join(map(str, structure.shape))}, flattened)")
        axes.set_title(f"{title}: where the Jacobian can be non-zero")
        drawn.legend(loc="outside lower center", ncols=min(3, max(1, len(laws))), markerscale=4)
        return png(drawn)
