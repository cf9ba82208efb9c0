"""The runtime tables in the shape of the paper: whole walks by method, the published figures beside them."""

from __future__ import annotations

from snapfm.bench import published
from snapfm.bench.record import Cell, Kind, State
from snapfm.bench.report.book import OURS, Book, Case
from snapfm.bench.report.compare import fastest, outing
from snapfm.bench.report.document import NOTHING, PUBLISHED, Block, Entry, Head, Section, Table, Words, titled
from snapfm.bench.report.figures import home, outcome, size, times, total
from snapfm.bench.report.titles import title

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
        blocks += [Head("Projection against the published one"), Words(words), against_published(against)]
    for case in cases:
        note = (Words(_OTHER_SIZE, note=True),) if known(case) and not comparable(case) else ()
        blocks += titled(case_title(case), (case_table(case), *note), folded=case.axis is not None)
    return Section("Runtime of whole walks", tuple(blocks))


def known(case: Case) -> str | None:
    """Give the key of the published runtimes of a case, if there are any."""
    return case.published if case.published in published.RUNTIMES else None


def comparable(case: Case) -> bool:
    """Say whether the walks here have the samples and steps of the published ones."""
    key = known(case)
    walks = case.done(Kind.WALK).values()
    return key is not None and all(
        (cell.samples, cell.steps) == (published.SAMPLES[key], published.STEPS) for cell in walks
    )


def case_title(case: Case) -> str:
    """Name a case, with the paper's name for it where it has one."""
    key = known(case)
    theirs = case.title if key is None else published.TITLES[key]
    return case.title if theirs == case.title else f"{case.title}: {theirs}"


def overview(cases: list[Case]) -> Table:
    """Tabulate total seconds: cases downwards, methods across, then the published columns."""
    methods = list(dict.fromkeys(method for case in cases for method in case.of(Kind.WALK)))
    columns = list(
        dict.fromkeys(column for case in cases if (key := known(case)) for column in published.RUNTIMES[key])
    )
    rows = []
    for case in cases:
        cells = case.of(Kind.WALK)
        first = _first(cells)
        here = [_total(cells.get(method), method == first) for method in methods]
        key = known(case)
        there = [_published_total(key, column) for column in columns]
        rows.append((Entry(case.title), *here, *there))
    heads = ("case", *(title(method) for method in methods), *(f"{column}{PUBLISHED}" for column in columns))
    return Table(heads, tuple(rows))


def against_published(cases: list[Case]) -> Table:
    """Tabulate ours' projection seconds against the published total less its network."""
    heads = (
        "case", f"{title(OURS)}: projection, s", f"{published.BEST}: total, s", "its network, s", "its projection, s",
        f"times {title(OURS)}",
    )  # fmt: skip
    rows = []
    for case in cases:
        key = known(case)
        assert key is not None  # the caller's choice of cases
        given, network, rest = published.RUNTIMES[key][published.BEST], published.NETWORK.get(key), _rest(key)
        cell = case.of(Kind.WALK).get(OURS)
        ours = _projection(cell)
        rows.append(
            (
                Entry(case_title(case)),
                outcome(cell) if ours is None else Entry(total(ours)),
                Entry(total(given)),
                Entry("not published" if network is None else f"{network:g}"),
                Entry(total(rest), "the total" if network is None else ""),
                Entry(times(published_ratio(case))),
            )
        )
    return Table(heads, tuple(rows))


def published_ratio(case: Case) -> float | None:
    """Give the published projection's seconds as a multiple of ours; None where the two are not of the same runs."""
    key = known(case)
    ours = _projection(case.of(Kind.WALK).get(OURS))
    if key is None or not ours or not comparable(case):
        return None
    rest = _rest(key)
    return None if rest is None else rest / ours


def case_table(case: Case) -> Table:
    """Tabulate the walks of one case, and the published ones under them."""
    cells = case.of(Kind.WALK)
    ours = cells.get(OURS)
    own = ours.walk if ours is not None and ours.state is State.DONE else {}
    heads = (
        "method", "total, s", f"times {title(OURS)}", "network, s", "projection, s", f"times {title(OURS)}", "home",
        "largest violation", "stationarity",
    )  # fmt: skip
    first = _first(cells)
    rows = [_row(method, cell, own, method == first) for method, cell in cells.items()]
    key = known(case)
    if key is not None:
        rows += [_published_row(key, column, own if comparable(case) else {}) for column in published.RUNTIMES[key]]
    return Table(heads, tuple(rows))


def _row(method: str, cell: Cell, own: dict[str, float], first: bool) -> tuple[Entry, ...]:
    verdict = cell.verdict
    if outing(cell) is None or verdict is None:
        return Entry(title(method)), outcome(cell), *[Entry(NOTHING)] * 7
    walk = cell.walk
    return (
        Entry(title(method)),
        Entry(total(walk["total"]), first=first),
        Entry(_times(walk.get("total"), own.get("total"))),
        Entry(total(walk.get("velocity"))),
        Entry(total(walk.get("projection"))),
        Entry(_times(walk.get("projection"), own.get("projection"))),
        Entry(home(verdict)),
        Entry(size(verdict.violation)),
        Entry(size(verdict.stationarity)),
    )


def _published_row(key: str, column: str, own: dict[str, float]) -> tuple[Entry, ...]:
    given, network = published.RUNTIMES[key][column], published.NETWORK.get(key)
    rest = given - network if given is not None and network is not None else None
    return (
        Entry(f"{column}{PUBLISHED}"),
        _published_total(key, column),
        Entry(_times(given, own.get("total"))),
        Entry(NOTHING if network is None else f"{network:g}"),
        Entry(total(rest)),
        Entry(_times(rest, own.get("projection"))),
        *[Entry(NOTHING)] * 3,
    )


def _projection(cell: Cell | None) -> float | None:
    return cell.walk.get("projection") if cell is not None and cell.state is State.DONE else None


def _rest(key: str) -> float | None:
    """Give what the published best spent outside its network, or all of it where the network's share was not published."""
    given = published.RUNTIMES[key][published.BEST]
    return None if given is None else given - published.NETWORK.get(key, 0.0)


def _times(theirs: float | None, own: float | None) -> str:
    return times(theirs / own if theirs is not None and own else None)


def _first(cells: dict[str, Cell]) -> str | None:
    found = {method: one for method, cell in cells.items() if (one := outing(cell)) is not None}
    return fastest({method: (one.seconds, sum(one.home)) for method, one in found.items()})


def _total(cell: Cell | None, first: bool) -> Entry:
    found = outing(cell)
    if found is None or cell is None or cell.verdict is None:
        return outcome(cell)
    return Entry(total(found.seconds), "" if found.complete else home(cell.verdict), first)


def _published_total(key: str | None, column: str) -> Entry:
    if key is None or column not in published.RUNTIMES[key]:
        return Entry(NOTHING)
    given = published.RUNTIMES[key][column]
    return Entry("DNF") if given is None else Entry(total(given))
