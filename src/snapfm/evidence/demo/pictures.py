"""The pictures: the hero of the README and the panels of the page, as PNG bytes of fixed size. Reads Evidence only.

A plot is one axes of one run; the free and the lawful one always share their scales.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from snapfm.evidence.demo.record import RUNS, Array, Evidence, Run
from snapfm.evidence.page import canvas
from snapfm.evidence.text import scientific

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.gridspec import SubplotSpec
    from matplotlib.image import AxesImage

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

COLORS: dict[Run, str] = {"free": canvas.COLORS[1], "lawful": canvas.COLORS[0]}

_ASKED: dict[str, Any] = {"color": "#111111", "linewidth": 1.6, "linestyle": (0, (2, 2))}  # what was asked for
_HEADROOM = 1.1  # room above the largest curve
_FLOOR = 1e-9  # where an exact zero lies on the logarithmic axis: below the rounding of float32 fields


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
            initial={run: _curves(_plot_initial, evidence, run) for run in RUNS},
            mass={run: _curves(_plot_mass, evidence, run) for run in RUNS},
            drift=_drift(evidence),
        )


def _hero_row(figure: Figure, evidence: Evidence, run: Run, top: float) -> None:
    headline, aside = _HEADLINES[run]
    figure.text(0.045, top, headline, color=COLORS[run], fontsize=14, fontweight="bold", va="top")
    figure.text(0.2, top - 0.009, aside, color=canvas.FAINT, fontsize=10, va="top")
    upper, lower = top - 0.125, top - 0.385
    shown = min(_HERO_FIELDS, len(evidence.free))
    images = figure.add_gridspec(1, shown, left=0.045, right=0.455, top=upper, bottom=lower, wspace=0.1)
    _images(figure, evidence, run, [images[0, i] for i in range(shown)], (0.462, lower, 0.008, upper - lower))
    curves = figure.add_gridspec(1, 2, left=0.57, right=0.985, top=upper, bottom=lower, wspace=0.32)
    for column, (law, plot) in enumerate((("initial", _plot_initial), ("mass", _plot_mass))):
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
        image = _plot_field(axes, evidence, run, i)
        axes.set_title(f"sample {i + 1}", color=canvas.FAINT)
        axes.label_outer()
    scale = figure.colorbar(image, cax=figure.add_axes(bar))
    scale.outline.set_visible(False)
    scale.ax.set_title("u", color=canvas.FAINT, loc="center")


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
    _plot_drift(axes, evidence)
    axes.legend(loc="lower right", bbox_to_anchor=(1.01, 1.0), ncols=2)
    return canvas.png(figure)


def _plot_field(axes: Axes, evidence: Evidence, run: Run, index: int) -> AxesImage:
    """Show one field as an image, t to the right and x upwards, on the color scale all fields share."""
    scale = max(float(np.abs(fields).max()) for fields in (evidence.free, evidence.lawful))
    x, t = evidence.x, evidence.t
    image = axes.imshow(
        evidence.fields(run)[index],
        origin="lower", aspect="auto", extent=(t[0], t[-1], x[0], x[-1]), cmap=canvas.DIVERGING, vmin=-scale, vmax=scale,
        interpolation="nearest",
    )  # fmt: skip
    _across(axes, t, "t", "x")
    axes.set_yticks(*_ticks(x))
    for spine in axes.spines.values():
        spine.set_visible(True)
    return image


def _plot_initial(axes: Axes, evidence: Evidence, run: Run) -> None:
    """Show the first time slice of every field over what was asked for; samples that share a condition share its line."""
    slices = evidence.fields(run)[:, :, 0]
    for i, values in enumerate(slices):
        axes.plot(evidence.x, values, color=COLORS[run], linewidth=1.0, alpha=0.7, label="" if i else "generated")
    for i, values in enumerate(np.unique(evidence.initial, axis=0)):
        axes.plot(evidence.x, values, label="" if i else "asked for", **_ASKED)
    shown = (evidence.free[:, :, 0], evidence.lawful[:, :, 0], evidence.initial)
    limit = _HEADROOM * max(float(np.abs(values).max()) for values in shown)
    axes.set_ylim(-limit, limit)
    _across(axes, evidence.x, "x", "u(x, 0)")


def _plot_mass(axes: Axes, evidence: Evidence, run: Run) -> None:
    """Show the total of every field over time; a lawful one is a straight line."""
    for i, values in enumerate(evidence.mass(run)):
        axes.plot(evidence.t, values, color=COLORS[run], linewidth=1.0, alpha=0.7, label="" if i else "generated")
    for i, value in enumerate(np.unique(evidence.target_mass)):
        axes.axhline(value, label="" if i else "asked for", **_ASKED)
    middle = float(evidence.target_mass.mean())
    masses = (evidence.free_mass, evidence.lawful_mass, evidence.target_mass)
    reach = _HEADROOM * max(float(np.abs(mass - middle).max()) for mass in masses) or 1.0
    axes.set_ylim(middle - reach, middle + reach)
    _across(axes, evidence.t, "t", "mass  Σ u(x, t)")


def _plot_drift(axes: Axes, evidence: Evidence) -> None:
    """Show how far masses are from their targets on one logarithmic axis: from the median sample to the largest."""
    labels = {"free": "without laws", "lawful": "with laws"}
    for run in RUNS:
        drift = np.abs(evidence.mass(run) - evidence.target_mass[:, None])
        largest, typical = (np.maximum(values, _FLOOR) for values in (drift.max(axis=0), np.median(drift, axis=0)))
        axes.fill_between(evidence.t, typical, largest, color=COLORS[run], alpha=0.25, linewidth=0)
        axes.semilogy(evidence.t, largest, color=COLORS[run], linewidth=1.6, label=labels[run])
    _across(axes, evidence.t, "t", "|mass − target|")


def _across(axes: Axes, points: Array, across: str, up: str) -> None:
    axes.set_xlim(points[0], points[-1])
    axes.set_xticks(*_ticks(points))
    axes.set_xlabel(across)
    axes.set_ylabel(up)


def _ticks(points: Array) -> tuple[list[float], list[str]]:
    start, stop = float(points[0]), float(points[-1])
    places = [start, (start + stop) / 2, stop]
    return places, [_label(place) for place in places]


def _label(value: float) -> str:
    """Write a tick as a multiple of π where it is one."""
    turns = value / math.pi
    if value != 0 and math.isclose(turns, round(turns), rel_tol=1e-9):
        return "π" if round(turns) == 1 else f"{round(turns)}π"
    return f"{value:g}"
