"""The canvas: figures of an exact pixel size in the house's colors, turned into PNG bytes.

Drawn on matplotlib's Agg canvas without pyplot, so that no window, backend or setting of the caller is touched.
Imports errors only.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from snapfm.errors import require

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Run = Literal["free", "lawful"]
RUNS: tuple[Run, Run] = ("free", "lawful")

# Okabe–Ito: told apart with every common color blindness, and on gray paper by lightness.
COLORS: dict[Run, str] = {"free": "#D55E00", "lawful": "#0072B2"}
ASKED = "#111111"
INK = "#333333"
FAINT = "#777777"
COLOR_MAP = "RdBu_r"  # diverging, white at zero, safe for color blindness

_STYLE: dict[str, object] = {
    "font.family": "DejaVu Sans",  # ships with matplotlib: the same letters on every machine
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.titlelocation": "left",
    "axes.titlecolor": INK,
    "axes.labelsize": 9,
    "axes.labelcolor": INK,
    "axes.edgecolor": "#999999",
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.color": INK,
    "xtick.color": "#999999",
    "ytick.color": "#999999",
    "xtick.labelcolor": "#555555",
    "ytick.labelcolor": "#555555",
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.frameon": False,
    "legend.fontsize": 8,
}


@contextmanager
def style() -> Iterator[None]:
    """Draw with matplotlib's defaults and the house's settings inside the block; the caller's come back after it."""
    matplotlib = require("matplotlib", "the demo's pictures", "report")
    # The backend stays out of it: setting it, even to its default, would load and switch a GUI toolkit.
    defaults = {name: value for name, value in matplotlib.rcParamsDefault.items() if not name.startswith("backend")}
    with matplotlib.rc_context(defaults | _STYLE):
        yield


def figure(pixels: tuple[int, int], dpi: int) -> Figure:
    """Make a white figure of that width and height; letters and lines grow with dpi."""
    width, height = pixels
    module = require("matplotlib.figure", "the demo's pictures", "report")
    made: Figure = module.Figure(figsize=(width / dpi, height / dpi), dpi=dpi, facecolor="white")
    return made


def png(drawn: Figure) -> bytes:
    """Encode a figure; the same figure gives the same bytes, as no date or version is written into the file."""
    buffer = io.BytesIO()
    drawn.savefig(buffer, format="png", dpi="figure", metadata={"Software": None})
    return buffer.getvalue()
