"""`python -m benchmarks.tables_page`: write docs/tables.md and the table of the README from the runs of `snapfm bench`.

A run is the folder of `snapfm bench SUITE --out bench/runs/SUITE`: its records and fields are committed, its inputs are not.
`--check` writes nothing and fails if a page differs from the records.
"""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import median

from benchmarks.page import DOCS, ROOT, main, told_sources
from snapfm_bench import published, record
from snapfm_bench.pages.document import Entry, Table, markdown, table
from snapfm_bench.record import RECORDS
from snapfm_bench.suites.projection.report.loaded import (
    Contest,
    Report,
    ReportCase,
    ReportTotals,
    contest,
    ended,
    read,
    title,
    typical,
)
from snapfm_bench.suites.projection.report.pages import ratio_of, text
from snapfm_bench.suites.projection.report.walks import (
    known,
    other_grid,
    own_rest,
    published_ratio,
    published_rest,
    rest_of,
)
from snapfm_bench.suites.projection.suite import OURS, Kind, ProjectionCell
from snapfm_bench.text import NOTHING, spread, times, two

RUNS, README = ROOT / "bench" / "runs", ROOT / "README.md"
SUITES = ("paper", "scaling-constraints", "scaling-samples", "scaling-grid")
BOTH_CORES = "ipopt-2"  # tuned Ipopt on as many cores as ours has
BEGIN, END = "<!-- table: python -m benchmarks.tables_page -->", "<!-- end of table -->"


def book(runs: Path = RUNS) -> Report:
    """Read all runs of a folder, by default the committed ones."""
    return read([runs / suite for suite in SUITES if _held(runs / suite / RECORDS)])


def _held(file: Path) -> bool:
    """Return whether a run has at least one finished cell; one that failed before is missing on the pages."""
    return file.is_file() and bool(record.read(file, dict, ProjectionCell)[1])


def wanted(runs: Path = RUNS) -> dict[Path, str]:
    """Write the texts of docs/tables.md and README.md from the runs of a folder."""
    found = book(runs)
    return {DOCS / "tables.md": page(found), README: readme(found, README.read_text(encoding="utf-8"))}


def page(found: Report) -> str:
    """Write the report of all runs with a line on where it comes from."""
    head, _, rest = text(found).partition("\n\n")
    note = (
        "Written by `python -m benchmarks.tables_page` from the records in `bench/runs`; not edited by hand. For the same "
        "page with pictures: `snapfm report bench/runs/* --out FOLDER`. To run everything again: `make tables`; to run one "
        "cell with other settings: [how to disagree with us](disagree.md)."
    )
    if found.cells:
        note += (
            f"\n\n{sources(found)} {_noise(found)} casadi's methods were run interpreted, without its jit or generated C, and "
            "Ipopt with MUMPS only: nothing else was tried."
        )
    if any(case.left_out for case in found.cases):
        note += (
            "\n\nOn the finest grids casadi Newton was not run: in earlier records it did not finish within 100 s, building "
            "its model included. What a call of it would take there is not known, so these rows are marked and in no summary."
        )
    missing = [suite for suite in SUITES if suite not in {run.name for run in found.runs}]
    if missing:
        note += f" Missing, because they have no records: {', '.join(missing)}."
    return f"{head}\n\n{note}\n\n{rest}"


def readme(found: Report, now: str) -> str:
    """Put the table of the paper's six problems between its marks, and under it what it rests on."""
    before, _, rest = now.partition(BEGIN)
    _, _, after = rest.partition(END)
    assert after, f"README.md has lost its marks {BEGIN} and {END}"
    under = f"\n{_walks(found)} {_noise(found)} {sources(found)}\n" if found.cells else ""
    return f"{before}{BEGIN}\n{markdown(six(found))}\n{under}{END}{after}"


def sources(found: Report) -> str:
    """Write the commits and days of the runs."""
    cells = {run.name: next(cell for cell in run.cells if cell.machine).machine for run in found.runs}
    return told_sources(cells)


def _noise(found: Report) -> str:
    """Write how far the times of the same inputs differ between two suites; nothing if none are timed twice."""
    timed: dict[tuple[str, tuple[float | None, ...]], list[float]] = {}
    for cell in found.cells:
        for turn in cell.turns if cell.method == OURS else ():
            timed.setdefault((cell.problem, turn.verdict.distances), []).append(1e3 * typical(turn) / cell.samples)
    pairs = ((min(one), max(one)) for one in timed.values())
    least, most = max(pairs, key=lambda pair: pair[1] / pair[0], default=(0.0, 0.0))
    if least == most:
        return ""
    return (
        f"Times are noisy: the same inputs took {two(least)} ms per sample in one suite and {two(most)} ms in another, "
        f"{times(most / least)} as long."
    )


def _walks(found: Report) -> str:
    """Write how long whole walks with the strongest rival take, over all cases that have one."""
    walks = [one for case in found.cases if (one := contest(case, Kind.WALK)) is not None and one.rival is not None]
    totals, rests = ([ratio for one in walks if (ratio := of(one)) is not None] for of in (_whole, _rest))
    if not totals:
        return ""
    return (
        f"In all {len(walks)} cases with a rival's walk, the whole walk of the strongest takes {times(min(totals))} to "
        f"{times(max(totals))} as long as that of snapfm (median {times(median(totals))}); without networks "
        f"{times(min(rests))} to {times(max(rests))}."
    )


def _whole(found: Contest) -> float | None:
    return found.ratio(found.rival)


def _rest(found: Contest) -> float | None:
    ours, theirs = rest_of(found.case, OURS), rest_of(found.case, found.rival)
    return None if ours is None or theirs is None else theirs / ours


def six(found: Report) -> Table:
    """Tabulate the cases with published runtimes: one projection and a whole walk against rivals here, and against the paper."""
    heads = (
        "problem", "samples", "rows", "projection, per sample", "strongest rival", title(BOTH_CORES), "walk of 100 steps",
        "strongest rival's walk", "the same without networks", "fastest published, without networks",
    )  # fmt: skip
    return table(heads, (_row(case) for case in found.cases if case.axis is None and known(case)))


def _row(case: ReportCase) -> tuple[str | Entry, ...]:
    one, whole = contest(case, Kind.PROJECTION), contest(case, Kind.WALK)
    some = next(cell for cell in case.cells if cell.rows)
    return (
        case.title,
        str(some.samples),
        f"{some.rows:,}",
        NOTHING if one is None else _milliseconds(one.ours),
        NOTHING if one is None else _rival(one, one.rival, named=True),
        NOTHING if one is None else _rival(one, BOTH_CORES, named=False),
        NOTHING if whole is None else f"{two(whole.ours.seconds)} s",
        NOTHING if whole is None else _walk_rival(whole),
        NOTHING if whole is None else times(_rest(whole)),
        _against_published(case),
    )


def _walk_rival(found: Contest) -> Entry:
    """Write the strongest rival's walk, or why nobody's is compared."""
    if found.rival is not None:
        return _rival(found, found.rival, named=True)
    cells = found.case.of(Kind.WALK)
    return Entry("none", "; ".join(f"{title(name)}: {ended(cell)}" for name, cell in cells.items() if name != OURS))


def _against_published(case: ReportCase) -> Entry:
    method, _ = published.fastest(case.published)
    ours, theirs, ratio = own_rest(case), published_rest(case), published_ratio(case)
    if ours is None or theirs is None or ratio is None:
        return Entry(NOTHING, "its network time is not published" if theirs is None else "")
    parts = [f"{method}, {two(theirs)} s against {two(ours)} s", other_grid(case)]
    return Entry(times(ratio), "; ".join(part for part in parts if part))


def _milliseconds(totals: ReportTotals) -> Entry:
    unit = 1e3 / totals.samples
    return Entry(f"{two(unit * totals.seconds)} ms", spread(unit * totals.least, unit * totals.most))


def _rival(found: Contest, method: str | None, named: bool) -> Entry:
    """Write a rival's time as a multiple of ours, its name unless the column has it, and the samples it loses."""
    written = ratio_of(found, method)
    if method is None or found.ratio(method) is None:
        return written
    parts = [title(method)] if named else []
    return Entry(written.words, "; ".join([*parts, written.detail] if written.detail else parts))


if __name__ == "__main__":
    sys.exit(main(wanted()))
