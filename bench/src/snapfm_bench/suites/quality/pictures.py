"""The pictures of a run: mean and spread of every sampler beside the truth, and scores against flow steps.

All images of a row share one color scale, set by the truth, so that a sampler that diverged does not blank the others. Fields
with two space axes are shown at their last time. Reads arrays and records only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from snapfm.grid import Grid
from snapfm.plot import canvas
from snapfm.plot.fields import Views, moments_figure
from snapfm_bench.suites.quality.suite import TRUE_FIELDS, Cells, Interval, QualityCell, QualitySuite

_DPI = 200  # on the page a picture is shown at half its pixels
_CURVE_PIXELS = (2080, 860)
_LEAST = 3  # points that make a curve
_HEADS = {"mmse": "MMSE: error of the mean", "smse": "SMSE: error of the spread"}

Images = Mapping[str, NDArray[np.float32]]  # mean and spread (*shape)


def pictured_task(columns: Sequence[tuple[str, Images | str]], grid: Grid) -> bytes:
    """Draw mean and spread of all columns as PNG bytes; the first one is the truth and sets the scales.

    A string stands for a column without fields.
    """
    views = Views(tuple(axis.name for axis in grid.axes), grid.shape, slices=1)
    across, up = (grid.axis(name) for name in views.names)
    with canvas.style():
        return canvas.png(moments_figure([("", columns)], views, (across.start, across.stop, up.start, up.stop)))


def curve(suite: QualitySuite, cells: Cells) -> bytes | None:
    """Draw scores against flow steps, one line per task; None without figures, or if samplers differ in more than steps.

    A task's dashed line is the score of as many true fields.
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


def _points(suite: QualitySuite, cells: Cells, task: str, name: str) -> list[tuple[int, Interval]]:
    found = [(one.steps or suite.steps, _score(cells.get((task, one.name)), name)) for one in suite.samplers]
    return [(steps, score) for steps, score in found if score is not None]


def _score(cell: QualityCell | None, name: str) -> Interval | None:
    """Return a score that a logarithmic axis can hold."""
    found = None if cell is None else getattr(cell, name)
    return found if found is not None and found.value else None
