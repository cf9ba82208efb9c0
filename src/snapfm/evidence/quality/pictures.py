"""The pictures of a run: mean and spread of every sampler beside the truth, and scores against flow steps.

All panels of a row share one color scale, set by the truth, so that a sampler that diverged does not blank the others. Fields
with two space axes are shown at their last time. Reads arrays and records only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from snapfm.evidence.page import canvas
from snapfm.evidence.quality.suite import TRUE_FIELDS, Cell, Cells, Interval, Suite
from snapfm.grid import Axis, Grid

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_DPI = 200  # on the page a picture is shown at half its pixels
_COLUMN, _SQUARE = 236, 196  # pixels of one panel and its gap; of the panel alone
_LEFT, _RIGHT, _TOP, _BOTTOM, _BETWEEN = 130, 150, 60, 62, 34
_SPREAD_ROOM = 1.5  # spread scales end at this multiple of the largest true spread
_ROWS = ("mean", "spread")

_CURVE_PIXELS = (2080, 860)
_LEAST = 3  # points that make a curve
_HEADS = {"mmse": "MMSE: error of the mean", "smse": "SMSE: error of the spread"}


@dataclass(frozen=True)
class Pictured:
    """One column: its title and its mean and spread (*shape), or the words that stand in their place."""

    title: str
    moments: Mapping[str, NDArray[np.float32]] | None
    instead: str = ""


def pictured_task(columns: Sequence[Pictured], grid: Grid) -> bytes:
    """Draw all columns as PNG bytes; the first one is the truth and sets the scales."""
    truth = columns[0].moments
    assert truth is not None  # the truth is always there
    width = _LEFT + _COLUMN * len(columns) + _RIGHT
    height = _TOP + 2 * _SQUARE + _BETWEEN + _BOTTOM
    spread = {"cmap": canvas.SEQUENTIAL, "vmin": 0.0, "vmax": _SPREAD_ROOM * float(truth["spread"].max())}
    scales = {"mean": canvas.scale(truth["mean"]), "spread": spread}
    with canvas.style():
        figure = canvas.figure((width, height), _DPI)
        for row, name in enumerate(_ROWS):
            bottom, high = (_BOTTOM + (1 - row) * (_SQUARE + _BETWEEN)) / height, _SQUARE / height
            for place, column in enumerate(columns):
                axes = figure.add_axes(((_LEFT + _COLUMN * place) / width, bottom, _SQUARE / width, high))
                image = _panel(axes, column, name, grid, scales[name])
                if row == 0:
                    axes.set_title(column.title, fontsize=8)
                _label(axes, grid, outer=place == 0, lower=row == 1)
                if place == 0:
                    beside: dict[str, Any] = {
                        "transform": axes.transAxes,
                        "rotation": 90,
                        "va": "center",
                        "ha": "center",
                    }
                    axes.text(-0.42, 0.5, name, fontsize=8.5, **beside)
                    shown = image
            canvas.color_bar(figure, shown, ((width - _RIGHT + 4) / width, bottom, 14 / width, high), 6.5, 4)
        return canvas.png(figure)


def curve(suite: Suite, cells: Cells) -> bytes | None:
    """Draw scores against flow steps, one line per task; None for a suite whose samplers differ otherwise, or without figures.

    A task's dashed line is what as many true fields score.
    """
    kinds = {(sampler.kind, repr(dict(sampler.settings))) for sampler in suite.samplers}
    ticks = sorted({sampler.steps or suite.steps for sampler in suite.samplers})
    if len(kinds) > 1 or len(ticks) < _LEAST or not any(_points(suite, cells, one.name, "mmse") for one in suite.tasks):
        return None
    with canvas.style():
        figure = canvas.figure(_CURVE_PIXELS, _DPI)
        grid = figure.add_gridspec(1, 2, left=0.07, right=0.985, top=0.78, bottom=0.14, wspace=0.2)
        for place, (name, head) in enumerate(_HEADS.items()):
            axes = figure.add_subplot(grid[0, place])
            for task, color in zip(suite.tasks, canvas.COLORS * len(suite.tasks)):
                points = _points(suite, cells, task.name, name)
                if not points:
                    continue
                steps, found = zip(*points)
                values = [one.value for one in found]
                reach = [[one.value - one.low for one in found], [one.high - one.value for one in found]]
                look: dict[str, Any] = {
                    "color": color,
                    "marker": "o",
                    "ms": 3.5,
                    "lw": 1.3,
                    "capsize": 2,
                    "label": task.title,
                }
                axes.errorbar(steps, values, yerr=reach, **look)
                true = _score(cells.get((task.name, TRUE_FIELDS)), name)
                if true is not None and true.value is not None:
                    axes.axhline(true.value, color=color, lw=0.9, ls=(0, (4, 3)))
            axes.set(xscale="log", yscale="log", xlabel="flow steps", title=head)
            axes.set_xticks(ticks, [str(tick) for tick in ticks])
            axes.set_xticks([], minor=True)
        handles, labels = axes.get_legend_handles_labels()
        figure.legend(handles, labels, loc="upper left", bbox_to_anchor=(0.06, 0.99), ncols=5)
        return canvas.png(figure)


def _panel(axes: Axes, column: Pictured, name: str, grid: Grid, scale: dict[str, Any]) -> Any:
    across, up = _axes(grid)
    image = None
    if column.moments is None or not np.isfinite(column.moments[name]).any():
        words = column.instead if column.moments is None else "not finite"
        look: dict[str, Any] = {"ha": "center", "va": "center", "color": canvas.FAINT, "fontsize": 7.5}
        axes.text(0.5, 0.5, words, transform=axes.transAxes, **look)
        axes.set(facecolor="#f3f3f0", xlim=(across.start, across.stop), ylim=(up.start, up.stop))
    else:
        extent, shown = (across.start, across.stop, up.start, up.stop), canvas.plane(column.moments[name])
        image = axes.imshow(shown, origin="lower", aspect="auto", extent=extent, interpolation="nearest", **scale)
    for spine in axes.spines.values():
        spine.set_visible(True)
    return image


def _axes(grid: Grid) -> tuple[Axis, Axis]:
    """Say which axis of the grid goes across and which up."""
    return (grid.axis("t"), grid.axis("x")) if len(grid.shape) == 2 else (grid.axis("x"), grid.axis("y"))


def _label(axes: Axes, grid: Grid, outer: bool, lower: bool) -> None:
    across, up = _axes(grid)
    axes.set_xticks([across.start, across.stop], [f"{across.start:g}", f"{across.stop:.3g}"] if lower else [])
    axes.set_yticks([up.start, up.stop], [f"{up.start:g}", f"{up.stop:.3g}"] if outer else [])
    axes.tick_params(labelsize=6.5, length=2)
    if lower:
        axes.set_xlabel(across.name, fontsize=7.5, labelpad=-6)
    if outer:
        axes.set_ylabel(up.name, fontsize=7.5, labelpad=-6)


def _points(suite: Suite, cells: Cells, task: str, name: str) -> list[tuple[int, Interval]]:
    found = [(one.steps or suite.steps, _score(cells.get((task, one.name)), name)) for one in suite.samplers]
    return [(steps, score) for steps, score in found if score is not None]


def _score(cell: Cell | None, name: str) -> Interval | None:
    """Return a score that a logarithmic axis can hold."""
    found = None if cell is None else getattr(cell, name)
    return found if found is not None and found.value else None
