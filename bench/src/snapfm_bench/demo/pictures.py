"""The pictures of the demonstration, as PNG bytes of fixed size: the hero of the README and those of the page.

A plot shows one run; the free and the lawful one always share their scales. Reads Evidence only.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from snapfm import plot
from snapfm.arrays import Values
from snapfm.plot import canvas
from snapfm.text import scientific
from snapfm_bench.demo.record import RUNS, DemoScene, Evidence, Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HERO_PIXELS = (1600, 860)
FIELDS_PIXELS, CURVES_PIXELS, DRIFT_PIXELS = (2080, 1000), (2080, 680), (2080, 620)
_HERO_DPI, _PAGE_DPI = 160, 220  # larger letters on the page, which shows a picture at half its pixels

PAGE_FIELDS, _HERO_FIELDS = 4, 3  # samples that are shown

CAPTIONS: dict[Run, str] = {"free": "Without laws", "lawful": "With laws"}
_ASIDES: dict[Run, str] = {
    "free": "the flow model alone",
    "lawful": "the same model from the same noise, every step projected by snapfm",
}
COLORS: dict[Run, str] = {"free": canvas.COLORS[1], "lawful": canvas.COLORS[0]}
_TARGET: dict[str, Any] = {"color": "#111111", "linewidth": 1.6, "linestyle": (0, (2, 2))}
_HEADROOM = 1.1  # room above the largest curve
_FLOOR = 1e-9  # where an exact zero is drawn on the logarithmic axis: below the rounding of float32 fields


def hero(evidence: Evidence) -> bytes:
    """Draw everything in one picture: one row per run, with the same scales."""
    with canvas.style():
        figure = canvas.figure(HERO_PIXELS, _HERO_DPI)
        for run, top in zip(RUNS, (0.97, 0.463)):
            _heading(figure, run, (0.045, 0.2), top, 14)
            upper, lower = top - 0.125, top - 0.385
            _fields(figure, evidence.heat, run, _HERO_FIELDS, (0.045, lower, 0.41, upper - lower))
            curves = figure.add_gridspec(1, 2, left=0.57, right=0.985, top=upper, bottom=lower, wspace=0.32)
            for column, law in enumerate(("initial", "mass")):
                axes = figure.add_subplot(curves[0, column])
                _curves(axes, evidence, run, law)
                judged = next(getattr(row, run) for row in evidence.heat.case.laws if row.name == law)
                words = "off by" if run == "free" else "held to"
                axes.set_title(f"{law}: {words} {scientific(judged.largest)}", color=COLORS[run])
            _legend(figure, axes, (0.992, top + 0.012))
        return canvas.png(figure)


def pictures(evidence: Evidence) -> dict[str, bytes]:
    """Draw the pictures of the page by name: fields, initial, mass and drift of heat, fields and violations of Burgers."""
    burgers = evidence.burgers
    with canvas.style():
        drift = canvas.figure(DRIFT_PIXELS, _PAGE_DPI)
        axes = drift.add_axes((0.08, 0.2, 0.9, 0.66))
        _drift(axes, evidence)
        _legend(drift, axes, (0.985, 1.0))
        drawn = {
            "fields": _both(evidence.heat),
            "initial": _pair(evidence, "initial"),
            "mass": _pair(evidence, "mass"),
            "drift": drift,
            "shocks": _both(burgers),
            "violations": plot.violation(burgers.by_law["lawful"], burgers.by_law["free"]),
        }
        return {name: canvas.png(figure) for name, figure in drawn.items()}


def _both(scene: DemoScene) -> Figure:
    """Draw the first fields of both runs, one row each."""
    figure = canvas.figure(FIELDS_PIXELS, _PAGE_DPI)
    for run, top in zip(RUNS, (0.97, 0.47)):
        _heading(figure, run, (0.05, 0.19), top, 12)
        _fields(figure, scene, run, PAGE_FIELDS, (0.05, top - 0.37, 0.875, 0.235))
    return figure


def _pair(evidence: Evidence, law: str) -> Figure:
    """Draw the curves of one law, both runs side by side."""
    figure = canvas.figure(CURVES_PIXELS, _PAGE_DPI)
    for run, left in zip(RUNS, (0.08, 0.58)):
        axes = figure.add_axes((left, 0.2, 0.4, 0.64))
        _curves(axes, evidence, run, law)
        axes.set_title(CAPTIONS[run], color=COLORS[run], fontweight="bold")
    _legend(figure, axes, (0.985, 1.0))
    return figure


def _heading(figure: Figure, run: Run, left: tuple[float, float], top: float, letters: float) -> None:
    figure.text(left[0], top, CAPTIONS[run], color=COLORS[run], fontsize=letters, fontweight="bold", va="top")
    figure.text(left[1], top - 0.009, _ASIDES[run], color=canvas.FAINT, fontsize=0.7 * letters, va="top")


def _legend(figure: Figure, axes: Axes, place: tuple[float, float]) -> None:
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="upper right", bbox_to_anchor=place, ncols=2, handlelength=1.8)


def _fields(figure: Figure, scene: DemoScene, run: Run, most: int, place: tuple[float, float, float, float]) -> None:
    """Show the first samples as images, t to the right and x upwards, on the color scale that all fields share."""
    left, bottom, width, height = place
    x, t, shown = scene.x, scene.t, min(most, len(scene.fields[run]))
    scale = canvas.scale(np.stack(list(scene.fields.values())))
    grid = figure.add_gridspec(1, shown, left=left, right=left + width, top=bottom + height, bottom=bottom, wspace=0.1)
    for i in range(shown):
        axes, extent = figure.add_subplot(grid[0, i]), (t[0], t[-1], x[0], x[-1])
        image = axes.imshow(
            scene.fields[run][i], origin="lower", aspect="auto", extent=extent, interpolation="nearest", **scale
        )
        _across(axes, t, "t", "x")
        axes.set_yticks(*_ticks(x))
        axes.spines[:].set_visible(True)
        axes.set_title(f"sample {i + 1}", color=canvas.FAINT)
        axes.label_outer()
    bar = figure.colorbar(image, cax=figure.add_axes((left + width + 0.007, bottom, 0.008, height)))
    bar.outline.set_visible(False)
    bar.ax.set_title("u", color=canvas.FAINT, loc="center")


def _curves(axes: Axes, evidence: Evidence, run: Run, law: str) -> None:
    """Show the initial slice, or the mass over time, of every sample over its target; equal targets are drawn once."""
    if law == "initial":
        across, names = evidence.heat.x, ("x", "u(x, 0)")
        drawn, target = {run: fields[:, :, 0] for run, fields in evidence.heat.fields.items()}, evidence.initial
    else:
        across, names = evidence.heat.t, ("t", "mass  Σ u(x, t)")
        drawn, target = evidence.mass, np.tile(evidence.target_mass[:, None], len(evidence.heat.t))
    for i, values in enumerate(drawn[run]):
        axes.plot(across, values, color=COLORS[run], linewidth=1.0, alpha=0.7, label="" if i else "generated")
    for i, values in enumerate(np.unique(target, axis=0)):
        axes.plot(across, values, label="" if i else "asked for", **_TARGET)
    middle = float(target.mean())
    reach = _HEADROOM * max(float(np.abs(values - middle).max()) for values in (*drawn.values(), target)) or 1.0
    axes.set_ylim(middle - reach, middle + reach)
    _across(axes, across, *names)


def _drift(axes: Axes, evidence: Evidence) -> None:
    """Show the distance of the masses from their targets on a logarithmic axis, from the median sample to the largest."""
    for run in RUNS:
        drift = np.abs(evidence.mass[run] - evidence.target_mass[:, None])
        largest, typical = (np.maximum(values, _FLOOR) for values in (drift.max(axis=0), np.median(drift, axis=0)))
        axes.fill_between(evidence.heat.t, typical, largest, color=COLORS[run], alpha=0.25, linewidth=0)
        axes.semilogy(evidence.heat.t, largest, color=COLORS[run], linewidth=1.6, label=CAPTIONS[run].lower())
    _across(axes, evidence.heat.t, "t", "|mass − target|")


def _across(axes: Axes, points: Values, across: str, up: str) -> None:
    axes.set(xlim=(points[0], points[-1]), xlabel=across, ylabel=up)
    axes.set_xticks(*_ticks(points))


def _ticks(points: Values) -> tuple[list[float], list[str]]:
    """Return three ticks with their labels: multiples of π where they are."""
    start, stop = float(points[0]), float(points[-1])
    places = [start, (start + stop) / 2, stop]
    turns = [round(place / math.pi) for place in places]
    if all(math.isclose(place, turn * math.pi, rel_tol=1e-9) for place, turn in zip(places, turns)):
        return places, ["0" if turn == 0 else "π" if turn == 1 else f"{turn}π" for turn in turns]
    return places, [f"{place:g}" for place in places]
