"""Whole walks: runtime tables in the form of the paper with the published figures, and where the time goes."""

from __future__ import annotations

from math import prod
from statistics import median

from snapfm.text import seconds
from snapfm_bench import published
from snapfm_bench.pages import document as doc
from snapfm_bench.pages.document import PUBLISHED, Block, Entry, Section, Table, Words, columns, table
from snapfm_bench.record import CellState
from snapfm_bench.suites.projection.report.answers import confirmed
from snapfm_bench.suites.projection.report.loaded import Report, ReportCase, contest, fastest, outcome, title, totals_of
from snapfm_bench.suites.projection.suite import OURS, Kind, ProjectionCell
from snapfm_bench.text import NOTHING, short, size, spread, times, total

_ABOUT = (
    "Seconds of whole runs of constrained sampling, network included, for one batch. *Published* figures are the paper's, "
    f"measured on {published.HARDWARE}, in single precision, with networks that are much larger than those here. Hardware and "
    "networks differ, so their ratios to what was measured here compare two installations, not two methods on one machine; most "
    "of a total here is the time of a small network. DNF is a run that exceeded its budget (at the end of this page); "
    f"published runs had {published.BUDGET_HOURS} h. The verdict is on the last projection of a walk; those before it are not "
    "judged. A total is the median of repeats, of two their mean."
)
_PROJECTION = (
    "The time of a walk apart from its network: total minus network, for {ours} and for the fastest published method of the "
    "case. The published network times are from the logs of the paper's release, the larger figure of a range. Where there is "
    "none, nothing is compared: totals would compare networks."
)
_OTHER_SIZE = "Samples or steps differ from the published runs, so no ratios are given."
_NETWORK = "network"


def runtime(book: Report) -> Section | None:
    """Write the overview, our walks against the published ones without networks, and one table per case."""
    cases = [case for case in book.cases if case.of(Kind.WALK)]
    if not cases:
        return None
    blocks: list[Block] = [Words(_ABOUT)]
    single = [case for case in cases if case.axis is None]  # the others are points of a scaling curve
    if single:
        blocks.append(overview(single))
    against = [case for case in cases if known(case)]
    if against:
        words = _PROJECTION.format(ours=title(OURS))
        blocks += [
            doc.Head("Walks without their networks, against the published ones"),
            Words(words),
            against_published(against),
        ]
    for case in cases:
        note = (Words(_OTHER_SIZE, note=True),) if known(case) and not comparable(case) else ()
        blocks += doc.titled(_case_title(case), (case_table(case), *note), folded=case.axis is not None)
    return Section("Runtime of whole walks", tuple(blocks))


def known(case: ReportCase) -> bool:
    """Return whether runtimes of a case were published."""
    return case.published in published.RUNTIMES


def comparable(case: ReportCase) -> bool:
    """Return whether the walks here have the samples and steps of the published ones."""
    theirs = (published.SAMPLES.get(case.published), published.STEPS)
    return known(case) and all((cell.samples, cell.steps) == theirs for cell in case.done(Kind.WALK).values())


def published_rest(case: ReportCase) -> float | None:
    """Return the seconds of the fastest published method minus its network; None if the network's were not published."""
    network = published.NETWORK.get(case.published)
    return None if network is None else published.fastest(case.published)[1] - network


def own_rest(case: ReportCase) -> float | None:
    """Return the seconds of our walk minus its network."""
    return rest_of(case, OURS)


def rest_of(case: ReportCase, method: str | None) -> float | None:
    """Return the seconds of a method's walk minus its network; None without a figure."""
    return _parts(case.of(Kind.WALK).get(method or "")).get("rest")


def other_grid(case: ReportCase) -> str:
    """Write the published grid where a walk here has another number of unknowns; nothing where it has the same."""
    grid = published.GRIDS.get(case.published, ())
    here = next((cell.unknowns for cell in case.cells if cell.unknowns), prod(grid))
    return "" if here == prod(grid) else f"{here:,} unknowns here, {' × '.join(map(str, grid))} published"


def published_ratio(case: ReportCase) -> float | None:
    """Return the published seconds as a multiple of ours, both without their networks; None if the runs differ in size."""
    ours = own_rest(case)
    rest = published_rest(case) if comparable(case) else None
    return None if rest is None or not ours else rest / ours


def overview(cases: list[ReportCase]) -> Table:
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


def against_published(cases: list[ReportCase]) -> Table:
    """Tabulate our walk against the published one, each without its network."""

    def ours(case: ReportCase) -> str | Entry:
        cell = case.of(Kind.WALK).get(OURS)
        return total(_walk_of(cell)["total"]) if _walk_of(cell) else outcome(cell)

    def network(case: ReportCase) -> str:
        return f"{published.NETWORK[case.published]:g}" if case.published in published.NETWORK else "not published"

    return columns(
        cases,
        ("case", lambda case: Entry(_case_title(case), other_grid(case))),
        (f"{title(OURS)}: total, s", ours),
        ("its network, s", lambda case: total(_walk_of(case.of(Kind.WALK).get(OURS)).get("velocity"))),
        ("the rest, s", lambda case: total(own_rest(case))),
        ("fastest published", lambda case: published.fastest(case.published)[0]),
        ("total, s", lambda case: total(published.fastest(case.published)[1])),
        ("its network, s", network),
        ("the rest, s", lambda case: total(published_rest(case))),
        (f"times {title(OURS)}", lambda case: times(published_ratio(case))),
    )


def case_table(case: ReportCase) -> Table:
    """Tabulate the walks of one case, and the published ones under them."""
    heads = (
        "method", "total, s", f"times {title(OURS)}", "network, s", "the rest, s", f"times {title(OURS)}", "accepted",
        "largest violation", "stationarity",
    )  # fmt: skip
    cells = case.of(Kind.WALK)
    own, first = _parts(cells.get(OURS)), _first(cells)
    rows: list[tuple[str | Entry, ...]] = []
    for method, cell in cells.items():
        verdict, walk = cell.verdict, _parts(cell)
        if totals_of(cell) is None or verdict is None:
            rows.append((title(method), outcome(cell)))
            continue
        ratios = [_times(walk.get(part), own.get(part)) for part in ("total", "rest")]
        whole = Entry(total(walk["total"]), spread(min(cell.totals), max(cell.totals)), method == first)
        spent = whole, ratios[0], total(walk.get("velocity"))
        judged = confirmed(verdict), size(verdict.violation), size(verdict.stationarity)
        rows.append((title(method), *spent, total(walk.get("rest")), ratios[1], *judged))
    network, same = published.NETWORK.get(case.published), own if comparable(case) else {}
    for column, given in published.RUNTIMES.get(case.published, {}).items():
        rest = given - network if given is not None and network is not None else None
        shown = (
            _published_total(case, column),
            NOTHING,  # totals would compare networks
            NOTHING if network is None else f"{network:g}",
        )
        rows.append((f"{column}{PUBLISHED}", *shown, total(rest), _times(rest, same.get("rest"))))
    return table(heads, rows)


def split(book: Report) -> Section | None:
    """Draw one bar per walk of ours and of its strongest rival, and one per cell with phases."""
    blocks = _bars([case for case in book.cases if case.axis is None])
    folded = _bars([case for case in book.cases if case.axis is not None])
    if folded:
        blocks.append(doc.Fold("Cases of the scaling curves", tuple(folded)))
    return Section("Where the time goes", tuple(blocks)) if blocks else None


def _bars(cases: list[ReportCase]) -> list[Block]:
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
        words = f"Whole walks of {title(OURS)} and of its strongest rival. All bars have the same width: compare shares only."
        blocks += [doc.Head("Walks"), Words(words), doc.Bars(tuple(walks), quiet=_NETWORK)]
    if phases:
        blocks += [doc.Head("One projection of a batch, by phase"), doc.Bars(tuple(phases))]
    return blocks


def _walk_bar(name: str, walk: dict[str, float]) -> doc.Bar:
    network, projection = walk.get("velocity", 0.0), walk.get("projection", 0.0)
    rest = max(walk["total"] - network - projection, 0.0)
    return doc.Bar(name, f"{short(walk['total'])} s", ((_NETWORK, network), ("projection", projection), ("rest", rest)))


def _case_title(case: ReportCase) -> str:
    """Return the title of a case, with the paper's name if it has another."""
    theirs = published.TITLES[case.published] if known(case) else case.title
    return case.title if theirs == case.title else f"{case.title}: {theirs}"


def _walk_of(cell: ProjectionCell | None) -> dict[str, float]:
    """Return the seconds of the median walk; a record of two has the parts of the shorter, which are scaled to their mean."""
    if cell is None or cell.state is not CellState.DONE:
        return {}
    return {part: spent * median(cell.totals) / cell.walk["total"] for part, spent in cell.walk.items()}


def _parts(cell: ProjectionCell | None) -> dict[str, float]:
    """Return the seconds of a walk with `rest`, its total less its network: what can be said of published walks too."""
    spent = _walk_of(cell)
    return {**spent, "rest": spent["total"] - spent["velocity"]} if spent else {}


def _times(theirs: float | None, own: float | None) -> str:
    return times(theirs / own if theirs is not None and own else None)


def _first(cells: dict[str, ProjectionCell]) -> str | None:
    found = {method: one for method, cell in cells.items() if (one := totals_of(cell)) is not None}
    return fastest({method: (one.seconds, sum(one.accepted)) for method, one in found.items()})


def _total(cell: ProjectionCell | None, first: bool) -> Entry:
    found = totals_of(cell)
    if found is None or cell is None or cell.verdict is None:
        return outcome(cell)
    parts = [spread(found.least, found.most), "" if found.complete else confirmed(cell.verdict)]
    return Entry(total(found.seconds), "; ".join(part for part in parts if part), first)


def _published_total(case: ReportCase, column: str) -> str:
    given = published.RUNTIMES.get(case.published, {}).get(column, 0.0)  # 0: not published
    return "DNF" if given is None else total(given) if given else NOTHING
