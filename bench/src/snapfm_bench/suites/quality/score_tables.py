"""Tables of how well distributions agree, and of the steps that were chosen; from records alone.

Figures are in the units of the field. Records from before a score was measured show that it was not.
"""

from __future__ import annotations

from snapfm_bench.pages.document import NOT_YET, Entry, Table, table
from snapfm_bench.record import CellState
from snapfm_bench.suites.quality.suite import (
    Cells,
    Interval,
    QualityCell,
    QualitySuite,
    QualityTask,
    SamplerEntry,
    stored_rows,
)
from snapfm_bench.text import NOTHING

SCORES = (
    "*CRPS* (continuous ranked probability score, lower is better) judges the distribution at every point, *energy distance* "
    "that of whole fields: 0 is right, and chance can make it negative. Both are fair: on average they do not depend on the "
    "number of samples. *spread–skill*: spread of the samples divided by the error of their mean; 1 is right, and below 1 "
    "samples are too similar. *covered*: the share of true values inside the central 50 % and 90 % of the samples, with the "
    "share that the right distribution would cover. The lowest CRPS and energy distance are bold. If a sampler has several "
    "numbers of steps to choose from, the one with the lowest CRPS on other random numbers is scored."
)
NOT_MEASURED = "not measured"
_LEVELS = (0.5, 0.9)


def score_table(suite: QualitySuite, task: QualityTask, cells: Cells) -> Table | None:
    """Tabulate how well the samples of one task are distributed; None if its cells are from before that was measured."""
    done = [cell for (name, _), cell in cells.items() if name == task.name and cell.status is CellState.DONE]
    if done and all(cell.crps is None and not cell.coverage for cell in done):
        return None
    heads = (
        "sampler",
        "samples",
        "steps",
        "CRPS",
        "energy distance",
        "spread–skill",
        *(f"{100 * one:g} % covered" for one in _LEVELS),
    )
    ours = [cells.get((task.name, sampler.name)) for sampler in suite.samplers]
    best = {name: _lowest(ours, name) for name in ("crps", "energy_distance")}
    shown = suite.references | {sampler.name: sampler.title for sampler in suite.samplers}
    shown |= {name: title for name, title in stored_rows(cells).items() if (task.name, name) in cells}
    rows: list[tuple[str | Entry, ...]] = []
    for name, title in shown.items():
        cell = cells.get((task.name, name))
        if cell is None:
            rows.append((title, NOTHING, NOTHING, NOT_YET))
            continue
        start = (title, str(cell.samples), NOTHING if cell.steps is None else str(cell.steps))
        if cell.status is not CellState.DONE:
            rows.append((*start, str(cell.status)))
            continue
        covered = {one.level: one for one in cell.coverage}
        rows.append(
            (
                *start,
                _entry(cell.crps, cell is best["crps"]),
                _entry(cell.energy_distance, cell is best["energy_distance"]),
                _entry(cell.spread_skill),
                *(
                    Entry(_share(covered[one].found), f"{100 * covered[one].expected:.1f} %")
                    if one in covered
                    else NOT_MEASURED
                    for one in _LEVELS
                ),
            )
        )
    return table(heads, rows)


def step_table(suite: QualitySuite, task: QualityTask, cells: Cells) -> Table | None:
    """Tabulate CRPS of the trials by which steps were chosen, the chosen bold; None for a suite without choices."""
    choices = sorted({steps for one in suite.samplers for steps in one.step_choices})
    if not choices:
        return None
    rows = [(one.title, *_trials(one, task, cells, choices)) for one in suite.samplers if one.step_choices]
    return table((f"CRPS on seed {suite.selection_seed}", *(f"{steps} steps" for steps in choices)), rows)


def _trials(sampler: SamplerEntry, task: QualityTask, cells: Cells, choices: list[int]) -> list[str | Entry]:
    found = {one.steps: cells.get((task.name, one.name)) for one in sampler.trials}
    best = _lowest(list(found.values()), "crps")
    return [_trial(found[steps], best) if steps in found else NOTHING for steps in choices]


def _trial(cell: QualityCell | None, best: QualityCell | None) -> str | Entry:
    if cell is None:
        return NOT_YET
    return _entry(cell.crps, cell is best) if cell.status is CellState.DONE else str(cell.status)


def _lowest(cells: list[QualityCell | None], name: str) -> QualityCell | None:
    scored = [
        (score.value, place)
        for place, cell in enumerate(cells)
        if cell is not None and (score := getattr(cell, name)) is not None and score.value is not None
    ]
    return cells[min(scored)[1]] if scored else None


def _entry(found: Interval | None, first: bool = False) -> Entry:
    if found is None or found.value is None or found.low is None or found.high is None:
        return Entry(NOT_MEASURED)
    return Entry(_figure(found.value), f"{_figure(found.low)} to {_figure(found.high)}", first)


def _figure(value: float) -> str:
    return f"{value:.3g}"


def _share(found: Interval) -> str:
    return NOT_MEASURED if found.value is None else f"{100 * found.value:.1f} %"
