"""Figures as SVG inside the page: they take its colors, light or dark, and load nothing.

The canvas's grays become variables of the page's style sheet; lines keep their colors, which are told apart on light and dark.
"""

from __future__ import annotations

import io
import re
from html import escape
from typing import TYPE_CHECKING, Any

from snapfm.errors import require
from snapfm.evidence.page import canvas

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DPI = 100
PANEL = (520, 350)  # pixels; two stand side by side on a wide page, and letters stay readable on a narrow one
_FEW = 100.0  # an axis whose ends are less apart has ticks between its powers of ten
_LEGEND_COLUMNS, _LEGEND_LINE = 2, 15  # of a plot; pixels of one line
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 14, 14, 46  # pixels around the axes of a plot

MARKERS = ("o", "s", "^", "D", "v", "P", "X")

_INK = {canvas.INK: "var(--ink)"} | dict.fromkeys((canvas.FAINT, canvas.LABEL, canvas.EDGE), "var(--soft)")


def panel(pixels: tuple[int, int] = PANEL) -> Figure:
    """Make a figure without paper of its own; use inside `canvas.style()`."""
    made = canvas.figure(pixels, DPI)
    made.patch.set_visible(False)
    return made


def plot(lines: int) -> tuple[Figure, Axes]:
    """Make a figure with one logarithmic plot, and room above it for a legend of so many lines."""
    room = _LEGEND_LINE * -(-lines // _LEGEND_COLUMNS)
    width, height = PANEL[0], PANEL[1] + room
    figure = panel((width, height))
    across, up = (width - _LEFT - _RIGHT) / width, (height - room - _TOP - _BOTTOM) / height
    axes = figure.add_axes((_LEFT / width, _BOTTOM / height, across, up))
    axes.set(xscale="log", yscale="log")
    axes.grid(True, which="major", color=canvas.FAINT, lw=0.5, alpha=0.35)
    return figure, axes


def finish(figure: Figure, across: bool = True) -> None:
    """Write the legend into the room above a plot, and ticks that can be read; those `across` may be the caller's own."""
    matplotlib = require("matplotlib.ticker", "pictures", "report")
    (axes,) = figure.axes
    for axis in (axes.xaxis, axes.yaxis) if across else (axes.yaxis,):
        low, high = axis.get_view_interval()
        if high < 10.0 * low:  # at least a decade: less shows the noise of one clock
            middle = (low * high) ** 0.5
            low, high = middle / 10.0**0.5, middle * 10.0**0.5
            axis.set_view_interval(low, high, ignore=True)
        steps = (1.0, 2.0, 5.0) if high < _FEW * low else (1.0,)
        axis.set_major_locator(matplotlib.LogLocator(subs=steps))
        axis.set_minor_formatter(matplotlib.NullFormatter())
    looks = {"fontsize": 7.5, "handlelength": 1.8, "labelspacing": 0.3}
    figure.legend(loc="upper left", bbox_to_anchor=(0.01, 1.0), ncols=_LEGEND_COLUMNS, **looks)


def inline(drawn: Figure, name: str, description: str) -> str:
    """Write a figure as an <svg> element; `name` keeps its ids apart from those of other figures of the page."""
    matplotlib = require("matplotlib", "pictures", "report")
    for axes in drawn.axes:
        axes.patch.set_visible(False)
    buffer = io.StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    with matplotlib.rc_context({"svg.hashsalt": "snapfm"}):  # the same figure gives the same ids
        drawn.savefig(buffer, format="svg", metadata=nothing)
    svg = buffer.getvalue()
    body = svg[svg.index(">", svg.index("<svg")) + 1 :].strip()
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    used = set(re.findall(r'(?:href="#|url\(#)([^")]+)', body))  # all other ids serve nobody, and repeat
    body = re.sub(r' id="([^"]*)"', lambda found: f' id="{name}-{found[1]}"' if found[1] in used else "", body)
    body = re.sub(r'(?:xlink:)?href="#', f'href="#{name}-', body).replace("xlink:href=", "href=")
    body = body.replace("url(#", f"url(#{name}-")
    for gray, variable in _INK.items():
        body = body.replace(gray, variable)
    size = re.search(r'viewBox="([^"]*)"', svg)
    assert size is not None  # matplotlib always writes one
    return f'<svg viewBox="{size.group(1)}" role="img" aria-label="{escape(description)}">\n{body}'


def look(place: int) -> dict[str, Any]:
    """Return color and marker of the line at a place; all are different for as many lines as there are methods."""
    return {"color": canvas.COLORS[place % len(canvas.COLORS)], "marker": MARKERS[place % len(MARKERS)]}
