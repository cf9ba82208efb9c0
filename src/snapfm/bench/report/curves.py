"""Convergence curves: violation and stationarity against time, as a method is allowed more and more iterations."""

from __future__ import annotations

from snapfm.bench.judge import NEAREST
from snapfm.bench.record import Cell, Kind
from snapfm.bench.record import Point as Stop
from snapfm.bench.report.book import OURS, Book, Case
from snapfm.bench.report.document import NOTHING, Block, Entry, Head, Picture, Section, Table, Words
from snapfm.bench.report.figures import outcome, short, size
from snapfm.bench.report.svg import finish, inline, look, plot
from snapfm.bench.report.titles import title
from snapfm.demo import canvas

_FLOOR = 1e-17  # where an exact zero lies on the logarithmic axis: below the rounding of float64 fields of order one
_ABOUT = (
    "The median over samples after a limited number of iterations, each point a run of its own from the start; seconds are of "
    f"the whole batch. An exact zero is drawn at {_FLOOR:g}; the dashed line is the tolerance."
)
_MEASURES = {"violation": "Largest violation of a law", "stationarity": "Stationarity: distance from being nearest"}


def curves(book: Book) -> Section | None:
    """Draw two pictures per case with curves, and tabulate where they end."""
    blocks: list[Block] = [Words(_ABOUT)]
    for place, case in enumerate(case for case in book.cases if case.of(Kind.CURVE)):
        blocks.append(Head(case.title))
        for measure, caption in _MEASURES.items():
            lines = _lines(case, measure)
            if lines:
                blocks.append(Picture(_drawn(case, lines, measure, f"curve{place}{measure}"), caption))
        blocks.append(table(case))
    return Section("Convergence", tuple(blocks)) if len(blocks) > 1 else None


def table(case: Case) -> Table:
    """Tabulate the last point of every curve, and how soon each method was within the tolerance."""
    heads = ("method", "iterations to tolerance", "seconds to tolerance", "last iteration", "violation", "stationarity")
    return Table(heads, tuple(_row(method, cell) for method, cell in case.of(Kind.CURVE).items()))


def _row(method: str, cell: Cell) -> tuple[Entry, ...]:
    if not cell.curve:
        return Entry(title(method)), outcome(cell), *[Entry(NOTHING)] * 4
    soon = next((stop for stop in cell.curve if _within(stop, cell.tolerance)), None)
    last = cell.curve[-1]
    return (
        Entry(title(method)),
        Entry("not reached" if soon is None else str(soon.iterations)),
        Entry(NOTHING if soon is None else short(soon.seconds)),
        Entry(str(last.iterations)),
        Entry(size(last.violation)),
        Entry(size(last.stationarity)),
    )


def _within(stop: Stop, tolerance: float) -> bool:
    """Say whether the median sample is lawful and, where the method can show it, nearest."""
    lawful = stop.violation is not None and stop.violation <= tolerance
    return lawful and (stop.stationarity is None or stop.stationarity <= max(tolerance, NEAREST))


def _lines(case: Case, measure: str) -> dict[str, list[tuple[float, float]]]:
    """Give seconds and sizes of every method with a curve."""
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


def _drawn(case: Case, lines: dict[str, list[tuple[float, float]]], measure: str, name: str) -> str:
    with canvas.style():
        figure, axes = plot(len(lines))
        places = {method: place for place, method in enumerate(case.done(Kind.CURVE))}
        for method, points in lines.items():
            across, up = zip(*points)
            axes.plot(across, up, lw=2.4 if method == OURS else 1.3, ms=4, label=title(method), **look(places[method]))
        tolerance = max(cell.tolerance for cell in case.done(Kind.CURVE).values())
        if tolerance > 0:
            axes.axhline(tolerance, color=canvas.FAINT, lw=1.0, ls=(0, (4, 3)))
        axes.set(xlabel="seconds of a batch", ylabel=measure)
        finish(figure)
        return inline(figure, name, f"{case.title}: {measure} against seconds, logarithmic")
