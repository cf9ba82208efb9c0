"""The canvas of all pictures: figures of an exact pixel size in one style and one set of colors, as PNG bytes.

Drawn on matplotlib's Agg canvas without pyplot, so that no window, backend or setting of the caller is touched.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from snapfm.errors import require

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe–Ito without its yellow and black: told apart with every common color blindness, and on light and dark paper.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
INK, FAINT, EDGE, LABEL = "#333333", "#777777", "#999999", "#555555"
DIVERGING = "RdBu_r"  # white at zero, safe for color blindness
SEQUENTIAL = "viridis"
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
    """Draw with matplotlib's defaults and this style inside the block; the caller's settings come back after it."""
    matplotlib = require("matplotlib", "pictures", "report")
    # The backend stays out of it: setting it, even to its default, would load and switch a GUI toolkit.
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
    """Encode a figure; the same figure gives the same bytes, as no date or version is written into the file."""
    buffer = io.BytesIO()
    drawn.savefig(buffer, format="png", dpi="figure", metadata={"Software": None})
    return buffer.getvalue()


def scale(values: NDArray[Any]) -> dict[str, Any]:
    """Choose colors for fields: white at zero for both signs, otherwise from least to most; what is not finite counts not."""
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


def color_bar(figure: Figure, image: Any, place: tuple[float, float, float, float], letters: float, ticks: int) -> None:
    """Draw the color bar of an image at a place, in parts of the figure."""
    bar = figure.colorbar(image, cax=figure.add_axes(place))
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=letters, length=2)
    bar.ax.locator_params(nbins=ticks)


def _range(values: NDArray[Any]) -> tuple[float, float]:
    finite = values[np.isfinite(values)]
    return (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
