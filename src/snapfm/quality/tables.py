"""What the pages tabulate: records as words, the same for Markdown and HTML. Reads records only.

Scores of mean and spread are in units of 1e-2, as published ones are; constraint errors in the units of their laws.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from snapfm.demo.numerals import scientific, seconds
from snapfm.quality import published
from snapfm.quality.record import REFERENCES, Cell, Interval, Status
from snapfm.quality.suite import Suite, TaskEntry

PCFM = "pcfm"
NOTHING = "–"
PUBLISHED = ", published"  # how the name of a row of published figures ends
NOT_YET = "not run yet"
_PLAIN = 1e-2  # numbers from here to its inverse are written without an exponent
_ROUNDING = 1e-24  # of squares of float64 numbers: the mean against itself

Cells = Mapping[tuple[str, str], Cell]


@dataclass(frozen=True)
class Entry:
    """One place of a table, with what stands smaller beside it; `first` marks the best."""

    words: str
    detail: str = ""
    first: bool = False


@dataclass(frozen=True)
class Table:
    """Heads and rows; the first entry of a row is its name."""

    heads: tuple[str, ...]
    rows: tuple[tuple[Entry, ...], ...]


def summary(suite: Suite, cells: Cells) -> Table:
    """Tabulate MMSE / SMSE of all samplers and tasks in the shape of the published table, with that one beside it."""
    rows = []
    for task in suite.tasks:
        ours = [cells.get((task.name, sampler.name)) for sampler in suite.samplers]
        best = _best(ours)
        entries = [Entry(_pair(cell), first=cell is not None and cell is best) for cell in ours]
        entries.append(Entry(_pair(cells.get((task.name, "true-fields")))))
        rows.append((Entry(f"{task.title}, here"), *entries))
        if any(sampler.name in published.PUBLISHED.get(task.name, {}) for sampler in suite.samplers):
            given = [Entry(_published(task.name, sampler.name)) for sampler in suite.samplers]
            rows.append((Entry(f"{task.title}{PUBLISHED}"), *given, Entry(NOTHING)))
    return Table(("task", *(sampler.title for sampler in suite.samplers), REFERENCES["true-fields"]), tuple(rows))


def task_table(suite: Suite, task: TaskEntry, cells: Cells) -> Table:
    """Tabulate all that was measured on one task."""
    laws = _laws(task, cells)
    heads = (
        "sampler", "samples", "steps", "MMSE, 1e-2", "SMSE, 1e-2", *(f"error: {law}" for law in laws), "largest violation",
        "certified", "like true fields", "values", "network calls", "time",
    )  # fmt: skip
    best = _best([cells.get((task.name, sampler.name)) for sampler in suite.samplers])
    rows = []
    for name, title in REFERENCES.items():
        rows.append(_row(title, cells.get((task.name, name)), laws, False))
    for sampler in suite.samplers:
        cell = cells.get((task.name, sampler.name))
        rows.append(_row(sampler.title, cell, laws, cell is not None and cell is best))
    return Table(heads, tuple(rows))


def verdicts(suite: Suite, cells: Cells) -> list[str]:
    """Say in whole sentences how PCFM came out; nothing for a suite without it."""
    if PCFM not in {sampler.name for sampler in suite.samplers}:
        return []
    first: list[str] = []
    second: list[str] = []
    worst: list[float] = []
    certified = all_samples = 0
    for task in suite.tasks:
        ours = [cells.get((task.name, sampler.name)) for sampler in suite.samplers]
        cell = cells.get((task.name, PCFM))
        if cell is None or cell.status is not Status.DONE:
            continue
        (first if _best(ours) is cell else second).append(task.title)
        worst.append(max((law.worst_row or 0.0) for law in cell.laws))
        certified, all_samples = certified + (cell.converged or 0), all_samples + cell.samples
    scored = [*first, *second]
    absent = [task.title for task in suite.tasks if task.title not in scored]
    told = []
    if scored:
        which = f": {', '.join(first)}" if first else ""
        told.append(f"PCFM is first in MMSE on {len(first)} of {len(scored)} tasks{which}.")
        told.append(
            f"Its largest violation of any row of any law by any sample is {scientific(max(worst))}; {certified} of "
            f"{all_samples} samples are certified."
        )
    if second:
        told.append(f"It is not first on {', '.join(second)}.")
    if absent:
        told.append(f"Without a figure for it: {', '.join(absent)}.")
    return told


def _row(title: str, cell: Cell | None, laws: list[str], first: bool) -> tuple[Entry, ...]:
    count = NOTHING if cell is None else str(cell.samples)
    steps = NOTHING if cell is None or cell.steps is None else str(cell.steps)
    start = Entry(title), Entry(count), Entry(steps)
    if cell is None or cell.status is not Status.DONE:
        return *start, _outcome(cell), *[Entry(NOTHING)] * (len(laws) + 7)
    by_law = {law.law: law for law in cell.laws}
    worst = [law.worst_row for law in cell.laws]
    return (
        *start,
        _score(cell.mmse, first),
        _score(cell.smse),
        *(Entry(_size(by_law[law].error.value) if law in by_law else NOTHING) for law in laws),
        Entry(_size(None if None in worst else max((value or 0.0) for value in worst))),
        Entry(NOTHING if cell.converged is None else f"{cell.converged} of {cell.samples}"),
        _texture(cell),
        Entry(_range(cell)),
        Entry(NOTHING if cell.calls is None else str(cell.calls)),
        _time(cell),
    )


def _outcome(cell: Cell | None) -> Entry:
    """Write what became of a cell without scores: never a gap."""
    if cell is None:
        return Entry(NOT_YET)
    if cell.status is Status.DNF:
        return Entry("DNF", f"after {seconds(cell.seconds['total'])}, step {cell.steps_done} of {cell.steps}")
    return Entry(str(cell.status), cell.error or "")


def _score(found: Interval | None, first: bool = False) -> Entry:
    """Write a score in units of 1e-2 with its interval."""
    if found is None or found.value is None or found.low is None or found.high is None:
        return Entry("not finite")
    return Entry(_figure(found.value), f"{_figure(found.low)} to {_figure(found.high)}", first)


def _best(ours: list[Cell | None]) -> Cell | None:
    scored = [cell for cell in ours if cell is not None and cell.mmse is not None and cell.mmse.value is not None]
    return min(scored, key=lambda cell: cell.mmse.value, default=None)  # type: ignore[union-attr, arg-type, return-value]


def _laws(task: TaskEntry, cells: Cells) -> list[str]:
    """Name the laws of a task as they were judged, or as they would be."""
    for (name, _), cell in cells.items():
        if name == task.name and cell.laws:
            return [law.law for law in cell.laws]
    return [law.name for law in task.build().laws]


def _pair(cell: Cell | None) -> str:
    if cell is None or cell.status is not Status.DONE:
        return NOT_YET if cell is None else str(cell.status)
    if cell.mmse is None or cell.smse is None or cell.mmse.value is None or cell.smse.value is None:
        return "not finite"
    return f"{_figure(cell.mmse.value)} / {_figure(cell.smse.value)}"


def _published(task: str, sampler: str) -> str:
    found = published.PUBLISHED[task].get(sampler) if sampler in published.NAMES.values() else None
    return NOTHING if found is None else f"{found[0]:g} / {found[1]:g}"


def _figure(value: float) -> str:
    """Write three digits, in units of 1e-2."""
    return "0" if value <= _ROUNDING else f"{value / published.UNIT:.3g}"


def _size(value: float | None) -> str:
    if value is None:
        return "not finite"
    return f"{value:.3g}" if _PLAIN <= abs(value) < 1.0 / _PLAIN else scientific(value)


def _texture(cell: Cell) -> Entry:
    if cell.texture is None:
        return Entry(NOTHING)
    if cell.texture.noise:
        return Entry("no", f"{cell.texture.noise} are noise")
    return Entry("yes") if cell.texture.alike else Entry("no", "other scales")


def _range(cell: Cell) -> str:
    if cell.smallest is None or cell.largest is None:
        return f"{cell.finite} of {cell.samples} finite"
    return f"{_value(cell.smallest)} to {_value(cell.largest)}"


def _value(value: float) -> str:
    return f"{value:.2f}" if abs(value) < 1.0 / _PLAIN else scientific(value)


def _time(cell: Cell) -> Entry:
    if not cell.seconds:
        return Entry(NOTHING)
    parts = f"{cell.seconds['velocity']:.1f} + {cell.seconds['projection']:.1f} s"
    return Entry(seconds(cell.seconds["total"]), parts)
