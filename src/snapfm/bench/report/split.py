"""Where the time goes: network and projection within a walk, and the phases of one projection."""

from __future__ import annotations

from snapfm.bench.record import Cell, Kind
from snapfm.bench.report.book import OURS, Book, Case
from snapfm.bench.report.compare import contest
from snapfm.bench.report.document import Bar, Bars, Block, Fold, Head, Section, Words
from snapfm.bench.report.figures import short
from snapfm.bench.report.titles import title
from snapfm.demo.numerals import seconds

_NETWORK, _PROJECTION, _REST = "network", "projection", "rest"


def split(book: Book) -> Section | None:
    """Draw one bar per walk of ours and of its fastest fair rival, and one per cell that tells its phases."""
    single = [case for case in book.cases if case.axis is None]
    growing = [case for case in book.cases if case.axis is not None]
    blocks = _blocks(single)
    folded = _blocks(growing)
    if folded:
        blocks.append(Fold("Cases of the scaling curves", tuple(folded)))
    return Section("Where the time goes", tuple(blocks)) if blocks else None


def _blocks(cases: list[Case]) -> list[Block]:
    walks: list[Bar] = []
    phases: list[Bar] = []
    for case in cases:
        cells = case.done(Kind.WALK)
        found = contest(case, Kind.WALK)
        shown = [OURS, found.rival] if found is not None and found.rival is not None else [OURS]
        walks += [
            _walk(f"{case.title}: {title(method)}", cells[method])
            for method in shown
            if method in cells and cells[method].walk.get("total")
        ]
        phases += [
            Bar(f"{case.title}: {title(method)}", seconds(sum(cell.phases.values())), tuple(cell.phases.items()))
            for method, cell in case.done(Kind.PROJECTION).items()
            if sum(cell.phases.values()) > 0
        ]
    blocks: list[Block] = []
    if walks:
        words = f"Whole walks of {title(OURS)} and of its fastest fair rival. Every bar has full width: compare shares alone."
        blocks += [Head("Walks"), Words(words), Bars(tuple(walks), quiet=_NETWORK)]
    if phases:
        blocks += [Head("One projection of a batch, by phase"), Bars(tuple(phases))]
    return blocks


def _walk(name: str, cell: Cell) -> Bar:
    total, network, projection = cell.walk["total"], cell.walk.get("velocity", 0.0), cell.walk.get("projection", 0.0)
    rest = max(total - network - projection, 0.0)
    return Bar(name, f"{short(total)} s", ((_NETWORK, network), (_PROJECTION, projection), (_REST, rest)))
