"""The curve of a suite whose samplers differ in their flow steps alone: scores against steps, one line per task.

Reads records only. A task's dashed line is what as many true fields score.
"""

from __future__ import annotations

from collections.abc import Mapping

from snapfm.demo import canvas
from snapfm.quality.record import TRUE_FIELDS, Cell, Interval
from snapfm.quality.suite import Suite

_PIXELS, _DPI = (2080, 860), 200
_LEAST = 3  # points that make a curve
_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00")  # Okabe–Ito
_HEADS = {"mmse": "MMSE: error of the mean", "smse": "SMSE: error of the spread"}

Cells = Mapping[tuple[str, str], Cell]


def curve(suite: Suite, cells: Cells) -> bytes | None:
    """Draw the curves as PNG bytes; None for a suite that has none, or no figures yet."""
    kinds = {(sampler.kind, repr(dict(sampler.settings))) for sampler in suite.samplers}
    if len(kinds) > 1 or len({sampler.steps or suite.steps for sampler in suite.samplers}) < _LEAST:
        return None
    if not any(_points(suite, cells, task.name, "mmse") for task in suite.tasks):
        return None
    with canvas.style():
        figure = canvas.figure(_PIXELS, _DPI)
        grid = figure.add_gridspec(1, 2, left=0.07, right=0.985, top=0.78, bottom=0.14, wspace=0.2)
        for place, (name, head) in enumerate(_HEADS.items()):
            axes = figure.add_subplot(grid[0, place])
            for task, color in zip(suite.tasks, _COLORS * len(suite.tasks)):
                points = _points(suite, cells, task.name, name)
                if not points:
                    continue
                steps, found = zip(*points)
                values = [one.value for one in found]
                reach = [[one.value - one.low for one in found], [one.high - one.value for one in found]]
                axes.errorbar(
                    steps, values, yerr=reach, color=color, marker="o", ms=3.5, lw=1.3, capsize=2, label=task.title
                )
                true = _score(cells.get((task.name, TRUE_FIELDS)), name)
                if true is not None and true.value is not None:
                    axes.axhline(true.value, color=color, lw=0.9, ls=(0, (4, 3)))
            axes.set(xscale="log", yscale="log", xlabel="flow steps", title=head)
            ticks = sorted({sampler.steps or suite.steps for sampler in suite.samplers})
            axes.set_xticks(ticks, [str(tick) for tick in ticks])
            axes.set_xticks([], minor=True)
        handles, labels = axes.get_legend_handles_labels()
        figure.legend(handles, labels, loc="upper left", bbox_to_anchor=(0.06, 0.99), ncols=5)
        return canvas.png(figure)


def _points(suite: Suite, cells: Cells, task: str, name: str) -> list[tuple[int, Interval]]:
    found = [(one.steps or suite.steps, _score(cells.get((task, one.name)), name)) for one in suite.samplers]
    return [(steps, score) for steps, score in found if score is not None]


def _score(cell: Cell | None, name: str) -> Interval | None:
    """Give a score that a logarithmic axis can hold."""
    found = None if cell is None else getattr(cell, name)
    return found if found is not None and found.value else None
