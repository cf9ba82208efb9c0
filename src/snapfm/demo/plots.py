"""The plots: one axes each, for one run; the free and the lawful one always share their scales.

Reads Evidence only: it samples nothing and judges nothing.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from snapfm.demo.canvas import ASKED, COLOR_MAP, COLORS, RUNS, Run
from snapfm.demo.evidence import Array, Evidence

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.image import AxesImage

_HEADROOM = 1.1  # room above the largest curve
_FLOOR = 1e-9  # where an exact zero lies on the logarithmic axis: below the rounding of float32 fields


def plot_field(axes: Axes, evidence: Evidence, run: Run, index: int) -> AxesImage:
    """Show one field as an image, t to the right and x upwards, on the color scale all fields share."""
    scale = max(float(np.abs(fields).max()) for fields in (evidence.free, evidence.lawful))
    x, t = evidence.x, evidence.t
    image = axes.imshow(
        _fields(evidence, run)[index],
        origin="lower",
        aspect="auto",
        extent=(t[0], t[-1], x[0], x[-1]),
        cmap=COLOR_MAP,
        vmin=-scale,
        vmax=scale,
        interpolation="nearest",
    )
    axes.set_xticks(*_ticks(t))
    axes.set_yticks(*_ticks(x))
    axes.set_xlabel("t")
    axes.set_ylabel("x")
    for spine in axes.spines.values():
        spine.set_visible(True)
    return image


def plot_initial(axes: Axes, evidence: Evidence, run: Run) -> None:
    """Show the first time slice of every field over what was asked for."""
    slices = _fields(evidence, run)[:, :, 0]
    for i, values in enumerate(slices):
        axes.plot(evidence.x, values, color=COLORS[run], linewidth=1.0, alpha=0.7, label="" if i else "generated")
    for i, values in enumerate(_distinct(evidence.initial)):
        axes.plot(evidence.x, values, color=ASKED, linewidth=1.6, linestyle=(0, (2, 2)), label="" if i else "asked for")
    shown = (evidence.free[:, :, 0], evidence.lawful[:, :, 0], evidence.initial)
    limit = _HEADROOM * max(float(np.abs(values).max()) for values in shown)
    axes.set_ylim(-limit, limit)
    axes.set_xlim(evidence.x[0], evidence.x[-1])
    axes.set_xticks(*_ticks(evidence.x))
    axes.set_xlabel("x")
    axes.set_ylabel("u(x, 0)")


def plot_mass(axes: Axes, evidence: Evidence, run: Run) -> None:
    """Show the total of every field over time; a lawful one is a straight line."""
    for i, values in enumerate(_masses(evidence, run)):
        axes.plot(evidence.t, values, color=COLORS[run], linewidth=1.0, alpha=0.7, label="" if i else "generated")
    for i, value in enumerate(np.unique(evidence.target_mass)):
        axes.axhline(value, color=ASKED, linewidth=1.6, linestyle=(0, (2, 2)), label="" if i else "asked for")
    middle = float(evidence.target_mass.mean())
    masses = (evidence.free_mass, evidence.lawful_mass, evidence.target_mass)
    reach = _HEADROOM * max(float(np.abs(mass - middle).max()) for mass in masses) or 1.0
    axes.set_ylim(middle - reach, middle + reach)
    axes.set_xlim(evidence.t[0], evidence.t[-1])
    axes.set_xticks(*_ticks(evidence.t))
    axes.set_xlabel("t")
    axes.set_ylabel("mass  Σ u(x, t)")


def plot_drift(axes: Axes, evidence: Evidence) -> None:
    """Show how far masses are from their targets on one logarithmic axis: from the median sample to the largest."""
    labels = {"free": "without laws", "lawful": "with laws"}
    for run in RUNS:
        drift = np.abs(_masses(evidence, run) - evidence.target_mass[:, None])
        largest, typical = (np.maximum(values, _FLOOR) for values in (drift.max(axis=0), np.median(drift, axis=0)))
        axes.fill_between(evidence.t, typical, largest, color=COLORS[run], alpha=0.25, linewidth=0)
        axes.semilogy(evidence.t, largest, color=COLORS[run], linewidth=1.6, label=labels[run])
    axes.set_xlim(evidence.t[0], evidence.t[-1])
    axes.set_xticks(*_ticks(evidence.t))
    axes.set_xlabel("t")
    axes.set_ylabel("|mass − target|")


def _fields(evidence: Evidence, run: Run) -> Array:
    return evidence.free if run == "free" else evidence.lawful


def _masses(evidence: Evidence, run: Run) -> Array:
    return evidence.free_mass if run == "free" else evidence.lawful_mass


def _distinct(rows: Array) -> Array:
    """Drop repeated rows: samples that share one initial condition get one dashed line."""
    return np.unique(rows, axis=0)


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
