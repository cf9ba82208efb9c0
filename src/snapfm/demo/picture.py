"""The pictures: the hero of the README, and the panels of the page, as PNG bytes of fixed size.

Puts the plots on canvases. Reads Evidence only: it samples nothing and judges nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from snapfm.demo import canvas
from snapfm.demo.canvas import COLORS, FAINT, RUNS, Run
from snapfm.demo.evidence import Evidence
from snapfm.demo.numerals import scientific
from snapfm.demo.plots import plot_drift, plot_field, plot_initial, plot_mass

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.gridspec import SubplotSpec

HERO_PIXELS = (1600, 860)
FIELDS_PIXELS = (1040, 900)
CURVES_PIXELS = (1040, 680)
DRIFT_PIXELS = (1320, 620)
_HERO_DPI = 160
_PANEL_DPI = 220  # larger letters: on the page a panel is shown at half its pixels, on a phone at a third

PANEL_FIELDS = 4
_HERO_FIELDS = 3
_COLUMNS = 2

_HEADLINES: dict[Run, tuple[str, str]] = {
    "free": ("Without laws", "the flow model alone"),
    "lawful": ("With laws", "the same model from the same noise, every step projected by snapfm"),
}

Plot: TypeAlias = Callable[["Axes", Evidence, Run], None]
Rectangle: TypeAlias = tuple[float, float, float, float]  # left, bottom, width, height, as parts of the figure

_CURVES: dict[str, Plot] = {"initial": plot_initial, "mass": plot_mass}  # by the law they show


@dataclass(frozen=True)
class Panels:
    """The pictures of the page, PNG bytes each; the two of a pair have the same scales."""

    fields: dict[Run, bytes]
    initial: dict[Run, bytes]
    mass: dict[Run, bytes]
    drift: bytes


def hero(evidence: Evidence) -> bytes:
    """Draw the whole story in one picture: a row for each run, the same scales in both."""
    with canvas.style():
        figure = canvas.figure(HERO_PIXELS, _HERO_DPI)
        for run, top in zip(RUNS, (0.97, 0.463)):
            _hero_row(figure, evidence, run, top)
        return canvas.png(figure)


def panels(evidence: Evidence) -> Panels:
    """Draw the pictures of the page."""
    with canvas.style():
        return Panels(
            fields={run: _fields(evidence, run) for run in RUNS},
            initial={run: _curves(plot_initial, evidence, run) for run in RUNS},
            mass={run: _curves(plot_mass, evidence, run) for run in RUNS},
            drift=_drift(evidence),
        )


def _hero_row(figure: Figure, evidence: Evidence, run: Run, top: float) -> None:
    headline, aside = _HEADLINES[run]
    figure.text(0.045, top, headline, color=COLORS[run], fontsize=14, fontweight="bold", va="top")
    figure.text(0.2, top - 0.009, aside, color=FAINT, fontsize=10, va="top")
    upper, lower = top - 0.125, top - 0.385
    shown = min(_HERO_FIELDS, len(evidence.free))
    images = figure.add_gridspec(1, shown, left=0.045, right=0.455, top=upper, bottom=lower, wspace=0.1)
    _images(figure, evidence, run, [images[0, i] for i in range(shown)], (0.462, lower, 0.008, upper - lower))
    curves = figure.add_gridspec(1, 2, left=0.57, right=0.985, top=upper, bottom=lower, wspace=0.32)
    for column, (law, plot) in enumerate(_CURVES.items()):
        axes = figure.add_subplot(curves[0, column])
        plot(axes, evidence, run)
        axes.set_title(_verdict(evidence, run, law), color=COLORS[run])
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="upper right", bbox_to_anchor=(0.992, top + 0.012), ncols=2, handlelength=1.8)


def _verdict(evidence: Evidence, run: Run, law: str) -> str:
    figures = next(row for row in evidence.record.laws if row.name == law)
    if run == "free":
        return f"{law}: off by {scientific(figures.free.largest)}"
    return f"{law}: held to {scientific(figures.lawful.largest)}"


def _images(figure: Figure, evidence: Evidence, run: Run, places: list[SubplotSpec], bar: Rectangle) -> None:
    """Show the first samples, whichever they are, with one color bar."""
    for i, place in enumerate(places):
        axes = figure.add_subplot(place)
        image = plot_field(axes, evidence, run, i)
        axes.set_title(f"sample {i + 1}", color=FAINT)
        axes.label_outer()
    scale = figure.colorbar(image, cax=figure.add_axes(bar))
    scale.outline.set_visible(False)
    scale.ax.set_title("u", color=FAINT, loc="center")


def _fields(evidence: Evidence, run: Run) -> bytes:
    figure = canvas.figure(FIELDS_PIXELS, _PANEL_DPI)
    shown = min(PANEL_FIELDS, len(evidence.free))
    rows = -(-shown // _COLUMNS)
    grid = figure.add_gridspec(rows, _COLUMNS, left=0.105, right=0.845, top=0.93, bottom=0.13, wspace=0.14, hspace=0.27)
    _images(figure, evidence, run, [grid[divmod(i, _COLUMNS)] for i in range(shown)], (0.87, 0.13, 0.022, 0.8))
    return canvas.png(figure)


def _curves(plot: Plot, evidence: Evidence, run: Run) -> bytes:
    figure = canvas.figure(CURVES_PIXELS, _PANEL_DPI)
    axes = figure.add_axes((0.165, 0.2, 0.8, 0.67))
    plot(axes, evidence, run)
    axes.legend(loc="lower right", bbox_to_anchor=(1.03, 1.0), ncols=2, handlelength=1.8)
    return canvas.png(figure)


def _drift(evidence: Evidence) -> bytes:
    figure = canvas.figure(DRIFT_PIXELS, _PANEL_DPI)
    axes = figure.add_axes((0.125, 0.2, 0.85, 0.66))
    plot_drift(axes, evidence)
    axes.legend(loc="lower right", bbox_to_anchor=(1.01, 1.0), ncols=2)
    return canvas.png(figure)
