"""First section: what ran, on what, and the headline ratios, all computed from the records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

from snapfm.bench import published
from snapfm.bench.record import Cell, Kind, State
from snapfm.bench.report.book import OURS, Book, Case, Run
from snapfm.bench.report.compare import Contest, contest, faster, more_lawful, outing
from snapfm.bench.report.document import NOT_YET, NOTHING, Block, Entry, Section, Table, Words
from snapfm.bench.report.figures import short, times
from snapfm.bench.report.runtime import published_ratio
from snapfm.bench.report.titles import title

_KINDS = {Kind.PROJECTION: "projections", Kind.WALK: "walks"}
_GIGABYTE = 1e9
_ABOUT = (
    "A sample is home when the method calls it converged and the float64 judge agrees: lawful to the tolerance, and nearest. A "
    "rival is fair when it brings at least as many samples home as {ours} on every input. Seconds are of a whole batch: of a "
    "walk its total, network included; of a projection the median of its hot calls, averaged over the inputs."
)


def summary(book: Book) -> Section:
    """Write the headline and the table behind it."""
    contests = [found for kind in _KINDS for case in book.cases if (found := contest(case, kind)) is not None]
    blocks: list[Block] = [Words(words, lead=True) for words in headline(book, contests)]
    if contests:
        blocks += [Words(_ABOUT.format(ours=title(OURS))), _table(contests)]
    return Section("Summary", tuple(blocks))


def headline(book: Book, contests: list[Contest]) -> list[str]:
    """Say in whole sentences how ours came out against the fastest fair rival, and how many cells have a figure."""
    told = []
    for kind, words in _KINDS.items():
        of_kind = [one for one in contests if one.kind is kind]
        ratios = sorted(one.ratio for one in of_kind if one.ratio is not None)
        alone = sum(one.ratio is None for one in of_kind)
        if ratios:
            first = sum(ratio > 1.0 for ratio in ratios)
            told.append(
                f"{words.capitalize()}: {title(OURS)} is faster than the fastest fair rival in {first} of {len(ratios)} cases; "
                f"the rival's time is {_spread(ratios)} that of {title(OURS)}."
            )
        if alone:
            told.append(
                f"{words.capitalize()} where no rival brings as many samples home: {alone} of {len(of_kind)} cases."
            )
    if contests:
        told.append(
            " ".join(
                _nobody(contests, who, does)
                for who, does in ((faster, "takes less time"), (more_lawful, "gives more lawful answers on any input"))
            )
        )
    ratios = sorted(ratio for case in book.cases if (ratio := published_ratio(case)) is not None)
    if ratios:
        told.append(
            f"Projection within whole walks: {published.BEST}, as published and less its network, took {_spread(ratios)} the "
            f"time of {title(OURS)} in {len(ratios)} cases, on other hardware ({published.HARDWARE})."
        )
    brought = [found for cell in book.cells if cell.method == OURS and (found := outing(cell)) is not None]
    if brought:
        came = sum(sum(one.home) for one in brought)
        told.append(
            f"{title(OURS)} brings {came:,} of {sum(one.samples * len(one.home) for one in brought):,} samples home."
        )
    told.append(coverage(book))
    return told


def _nobody(contests: list[Contest], who: Callable[[Case, Kind], list[str]], does: str) -> str:
    """Say of how many contests it is true that no rival, fair or not, does something, and who does in the others."""
    told = [(one, found) for one in contests if (found := who(one.case, one.kind))]
    words = f"In {len(contests) - len(told)} of {len(contests)} comparisons no rival, fair or not, {does}"
    others = [f"{one.case.title}, {one.kind} ({', '.join(map(title, found))})" for one, found in told]
    return f"{words}; somebody does in {'; '.join(others)}." if others else f"{words}."


def coverage(book: Book) -> str:
    """Count the cells with a figure, and name what became of the others."""
    states = Counter(cell.state for cell in book.cells)
    words = f"{states[State.DONE]} of {len(book.cells)} cells have a figure"
    others = [f"{states[state]} {state}" for state in State if state is not State.DONE and states[state]]
    if book.pending:
        others.append(f"{len(book.pending)} more {NOT_YET}")
    return f"{words}; {', '.join(others)}." if others else f"{words}."


def made(book: Book) -> list[tuple[str, str]]:
    """Say how the records came about: suites, settings, machine and versions, each set of them once."""
    told = [("suite" if len(book.runs) == 1 else f"suite {run.name}", _suite(run)) for run in book.runs]
    machines: dict[str, Mapping[str, Any]] = {repr(cell.machine): cell.machine for cell in book.cells if cell.machine}
    for place, machine in enumerate(machines.values(), start=1):
        which = "machine" if len(machines) == 1 else f"machine {place}"
        told += [(which if name == "" else f"{which}, {name}", words) for name, words in _machine(machine) if words]
    loads = [cell.load for cell in book.cells if cell.load is not None]
    if loads:
        told.append(("load", f"before a cell {short(median(loads))} runnable threads, at most {short(max(loads))}"))
    return told


def _spread(ratios: list[float]) -> str:
    """Write the least, the largest and the median of sorted ratios."""
    if len(ratios) == 1:
        return times(ratios[0])
    return f"{times(ratios[0])} to {times(ratios[-1])} (median {times(median(ratios))})"


def _suite(run: Run) -> str:
    counts = Counter(cell.state for cell in run.cells)
    parts = [f"{run.name}: {run.suite['title']}" if run.suite.get("title") else run.name]
    parts += [f"{name} {_some(cell_values)}" for name, cell_values in _settings(run.cells).items()]
    parts += [f"{name} {run.suite[name]}" for name in ("repeats", "budget") if name in run.suite]
    return "; ".join([*parts, f"{counts[State.DONE]} of {len(run.cells)} cells with a figure"])


def _settings(cells: tuple[Cell, ...]) -> dict[str, set[str]]:
    """Collect what cells were run with; a crashed one may not know."""
    return {
        "threads": {str(cell.threads) for cell in cells if cell.threads},
        "tolerance": {f"{cell.tolerance:g}" for cell in cells if cell.tolerance},
        "seed": {str(cell.seed) for cell in cells},
    }


def _some(values: set[str]) -> str:
    return ", ".join(sorted(values)) or NOTHING


def _machine(machine: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Write a machine's plain entries in one line, and each of its groups in one of its own."""
    plain = ", ".join(_plain(name, value) for name, value in machine.items() if not isinstance(value, Mapping))
    groups = [
        (name, ", ".join(f"{key} {value}" for key, value in group.items()))
        for name, group in machine.items()
        if isinstance(group, Mapping)
    ]
    return [("", plain), *groups]


def _plain(name: str, value: object) -> str:
    what, _, unit = name.rpartition("_")
    if unit == "bytes" and isinstance(value, int):
        return f"{what} {short(value / _GIGABYTE)} GB"
    return f"{name} {value}"


def _table(contests: list[Contest]) -> Table:
    heads = ("case", "what", f"{title(OURS)}, s", "home", "fastest fair rival", "its seconds", f"times {title(OURS)}")
    rows = []
    for one in contests:
        ours = one.ours
        rows.append(
            (
                Entry(one.case.title),
                Entry(str(one.kind)),
                Entry(short(ours.seconds)),
                Entry(f"{sum(ours.home)} of {ours.samples * len(ours.home)}"),
                Entry("none brings as many home" if one.rival is None else title(one.rival)),
                Entry(NOTHING if one.seconds is None else short(one.seconds)),
                Entry(times(one.ratio), first=one.ratio is not None and one.ratio > 1.0),
            )
        )
    return Table(heads, tuple(rows))
