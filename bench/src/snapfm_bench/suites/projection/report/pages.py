"""The report: one HTML page and one Markdown page from the records of one or several runs of `snapfm bench`.

book (folders to cases, comparisons) → one function per section, which returns blocks of the page kit → two files. This file has
the summary, the methods, the cells without a figure, and the pages. Reads records, kept fields and published figures; runs
nothing, and writes no time of day.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from snapfm_bench import published
from snapfm_bench.flow.storage import write_file
from snapfm_bench.pages import html
from snapfm_bench.pages.document import NOT_YET, Block, Entry, Section, Table, Words, columns, markdown_page, table
from snapfm_bench.peers.catalog import METHODS
from snapfm_bench.record import CellState
from snapfm_bench.suites.projection.report import loaded as books
from snapfm_bench.suites.projection.report.answers import errors, nearest, projection, thresholds
from snapfm_bench.suites.projection.report.growth import curves, scaling
from snapfm_bench.suites.projection.report.loaded import Contest, Report, ReportTotals, contest, outcome, title
from snapfm_bench.suites.projection.report.pictures import fields
from snapfm_bench.suites.projection.report.walks import published_ratio, runtime, split
from snapfm_bench.suites.projection.suite import OURS, TUNED, Kind
from snapfm_bench.text import NOTHING, short, spread, times, two

PAGE, TEXT = "index.html", "report.md"
_NOTE = """\
Every measured figure is taken from <code>records.jsonl</code> of the folders the page was made from, every published one
from <code>snapfm_bench.published</code>. Measure with <code>snapfm bench SUITE --out DIR</code>, write the page with
<code>snapfm report DIR --out FOLDER</code>."""
_KINDS = {Kind.PROJECTION: "projections", Kind.WALK: "walks"}
_GIGABYTE = 1e9
_ABOUT = (
    "A sample is accepted if the float64 judge finds it lawful to the tolerance, and stationary to first order, whatever its "
    "method reports. The strongest rival is the fastest of those with at least half of their samples accepted; the samples it"
    " loses are counted beside it. Next to it are the fastest rival with at least as many samples accepted as {ours} on every"
    " input, and tuned Ipopt. Seconds are for a whole batch, medians of repeats with their spread: for a walk the total, "
    "network included; for a projection the hot calls, averaged over the inputs before τ = 1. The input at τ = 1, where most "
    "methods have nothing left to do, has a row of its own. Of a walk only the last projection is judged. Spreads are those "
    "of repeats in one process."
)
_MEANINGS = {
    CellState.DNF: "used up its time budget",
    "cut off": "its first call ended, and the budget was used up before an answer was judged",
    books.NOT_BEGUN: "a walk that was not started, because its projections alone would exceed the budget",
    CellState.FAILED: "raised, or its process died",
    CellState.ABSENT: "the package behind it is not installed",
    CellState.REFUSED: "cannot handle these laws",
}
_APART = ("commit", "dirty", "date", "versions")  # of a machine's description: told on lines of their own
_LEFT_OUT = "the suite leaves it out of this case"
_PENDING = "the suite lists it, but it has no record yet"


def summary(book: Report) -> Section:
    """Write the headline and the table behind it."""
    contests = [found for kind in _KINDS for case in book.cases if (found := contest(case, kind)) is not None]
    last = [found for case in book.cases if (found := contest(case, Kind.PROJECTION, last=True)) is not None]
    blocks: list[Block] = [Words(words, lead=True) for words in headline(book, contests, last)]
    if contests or last:
        judged = " ".join(map(thresholds, sorted({cell.tolerance for cell in book.cells if cell.tolerance})))
        blocks += [Words(f"{_ABOUT.format(ours=title(OURS))} {judged}"), _table([*contests, *last])]
    return Section("Summary", tuple(blocks))


def headline(book: Report, found: list[Contest], last: Sequence[Contest] = ()) -> list[str]:
    """Write in sentences how ours compares with the strongest rival, and how many cells have a figure.

    A point of a scaling curve from which a method of its suite was left out is not counted: that method may be the strongest.
    """
    sentences, ours = [], title(OURS)
    contests = [one for one in found if not one.case.left_out]
    for kind, words in _KINDS.items():
        of_kind = [one for one in contests if one.kind is kind]
        ratios = sorted(ratio for one in of_kind if (ratio := one.ratio(one.rival)) is not None)
        alone = len(of_kind) - len(ratios)
        if ratios:
            first = sum(ratio > 1.0 for ratio in ratios)
            losing = sum(one.rivals[one.rival].lost > 0 for one in of_kind if one.rival is not None)
            sentences.append(
                f"{words.capitalize()}: {ours} is faster than the strongest rival in {first} of {len(ratios)} cases; "
                f"the rival's time is {_spread(ratios)} that of {ours}, and it loses samples in {losing} of them."
            )
        if alone:
            which = "; ".join(f"{one.case.title} ({_rivals(one)})" for one in of_kind if one.rival is None)
            sentences.append(
                f"{words.capitalize()} without a rival to compare with: {alone} of {len(of_kind)} cases: {which}."
            )
    unfair = [one for one in found if one.case.left_out]
    if unfair:
        which = "; ".join(f"{one.case.title} ({_not_run(one)})" for one in unfair)
        sentences.append(f"Not counted, because a method that may be the strongest is missing there: {which}.")
    if contests:
        quick = _nobody([*contests, *last], books.faster, "takes less time")
        sentences.append(f"{quick} {_nobody(contests, books.more_lawful, 'gives more lawful answers on any input')}")
    ratios = sorted(ratio for case in book.cases if (ratio := published_ratio(case)) is not None)
    if ratios:
        sentences.append(
            f"Whole walks minus network time: the fastest published method of each case took {_spread(ratios)} the time of "
            f"{ours} in {len(ratios)} cases, on other hardware ({published.HARDWARE})."
        )
    judged = [one for cell in book.cells if cell.method == OURS for one in cell.verdicts]
    if judged:
        accepted, asked, false = (
            sum(getattr(one, name) for one in judged) for name in ("accepted", "samples", "false_claims")
        )
        sentences.append(f"{ours}: {accepted:,} of {asked:,} samples accepted, {false or 'no'} false claims.")
    return [*sentences, coverage(book)]


def coverage(book: Report) -> str:
    """Count the cells with a figure, and how the others ended."""
    ends = Counter(books.ended(cell).partition(",")[0] for cell in book.cells)
    words = f"{ends[CellState.DONE]} of {len(book.cells)} cells have a figure"
    others = [f"{ends[end]} {end}" for end in _MEANINGS if ends[end]]
    if book.pending:
        others.append(f"{len(book.pending)} more {NOT_YET}")
    return f"{words}; {', '.join(others)}." if others else f"{words}."


def made(book: Report) -> list[tuple[str, str]]:
    """List how the records were made: suites, settings, machine and versions, each set of them once."""
    lines = [("suite" if len(book.runs) == 1 else f"suite {run.name}", _suite(run)) for run in book.runs]
    lines += [("sources", words) for words in [_sources([cell.machine for cell in book.cells])] if words]
    plain = [
        {name: one for name, one in cell.machine.items() if name not in _APART} for cell in book.cells if cell.machine
    ]
    machines = {repr(one): one for one in plain}
    for place, machine in enumerate(machines.values(), start=1):
        which = "machine" if len(machines) == 1 else f"machine {place}"
        lines.append((which, ", ".join(_plain(name, value) for name, value in machine.items())))
    lines.append(("versions", _versions([cell.machine.get("versions", {}) for cell in book.cells])))
    loads = [cell.load for cell in book.cells if cell.load is not None]
    if loads:
        lines.append(("load", f"{short(median(loads))} runnable threads before a cell, at most {short(max(loads))}"))
    return [(name, words) for name, words in lines if words]


def methods(book: Report) -> Section:
    """Tabulate the methods, ours first: what each is, how tolerances map to it, what it is given and what not."""
    table = columns(
        dict.fromkeys(cell.method for cell in book.cells),
        ("method", title),
        ("in suites and records", str),
        ("corresponds to the published", lambda name: _known(name, "published")),
        ("what it is, and how tolerances map to it", lambda name: _known(name, "about")),
        ("what it got", lambda name: _known(name, "got")),
        ("what it did not get", lambda name: _known(name, "lacks")),
    )
    return Section("Methods", (table,))


def missing(book: Report) -> Section:
    """List every cell without a figure, with its reason."""
    rows = [
        (
            case.title, title(cell.method), str(cell.kind), books.ended(cell), short(cell.seconds) if cell.seconds else NOTHING,
            cell.why or "no reason was recorded",
        )
        for case in book.cases
        for cell in case.cells
        if cell.state is not CellState.DONE
    ]  # fmt: skip
    rows += [
        (case.title, title(method), str(Kind.PROJECTION), books.NOT_RUN, NOTHING, _LEFT_OUT)
        for case in book.cases
        for method in case.left_out
    ]
    rows += [(case, title(method), kind, NOT_YET, NOTHING, _PENDING) for case, method, kind in book.pending]
    if not rows:
        return Section("Cells without a figure", (Words("None: every cell has one."),))
    meanings = "; ".join(f"{state}: {words}" for state, words in _MEANINGS.items())
    heads = ("case", "method", "what", "state", "spent, s", "why")
    return Section("Cells without a figure", (Words(f"{meanings}."), table(heads, rows)))


def _nobody(contests: list[Contest], who: Callable[..., list[str]], does: str) -> str:
    """Write in how many contests no rival, whatever it loses, does something, and who does in the others."""
    exceptions = [(one, found) for one in contests if (found := who(one))]
    words = f"In {len(contests) - len(exceptions)} of {len(contests)} comparisons no rival, whatever it loses, {does}"
    others = [f"{one.case.title}, {_what(one)} ({', '.join(map(title, found))})" for one, found in exceptions]
    return f"{words}; exceptions: {'; '.join(others)}." if others else f"{words}."


def _spread(ratios: list[float]) -> str:
    """Write the least, the largest and the median of sorted ratios."""
    if len(ratios) == 1:
        return times(ratios[0])
    return f"{times(ratios[0])} to {times(ratios[-1])} (median {times(median(ratios))})"


def _suite(run: books.Run) -> str:
    parts = [f"{run.name}: {run.suite['title']}" if run.suite.get("title") else run.name]
    settings = {  # a crashed cell may not know
        "threads": {str(cell.threads) for cell in run.cells if cell.threads},
        "tolerance": {f"{cell.tolerance:g}" for cell in run.cells if cell.tolerance},
        "seed": {str(cell.seed) for cell in run.cells},
    }
    parts += [f"{name} {', '.join(sorted(values)) or NOTHING}" for name, values in settings.items()]
    parts += [f"{name} {run.suite[name]}" for name in ("repeats", "budget") if name in run.suite]
    done = sum(cell.state is CellState.DONE for cell in run.cells)
    return "; ".join([*parts, f"{done} of {len(run.cells)} cells with a figure"])


def _sources(machines: list[Mapping[str, Any]]) -> str:
    """Write the commits and the days of all cells; older records have none."""
    known = [one for one in machines if one.get("commit")]
    commits = dict.fromkeys(f"commit {one['commit']}{', with changes' if one['dirty'] else ''}" for one in known)
    days = sorted({one["date"] for one in known})
    words = [*commits, *(["records without a commit"] if len(known) < sum(map(bool, machines)) else [])]
    return "; ".join([*words, " to ".join(dict.fromkeys([days[0], days[-1]])) if days else ""]).removesuffix("; ")


def _versions(held: list[Mapping[str, str]]) -> str:
    """Write the versions of all cells; a package that had several has all of them."""
    found: dict[str, dict[str, None]] = {}
    for versions in held:
        for name, version in versions.items():
            found.setdefault(name, {})[version] = None
    return ", ".join(f"{name} {' and '.join(several)}" for name, several in found.items())


def _plain(name: str, value: object) -> str:
    what, _, unit = name.rpartition("_")
    if unit == "bytes" and isinstance(value, int):
        return f"{what} {short(value / _GIGABYTE)} GB"
    return f"{name} {value}"


def _known(method: str, what: str) -> str:
    """Return what the catalog says about a method."""
    return getattr(METHODS.get(method), what, None) or NOTHING


def _table(contests: list[Contest]) -> Table:
    return columns(
        contests,
        ("case", lambda one: one.case.title),
        ("what", _what),
        (f"{title(OURS)}, s", lambda one: _seconds(one.ours)),
        ("accepted", lambda one: f"{sum(one.ours.accepted)} of {one.ours.samples * len(one.ours.accepted)}"),
        ("strongest rival", _strongest),
        ("its seconds", lambda one: NOTHING if one.rival is None else _seconds(one.rivals[one.rival])),
        (f"times {title(OURS)}", lambda one: ratio_of(one, one.rival)),
        ("fastest with as many accepted", lambda one: NOTHING if one.complete is None else title(one.complete)),
        (f"times {title(OURS)}", lambda one: ratio_of(one, one.complete)),
        (f"{title(TUNED)}, times {title(OURS)}", lambda one: ratio_of(one, TUNED)),
    )


def _what(found: Contest) -> str:
    return f"{found.kind} at τ = 1" if found.last else str(found.kind)


def _strongest(found: Contest) -> Entry:
    """Name the strongest rival, and methods that were left out and may be stronger."""
    if found.rival is None:
        return Entry("none has half accepted" if found.rivals else "none has a figure")
    return Entry(title(found.rival), _not_run(found) if found.case.left_out else "")


def _not_run(found: Contest) -> str:
    return f"{', '.join(map(title, found.case.left_out))} not run"


def _rivals(found: Contest) -> str:
    """Write how the rivals of a case ended."""
    cells = [cell for method, cell in found.case.of(found.kind).items() if method != OURS]
    lost = {method: f"{one.lost} samples lost" for method, one in found.rivals.items()}
    return "; ".join(f"{title(cell.method)}: {lost.get(cell.method) or books.ended(cell)}" for cell in cells) or "none"


def ratio_of(found: Contest, method: str | None) -> Entry:
    """Write a rival's time as a multiple of ours, with the samples it loses; how its cell ended if it has no figure."""
    ratio = found.ratio(method)
    if method is None or ratio is None:
        return Entry(NOTHING) if method is None else outcome(found.case.of(found.kind).get(method))
    lost, asked = found.rivals[method].lost, found.ours.samples * len(found.ours.accepted)
    return Entry(times(ratio), f"loses {lost} of {asked}" if lost else "", first=ratio > 1.0)


def _seconds(totals: ReportTotals) -> Entry:
    return Entry(two(totals.seconds), spread(totals.least, totals.most))


def write(folders: Sequence[Path], out: Path) -> Report:
    """Read all folders, then write both pages; return what was read."""
    book = books.read(folders)
    found, title = sections(book), heading(book)
    page = html.page(
        title, "benchmark", title, html.contents(found), found, made(book), _NOTE, ("figures.css", "report.css")
    )
    write_file(out / PAGE, page.encode())
    write_file(out / TEXT, text(book).encode())
    return book


def text(book: Report) -> str:
    """Write the Markdown page."""
    return markdown_page(heading(book), sections(book), made(book))


def sections(book: Report) -> list[Section]:
    """Make every section that has something to show, in the order of the pages."""
    order = (summary, runtime, projection, errors, nearest, scaling, split, curves, fields, methods, missing)
    return [found for make in order if (found := make(book)) is not None]


def heading(book: Report) -> str:
    """Return the title of the page: that of its suites."""
    return "Benchmark: " + ", ".join(dict.fromkeys(str(run.suite.get("title") or run.name) for run in book.runs))
