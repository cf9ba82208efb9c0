"""Whole walks: runtime tables in the shape of the paper with the published figures beside them, and where the time goes."""

from __future__ import annotations

from snapfm.evidence import published
from snapfm.evidence.page import document as doc
from snapfm.evidence.page.document import NOTHING, PUBLISHED, Block, Entry, Section, Table, Words, table
from snapfm.evidence.projection.report.answers import confirmed
from snapfm.evidence.projection.report.book import Book, Case, outcome, title
from snapfm.evidence.projection.report.compare import contest, fastest, totals_of
from snapfm.evidence.projection.suite import OURS, Cell, Kind
from snapfm.evidence.record import State
from snapfm.evidence.text import seconds, short, size, times, total

_ABOUT = (
    "Seconds of whole runs of constrained sampling, network included, one batch. *Published* figures are the paper's, taken on "
    f"{published.HARDWARE} with its own networks: hardware differs, so their ratios to what was measured here compare two "
    "installations, not two methods on one machine. DNF is a run past its budget; published ones had "
    f"{published.BUDGET_HOURS} h."
)
_PROJECTION = (
    "The projection alone: what {ours} spent in it over the whole walk, against the published total of {best} less the published "
    "time of its network, the larger figure where a range is given. For a problem whose network time was not published the total "
    "stands in, which makes the published side look slower than its projection was."
)
_OTHER_SIZE = "Samples or steps differ from the published runs, so no ratios to these are given."
_NETWORK = "network"


def runtime(book: Book) -> Section | None:
    """Write the overview, the projection against the published one, and one table per case."""
    cases = [case for case in book.cases if case.of(Kind.WALK)]
    if not cases:
        return None
    blocks: list[Block] = [Words(_ABOUT)]
    single = [case for case in cases if case.axis is None]  # the others are points of a scaling curve
    if single:
        blocks.append(overview(single))
    against = [case for case in cases if known(case)]
    if against:
        words = _PROJECTION.format(ours=title(OURS), best=published.BEST)
        blocks += [doc.Head("Projection against the published one"), Words(words), against_published(against)]
    for case in cases:
        note = (Words(_OTHER_SIZE, note=True),) if known(case) and not comparable(case) else ()
        blocks += doc.titled(_case_title(case), (case_table(case), *note), folded=case.axis is not None)
    return Section("Runtime of whole walks", tuple(blocks))


def known(case: Case) -> bool:
    """Say whether runtimes of a case were published."""
    return case.published in published.RUNTIMES


def comparable(case: Case) -> bool:
    """Say whether the walks here have the samples and steps of the published ones."""
    theirs = (published.SAMPLES.get(case.published), published.STEPS)
    return known(case) and all((cell.samples, cell.steps) == theirs for cell in case.done(Kind.WALK).values())


def published_rest(case: Case) -> float | None:
    """Return what the published best spent outside its network, or all of it where the network's share was not published."""
    given = published.RUNTIMES[case.published][published.BEST]
    return None if given is None else given - published.NETWORK.get(case.published, 0.0)


def published_ratio(case: Case) -> float | None:
    """Return the published projection's seconds as a multiple of ours; None where the two are not of the same runs."""
    ours = _walk_of(case.of(Kind.WALK).get(OURS)).get("projection")
    rest = published_rest(case) if ours and comparable(case) else None
    return None if rest is None or not ours else rest / ours


def overview(cases: list[Case]) -> Table:
    """Tabulate total seconds: cases downwards, methods across, then the published columns."""
    methods = list(dict.fromkeys(method for case in cases for method in case.of(Kind.WALK)))
    columns = list(dict.fromkeys(column for case in cases for column in published.RUNTIMES.get(case.published, ())))
    rows: list[tuple[str | Entry, ...]] = []
    for case in cases:
        cells = case.of(Kind.WALK)
        first = _first(cells)
        here = [_total(cells.get(method), method == first) for method in methods]
        rows.append((case.title, *here, *(_published_total(case, column) for column in columns)))
    return table(("case", *map(title, methods), *(f"{column}{PUBLISHED}" for column in columns)), rows)


def against_published(cases: list[Case]) -> Table:
    """Tabulate ours' projection seconds against the published total less its network."""
    heads = (
        "case", f"{title(OURS)}: projection, s", f"{published.BEST}: total, s", "its network, s", "its projection, s",
        f"times {title(OURS)}",
    )  # fmt: skip
    rows = []
    for case in cases:
        cell, network = case.of(Kind.WALK).get(OURS), published.NETWORK.get(case.published)
        ours = _walk_of(cell).get("projection")
        rows.append(
            (
                _case_title(case),
                outcome(cell) if ours is None else total(ours),
                total(published.RUNTIMES[case.published][published.BEST]),
                "not published" if network is None else f"{network:g}",
                Entry(total(published_rest(case)), "the total" if network is None else ""),
                times(published_ratio(case)),
            )
        )
    return table(heads, rows)


def case_table(case: Case) -> Table:
    """Tabulate the walks of one case, and the published ones under them."""
    heads = (
        "method", "total, s", f"times {title(OURS)}", "network, s", "projection, s", f"times {title(OURS)}", "home",
        "largest violation", "stationarity",
    )  # fmt: skip
    cells = case.of(Kind.WALK)
    own, first = _walk_of(cells.get(OURS)), _first(cells)
    rows = [_row(method, cell, own, method == first) for method, cell in cells.items()]
    network, same = published.NETWORK.get(case.published), own if comparable(case) else {}
    for column, given in published.RUNTIMES.get(case.published, {}).items():
        rest = given - network if given is not None and network is not None else None
        rows.append(
            (
                f"{column}{PUBLISHED}",
                _published_total(case, column),
                _times(given, same.get("total")),
                NOTHING if network is None else f"{network:g}",
                total(rest),
                _times(rest, same.get("projection")),
            )
        )
    return table(heads, rows)


def split(book: Book) -> Section | None:
    """Draw one bar per walk of ours and of its fastest fair rival, and one per cell that tells its phases."""
    blocks = _bars([case for case in book.cases if case.axis is None])
    folded = _bars([case for case in book.cases if case.axis is not None])
    if folded:
        blocks.append(doc.Fold("Cases of the scaling curves", tuple(folded)))
    return Section("Where the time goes", tuple(blocks)) if blocks else None


def _bars(cases: list[Case]) -> list[Block]:
    walks: list[doc.Bar] = []
    phases: list[doc.Bar] = []
    for case in cases:
        cells, found = case.done(Kind.WALK), contest(case, Kind.WALK)
        shown = [OURS] if found is None or found.rival is None else [OURS, found.rival]
        walks += [
            _walk_bar(f"{case.title}: {title(method)}", cells[method].walk)
            for method in shown
            if method in cells and cells[method].walk.get("total")
        ]
        for method, cell in case.done(Kind.PROJECTION).items():
            if (whole := sum(cell.phases.values())) > 0:
                phases.append(doc.Bar(f"{case.title}: {title(method)}", seconds(whole), tuple(cell.phases.items())))
    blocks: list[Block] = []
    if walks:
        words = f"Whole walks of {title(OURS)} and of its fastest fair rival. Every bar has full width: compare shares alone."
        blocks += [doc.Head("Walks"), Words(words), doc.Bars(tuple(walks), quiet=_NETWORK)]
    if phases:
        blocks += [doc.Head("One projection of a batch, by phase"), doc.Bars(tuple(phases))]
    return blocks


def _walk_bar(name: str, walk: dict[str, float]) -> doc.Bar:
    network, projection = walk.get("velocity", 0.0), walk.get("projection", 0.0)
    rest = max(walk["total"] - network - projection, 0.0)
    return doc.Bar(name, f"{short(walk['total'])} s", ((_NETWORK, network), ("projection", projection), ("rest", rest)))


def _case_title(case: Case) -> str:
    """Name a case, with the paper's name for it where it has one."""
    theirs = published.TITLES[case.published] if known(case) else case.title
    return case.title if theirs == case.title else f"{case.title}: {theirs}"


def _row(method: str, cell: Cell, own: dict[str, float], first: bool) -> tuple[str | Entry, ...]:
    verdict, walk = cell.verdict, cell.walk
    if totals_of(cell) is None or verdict is None:
        return title(method), outcome(cell)
    return (
        title(method),
        Entry(total(walk["total"]), first=first),
        _times(walk.get("total"), own.get("total")),
        total(walk.get("velocity")),
        total(walk.get("projection")),
        _times(walk.get("projection"), own.get("projection")),
        confirmed(verdict),
        size(verdict.violation),
        size(verdict.stationarity),
    )


def _walk_of(cell: Cell | None) -> dict[str, float]:
    return cell.walk if cell is not None and cell.state is State.DONE else {}


def _times(theirs: float | None, own: float | None) -> str:
    return times(theirs / own if theirs is not None and own else None)


def _first(cells: dict[str, Cell]) -> str | None:
    found = {method: one for method, cell in cells.items() if (one := totals_of(cell)) is not None}
    return fastest({method: (one.seconds, sum(one.converged)) for method, one in found.items()})


def _total(cell: Cell | None, first: bool) -> Entry:
    found = totals_of(cell)
    if found is None or cell is None or cell.verdict is None:
        return outcome(cell)
    return Entry(total(found.seconds), "" if found.complete else confirmed(cell.verdict), first)


def _published_total(case: Case, column: str) -> str:
    given = published.RUNTIMES.get(case.published, {}).get(column, 0.0)  # 0: not published
    return "DNF" if given is None else total(given) if given else NOTHING
