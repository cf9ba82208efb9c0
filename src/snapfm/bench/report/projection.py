"""Projections alone: milliseconds a sample by method and input, what came home, and the worst certificate."""

from __future__ import annotations

from snapfm.bench.record import Cell, Kind, State, Turn
from snapfm.bench.report.book import OURS, Book, Case
from snapfm.bench.report.compare import fastest, typical
from snapfm.bench.report.document import NOTHING, Block, Entry, Section, Table, Words, titled
from snapfm.bench.report.figures import home, milliseconds, outcome, short, size, times
from snapfm.bench.report.titles import title

_ABOUT = (
    "Milliseconds a sample, median of the hot calls on the whole batch, or the only one where a method is too slow for more; "
    "under each figure how many samples are home (converged by the method's word and the judge's), and its time as a multiple of "
    "{ours}. *Claims* is said of a method that calls more samples converged than hold. Bold is the fastest of those that bring "
    "the most samples home. Violation and stationarity are the worst of all samples and inputs, whatever the method says. "
    "*Cold* is what precedes the first hot call: structure, model, first call."
)
_MEGABYTE = 1e6


def projection(book: Book) -> Section | None:
    """Write one table per case with projection cells."""
    cases = [case for case in book.cases if case.of(Kind.PROJECTION)]
    if not cases:
        return None
    blocks: list[Block] = [Words(_ABOUT.format(ours=title(OURS)))]
    for case in cases:
        inside = (Words(_about(case), note=True), case_table(case))
        blocks += titled(case.title, inside, folded=case.axis is not None)
    return Section("Projection", tuple(blocks))


def case_table(case: Case) -> Table:
    """Tabulate the methods of one case: its inputs across, then the worst of all inputs."""
    cells = case.of(Kind.PROJECTION)
    inputs = list(dict.fromkeys(turn.input for cell in case.done(Kind.PROJECTION).values() for turn in cell.turns))
    by_input = {name: _turns(cells, name) for name in inputs}
    first = {
        name: fastest({method: (typical(turn), turn.verdict.converged) for method, turn in turns.items()})
        for name, turns in by_input.items()
    }
    rows = []
    for method, cell in cells.items():
        if cell.state is not State.DONE:
            rows.append((Entry(title(method)), outcome(cell), *[Entry(NOTHING)] * (max(len(inputs), 1) + 4)))
            continue
        entries = [_entry(method, turns, method == first[name]) for name, turns in by_input.items()]
        rows.append((Entry(title(method)), *entries, *_whole(cell)))
    heads = inputs or ["time"]
    tail = ("largest violation", "stationarity", "iterations", "cold, s", "memory")
    return Table(("method", *heads, *tail), tuple(rows))


def _about(case: Case) -> str:
    """Say of what size the case is."""
    some = next((cell for cell in case.cells if cell.unknowns), case.cells[0])
    what = f"{case.problem}: " if case.problem else ""
    return (
        f"{what}{some.samples} samples of {some.unknowns:,} unknowns, {some.rows:,} rows, tolerance {some.tolerance:g}."
    )


def _turns(cells: dict[str, Cell], name: str) -> dict[str, Turn]:
    return {
        method: turn
        for method, cell in cells.items()
        for turn in cell.turns
        if turn.input == name and turn.seconds and cell.state is State.DONE
    }


def _entry(method: str, turns: dict[str, Turn], first: bool) -> Entry:
    turn = turns.get(method)
    if turn is None:
        return Entry(NOTHING)
    ours = turns.get(OURS)
    detail = home(turn.verdict)
    if ours is not None and method != OURS:
        detail += f"; {times(typical(turn) / typical(ours))}"
    return Entry(milliseconds(typical(turn) / turn.verdict.samples), detail, first)


def _whole(cell: Cell) -> tuple[Entry, ...]:
    """Write what is said of all inputs together."""
    verdicts = [turn.verdict for turn in cell.turns]
    medians = [one.iterations_median for one in verdicts if one.iterations_median is not None]
    worst = [one.iterations_worst for one in verdicts if one.iterations_worst is not None]
    ends = [f"{end:g}" for end in (min(medians), max(medians))] if medians else [NOTHING]
    cold = sum(cell.cold.values())
    return (
        Entry(_worst([one.violation for one in verdicts])),
        Entry(_stationarity([one.stationarity for one in verdicts])),
        Entry(" to ".join(dict.fromkeys(ends)), f"at most {max(worst)}" if worst else ""),
        Entry(short(cold), ", ".join(f"{name.replace('_', ' ')} {spent:.2f}" for name, spent in cell.cold.items()))
        if cell.cold
        else Entry(NOTHING),
        Entry(NOTHING if cell.peak_bytes is None else f"{short(cell.peak_bytes / _MEGABYTE)} MB"),
    )


def _worst(values: list[float | None]) -> str:
    """Write the largest violation; one that is missing is not finite, which is worse than any number."""
    if None in values:
        return "not finite"
    return size(max((value for value in values if value is not None), default=None))


def _stationarity(values: list[float | None]) -> str:
    """Write the largest; a method without multipliers has none to show."""
    return size(max((value for value in values if value is not None), default=None))
