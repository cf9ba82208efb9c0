"""Scaling: seconds of a batch against rows, samples or unknowns, on logarithmic axes, with the power fitted to them.

Cases that share a suite, what grows, and the first word of their problem are one picture for each kind of cell.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from math import log

from snapfm.bench import published
from snapfm.bench.record import Cell, Kind
from snapfm.bench.report.book import OURS, Book, Case
from snapfm.bench.report.compare import outing, slope
from snapfm.bench.report.document import NOTHING, PUBLISHED, Block, Entry, Head, Picture, Section, Table, Words
from snapfm.bench.report.figures import outcome, short
from snapfm.bench.report.svg import finish, inline, look, plot
from snapfm.bench.report.titles import title
from snapfm.demo import canvas

_ABOUT = (
    "Seconds of one batch, of walks with the network, of projections the median call averaged over the inputs. *power* is the "
    "slope of a straight line through the logarithms, by least squares, of the points where every sample came home; the others "
    "are hollow in the picture and marked in the table, and a run without a figure is no point. Dotted lines are published "
    f"ones, of {published.HARDWARE}; the number after a name in the legend is its power."
)
_NOT_ALL = "not all home"
_EQUATIONS = {
    "burgers": "Burgers",
    "navier": "Navier–Stokes",
    "reaction": "reaction–diffusion",
}  # by first word of problem
_NEAREST = 0.1  # of the axis: ticks that are nearer to the one before have no label


@dataclass(frozen=True)
class Point:
    """One size of one series: seconds, and whether every sample came home."""

    size: int
    seconds: float
    complete: bool = True


@dataclass(frozen=True)
class Group:
    """Cases along one axis, and the cells of one kind on them."""

    suite: str
    family: str
    axis: str
    kind: Kind
    cases: tuple[Case, ...]

    @property
    def series(self) -> dict[str, list[Point]]:
        """Give the points of every method that has any, smallest first."""
        found: dict[str, list[Point]] = {}
        for case in self.cases:
            for method, cell in case.of(self.kind).items():
                spent = outing(cell)
                if spent is not None:
                    found.setdefault(method, []).append(Point(getattr(cell, self.axis), spent.seconds, spent.complete))
        return {method: sorted(points, key=lambda point: point.size) for method, points in found.items()}

    @property
    def published(self) -> Mapping[str, Mapping[int, float | None]]:
        """Give the published series of the same runs, if there are any."""
        cells = [cell for case in self.cases for cell in case.done(Kind.WALK).values()]
        for known in published.SCALING:
            if self.kind is Kind.WALK and self.axis == known.axis and all(_same_run(known, cell) for cell in cells):
                return known.seconds
        return {}


def _same_run(known: published.Scaling, cell: Cell) -> bool:
    """Say whether a walk is of the size of the published ones, but for what grows."""
    return (
        cell.problem in known.problems
        and cell.steps == published.STEPS
        and cell.unknowns == known.unknowns
        and known.samples in (None, cell.samples)
    )


def scaling(book: Book) -> Section | None:
    """Draw and tabulate every group of cases with an axis."""
    blocks: list[Block] = [Words(_ABOUT)]
    found = groups(book)
    looks = {method: place for place, method in enumerate(dict.fromkeys(name for one in found for name in one.series))}
    for place, group in enumerate(found):
        family = _EQUATIONS.get(group.family, group.family)
        name = f"{group.kind} of {family} against {group.axis} ({group.suite})"
        blocks.append(Head(name[0].upper() + name[1:]))
        if group.series:
            blocks.append(Picture(_drawn(group, f"scaling{place}", looks), f"Seconds of a batch against {group.axis}"))
        blocks.append(table(group))
    return Section("Scaling", tuple(blocks)) if len(blocks) > 1 else None


def groups(book: Book) -> list[Group]:
    """Sort the cases with an axis into pictures; an axis of one size only is none."""
    found: dict[tuple[str, str, str, Kind], list[Case]] = {}
    for case in book.cases:
        for kind in (Kind.PROJECTION, Kind.WALK):
            if case.axis is not None and case.of(kind) and _size(case, case.axis):
                found.setdefault((case.suite, case.problem.partition("-")[0], case.axis, kind), []).append(case)
    made = [Group(*key, tuple(cases)) for key, cases in found.items()]
    return [group for group in made if len({_size(case, group.axis) for case in group.cases}) > 1]


def fitted(points: list[Point]) -> float | None:
    """Fit the power of the points where every sample came home."""
    return slope([(point.size, point.seconds) for point in points if point.complete])


def table(group: Group) -> Table:
    """Tabulate seconds by size, with the power of every series; published sizes that were not run have a column too."""
    columns: list[tuple[int, Case | None]] = [(_size(case, group.axis), case) for case in group.cases]
    given, here = group.published, {size for size, _ in columns}
    columns += [(size, None) for size in {size for line in given.values() for size in line} - here]
    columns.sort(key=lambda column: column[0])
    sizes = Counter(size for size, _ in columns)
    heads = [f"{size:,}" if sizes[size] == 1 or case is None else f"{size:,} {case.title}" for size, case in columns]
    rows = []
    for method in dict.fromkeys(method for case in group.cases for method in case.of(group.kind)):
        entries = [_entry(None if case is None else case.of(group.kind).get(method)) for _, case in columns]
        rows.append((Entry(title(method)), *entries, Entry(_power(group.series.get(method, [])))))
    for column, line in given.items():
        entries = [_published(line, size) for size, _ in columns]
        points = [Point(size, seconds) for size, seconds in line.items() if seconds is not None]
        rows.append((Entry(f"{column}{PUBLISHED}"), *entries, Entry(_power(points))))
    return Table((f"seconds by {group.axis}", *heads, "power"), tuple(rows))


def _entry(cell: Cell | None) -> Entry:
    spent = outing(cell)
    return outcome(cell) if spent is None else Entry(short(spent.seconds), "" if spent.complete else _NOT_ALL)


def _published(line: Mapping[int, float | None], size: int) -> Entry:
    if size not in line:
        return Entry(NOTHING)
    seconds = line[size]
    return Entry("DNF" if seconds is None else short(seconds))


def _power(points: list[Point]) -> str:
    found = fitted(points)
    return NOTHING if found is None else f"{found:.2f}"


def _size(case: Case, axis: str) -> int:
    """Give the size of a case; zero where no cell knows it, as none got so far."""
    return max(int(getattr(cell, axis)) for cell in case.cells)


def _drawn(group: Group, name: str, looks: Mapping[str, int]) -> str:
    """Draw a group; a method has the same look in all pictures."""
    series, given = group.series, group.published
    with canvas.style():
        figure, axes = plot(len(series) + len(given))
        for method, points in series.items():
            style = look(looks[method])
            across, up = [point.size for point in points], [point.seconds for point in points]
            axes.plot(
                across,
                up,
                lw=2.4 if method == OURS else 1.3,
                ms=5,
                label=_legend(title(method), points),
                markevery=[],
                **style,
            )
            for point in points:
                fill = style["color"] if point.complete else "none"
                axes.plot([point.size], [point.seconds], ls="", ms=5.5, mfc=fill, mec=style["color"], **style)
        for place, (column, line) in enumerate(given.items()):
            known = [Point(size, seconds) for size, seconds in line.items() if seconds is not None]
            across, up = [point.size for point in known], [point.seconds for point in known]
            label = _legend(f"{column}, paper", known)
            axes.plot(across, up, ls=":", lw=1.2, color=canvas.FAINT, marker=look(place)["marker"], ms=3.5, label=label)
        axes.set(xlabel=group.axis, ylabel="seconds of a batch")
        lines = (*series.values(), *([Point(size, 1.0) for size in line] for line in given.values()))
        sizes = _spaced(sorted({point.size for points in lines for point in points}))
        axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
        axes.set_xticks([], minor=True)
        finish(figure, across=False)
        return inline(figure, name, f"Seconds of a batch against {group.axis}, logarithmic")


def _legend(name: str, points: list[Point]) -> str:
    power = fitted(points)
    return name if power is None else f"{name}: {power:.2f}"


def _spaced(sizes: list[int]) -> list[int]:
    """Leave out ticks whose labels would touch."""
    reach = log(sizes[-1] / sizes[0]) or 1.0
    kept: list[int] = []
    for size in sizes:
        if not kept or log(size / kept[-1]) > _NEAREST * reach:
            kept.append(size)
    return kept
