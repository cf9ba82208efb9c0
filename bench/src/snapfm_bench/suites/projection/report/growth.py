"""Curves on logarithmic axes: seconds against rows, samples or unknowns with the fitted power, and convergence against time.

Cases that share a suite, what grows, and the first word of their problem are one scaling picture for each kind of cell.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from math import log
from typing import TYPE_CHECKING, Any

from snapfm.errors import require
from snapfm.plot import canvas
from snapfm_bench import published
from snapfm_bench.judge import nearest
from snapfm_bench.pages.document import PUBLISHED, Block, Entry, Head, Picture, Section, Table, Words, table
from snapfm_bench.pages.html import image
from snapfm_bench.suites.projection import suite
from snapfm_bench.suites.projection.report.loaded import NOT_RUN, Report, ReportCase, outcome, slope, title, totals_of
from snapfm_bench.suites.projection.suite import OURS, Kind, ProjectionCell
from snapfm_bench.text import NOTHING, short, size

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

_SCALING = (
    "Seconds of one batch: for walks with the network, for projections the median call averaged over the inputs. *power* is the "
    "slope of a least-squares line through the logarithms of the points where every sample converged. Other points are hollow "
    "in the picture and marked in the table; a run without a figure has no point. Dotted lines are published figures, measured "
    f"on {published.HARDWARE}; the number after a name in the legend is its power."
)
# By the first word of a problem.
_EQUATIONS = {"burgers": "Burgers", "navier": "Navier–Stokes", "reaction": "reaction–diffusion"}
_DPI = 200
_PIXELS = (1040, 800)  # shown at half the size: two fit side by side on a wide page
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_FEW = 100.0  # an axis whose ends are closer than this factor has ticks between its powers of ten
_NEAR = 0.1  # of the axis: ticks that are nearer to the one before have no label

_FLOOR = 1e-17  # where an exact zero lies on the logarithmic axis: below the rounding of float64 fields of order one
_CURVES = (
    "The median over samples after a limited number of iterations; each point is a separate run from the start. Seconds are for "
    f"the whole batch. An exact zero is drawn at {_FLOOR:g}; the dashed line is the tolerance."
)
_MEASURES = {"violation": "Largest violation of a law", "stationarity": "Stationarity: distance from being nearest"}


@dataclass(frozen=True)
class GrowthPoint:
    """One size of one series: seconds, and whether every sample is accepted."""

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
    cases: tuple[ReportCase, ...]

    @property
    def series(self) -> dict[str, list[GrowthPoint]]:
        """Return the points of every method that has any, smallest first."""
        found: dict[str, list[GrowthPoint]] = {}
        for case in self.cases:
            for method, cell in case.of(self.kind).items():
                spent = totals_of(cell)
                if spent is not None:
                    found.setdefault(method, []).append(
                        GrowthPoint(getattr(cell, self.axis), spent.seconds, spent.complete)
                    )
        return {method: sorted(points, key=lambda point: point.size) for method, points in found.items()}

    @property
    def published(self) -> Mapping[str, Mapping[int, float | None]]:
        """Return the published series of the same runs, if there are any."""
        cells = [cell for case in self.cases for cell in case.done(Kind.WALK).values()]
        for known in published.SCALING:
            if self.kind is Kind.WALK and self.axis == known.axis and all(_same_run(known, cell) for cell in cells):
                return known.seconds
        return {}


def scaling(book: Report) -> Section | None:
    """Draw and tabulate every group of cases with an axis."""
    blocks: list[Block] = [Words(_SCALING)]
    found = groups(book)
    looks = {method: place for place, method in enumerate(dict.fromkeys(name for one in found for name in one.series))}
    for group in found:
        family = _EQUATIONS.get(group.family, group.family)
        name = f"{group.kind} of {family} against {group.axis} ({group.suite})"
        blocks.append(Head(name[0].upper() + name[1:]))
        if group.series:
            caption = f"Seconds of a batch against {group.axis}"
            blocks.append(Picture(image(_drawn_group(group, looks), f"{caption}, logarithmic"), caption))
        blocks.append(group_table(group))
    return Section("Scaling", tuple(blocks)) if len(blocks) > 1 else None


def groups(book: Report) -> list[Group]:
    """Sort the cases with an axis into pictures; an axis of one size only is none."""
    found: dict[tuple[str, str, str, Kind], list[ReportCase]] = {}
    for case in book.cases:
        for kind in (Kind.PROJECTION, Kind.WALK):
            if case.axis is not None and case.of(kind) and _size(case, case.axis):
                found.setdefault((case.suite, case.problem.partition("-")[0], case.axis, kind), []).append(case)
    made = [Group(*key, tuple(cases)) for key, cases in found.items()]
    return [group for group in made if len({_size(case, group.axis) for case in group.cases}) > 1]


def fitted(points: list[GrowthPoint]) -> float | None:
    """Fit the power of the points where every sample is accepted."""
    return slope([(point.size, point.seconds) for point in points if point.complete])


def group_table(group: Group) -> Table:
    """Tabulate seconds by size, with the power of every series; published sizes that were not run have a column too."""
    columns: list[tuple[int, ReportCase | None]] = [(_size(case, group.axis), case) for case in group.cases]
    given, here = group.published, {size for size, _ in columns}
    columns += [(size, None) for size in {size for line in given.values() for size in line} - here]
    columns.sort(key=lambda column: column[0])
    sizes = Counter(size for size, _ in columns)
    heads = [f"{size:,}" if sizes[size] == 1 or case is None else f"{size:,} {case.title}" for size, case in columns]
    rows: list[tuple[str | Entry, ...]] = []
    for method in dict.fromkeys(method for case in group.cases for method in case.of(group.kind)):
        entries = [_entry(case, group.kind, method) for _, case in columns]
        rows.append((title(method), *entries, _power(group.series.get(method, []))))
    for column, line in given.items():
        known = {size: "DNF" if seconds is None else short(seconds) for size, seconds in line.items()}
        entries = [Entry(known.get(size, NOTHING)) for size, _ in columns]
        rows.append((f"{column}{PUBLISHED}", *entries, _power(_points(line))))
    return table((f"seconds by {group.axis}", *heads, "power"), rows)


def curves(book: Report) -> Section | None:
    """Draw two pictures per case with convergence curves, and tabulate where they end."""
    blocks: list[Block] = [Words(_CURVES)]
    for case in (case for case in book.cases if case.of(Kind.CURVE)):
        blocks.append(Head(case.title))
        for measure, caption in _MEASURES.items():
            if lines := _lines(case, measure):
                what = f"{case.title}: {measure} against seconds, logarithmic"
                blocks.append(Picture(image(_drawn_curves(case, lines, measure), what), caption))
        blocks.append(curve_table(case))
    return Section("Convergence", tuple(blocks)) if len(blocks) > 1 else None


def curve_table(case: ReportCase) -> Table:
    """Tabulate the last point of every curve, and how soon each method was within the tolerance."""
    heads = ("method", "iterations to tolerance", "seconds to tolerance", "last iteration", "violation", "stationarity")
    rows: list[tuple[str | Entry, ...]] = []
    for method, cell in case.of(Kind.CURVE).items():
        if not cell.curve:
            rows.append((title(method), outcome(cell)))
            continue
        soon = next((stop for stop in cell.curve if _within(stop, cell.tolerance)), None)
        reached = ("not reached", NOTHING) if soon is None else (str(soon.iterations), short(soon.seconds))
        last = cell.curve[-1]
        rows.append((title(method), *reached, str(last.iterations), size(last.violation), size(last.stationarity)))
    return table(heads, rows)


def _same_run(known: published.Scaling, cell: ProjectionCell) -> bool:
    """Return whether a walk has the size of the published ones, except along the axis that grows."""
    return (
        cell.problem in known.problems
        and cell.steps == published.STEPS
        and cell.unknowns == known.unknowns
        and known.samples in (None, cell.samples)
    )


def _entry(case: ReportCase | None, kind: Kind, method: str) -> Entry:
    if case is not None and method in case.left_out:
        return Entry(NOT_RUN)
    cell = None if case is None else case.of(kind).get(method)
    spent = totals_of(cell)
    return (
        outcome(cell) if spent is None else Entry(short(spent.seconds), "" if spent.complete else "not all converged")
    )


def _points(line: Mapping[int, float | None]) -> list[GrowthPoint]:
    return [GrowthPoint(size, seconds) for size, seconds in line.items() if seconds is not None]


def _power(points: list[GrowthPoint]) -> str:
    found = fitted(points)
    return NOTHING if found is None else f"{found:.2f}"


def _size(case: ReportCase, axis: str) -> int:
    """Return the size of a case; zero if no cell knows it."""
    return max(int(getattr(cell, axis)) for cell in case.cells)


def _within(stop: suite.SuitePoint, tolerance: float) -> bool:
    """Return whether the median sample is feasible and, if its stationarity is known, nearest."""
    lawful = stop.violation is not None and stop.violation <= tolerance
    return lawful and (stop.stationarity is None or stop.stationarity <= nearest(tolerance))


def _lines(case: ReportCase, measure: str) -> dict[str, list[tuple[float, float]]]:
    """Return seconds and sizes of every method with a curve."""
    found = {}
    for method, cell in case.done(Kind.CURVE).items():
        points = [
            (stop.seconds, max(value, _FLOOR))
            for stop in cell.curve
            if (value := getattr(stop, measure)) is not None and stop.seconds > 0
        ]
        if points:
            found[method] = points
    return found


def _drawn_group(group: Group, looks: Mapping[str, int]) -> bytes:
    """Draw a group; a method has the same look in all pictures."""
    series, given = group.series, group.published
    with canvas.style():
        figure, axes = _plot()
        for method, points in series.items():
            style, width = _look(looks[method]), 2.4 if method == OURS else 1.3
            across, up = [point.size for point in points], [point.seconds for point in points]
            axes.plot(across, up, lw=width, ms=5, label=_legend(title(method), points), markevery=[], **style)
            for point in points:
                fill = style["color"] if point.complete else "none"
                axes.plot([point.size], [point.seconds], ls="", ms=5.5, mfc=fill, mec=style["color"], **style)
        for place, (column, line) in enumerate(given.items()):
            known = _points(line)
            across, up = [point.size for point in known], [point.seconds for point in known]
            label = _legend(f"{column}, paper", known)
            axes.plot(
                across, up, ls=":", lw=1.2, color=canvas.FAINT, marker=_look(place)["marker"], ms=3.5, label=label
            )
        axes.set(xlabel=group.axis, ylabel="seconds of a batch")
        here = {point.size for points in series.values() for point in points}
        sizes = _spaced(sorted(here | {size for line in given.values() for size in line}))
        axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
        axes.set_xticks([], minor=True)
        return _finished(figure, axes.yaxis)


def _drawn_curves(case: ReportCase, lines: dict[str, list[tuple[float, float]]], measure: str) -> bytes:
    with canvas.style():
        figure, axes = _plot()
        places = {method: place for place, method in enumerate(case.done(Kind.CURVE))}
        for method, points in lines.items():
            across, up = zip(*points)
            axes.plot(across, up, lw=2.4 if method == OURS else 1.3, ms=4, label=title(method), **_look(places[method]))
        tolerance = max(cell.tolerance for cell in case.done(Kind.CURVE).values())
        if tolerance > 0:
            axes.axhline(tolerance, color=canvas.FAINT, lw=1.0, ls=(0, (4, 3)))
        axes.set(xlabel="seconds of a batch", ylabel=measure)
        return _finished(figure, axes.xaxis, axes.yaxis)


def _plot() -> tuple[Figure, Axes]:
    """Make a figure with one logarithmic plot."""
    figure = canvas.figure(_PIXELS, _DPI)
    figure.set_layout_engine("constrained")
    axes = figure.add_subplot(xscale="log", yscale="log")
    axes.grid(True, which="major", color=canvas.FAINT, lw=0.5, alpha=0.35)
    return figure, axes


def _finished(figure: Figure, *logarithmic: Axis) -> bytes:
    """Add the legend above a plot and readable ticks to its logarithmic axes; return PNG bytes."""
    ticker = require("matplotlib.ticker", "pictures", "", of="snapfm-bench")
    for axis in logarithmic:
        low, high = axis.get_view_interval()
        if high < 10.0 * low:  # at least a decade: less shows the noise of one clock
            middle = (low * high) ** 0.5
            low, high = middle / 10.0**0.5, middle * 10.0**0.5
            axis.set_view_interval(low, high, ignore=True)
        axis.set_major_locator(ticker.LogLocator(subs=(1.0, 2.0, 5.0) if high < _FEW * low else (1.0,)))
        axis.set_minor_formatter(ticker.NullFormatter())
    figure.legend(loc="outside upper left", ncols=2, fontsize=7.5, handlelength=1.8, labelspacing=0.3)
    return canvas.png(figure)


def _look(place: int) -> dict[str, Any]:
    """Return color and marker of the line at a place; they repeat only after as many lines as there are methods."""
    return {"color": canvas.COLORS[place % len(canvas.COLORS)], "marker": _MARKERS[place % len(_MARKERS)]}


def _legend(name: str, points: list[GrowthPoint]) -> str:
    power = fitted(points)
    return name if power is None else f"{name}: {power:.2f}"


def _spaced(sizes: list[int]) -> list[int]:
    """Drop ticks whose labels would touch."""
    reach = log(sizes[-1] / sizes[0]) or 1.0
    kept: list[int] = []
    for one in sizes:
        if not kept or log(one / kept[-1]) > _NEAR * reach:
            kept.append(one)
    return kept
