"""What records say when methods are held against each other: typical times, the fastest fair rival, who came nearest.

Numbers only; how they are shown is the business of the sections. Only the judge's account of a method counts, never its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from math import log
from statistics import fmean, median

from snapfm.bench.record import Cell, Kind, State, Turn, Verdict
from snapfm.bench.report.book import OURS, OWN, Case

# Distances that differ by less than this share are equal; of the tolerance, where a distance is below it: an input that is lawful
# already lies within rounding of its projection.
NEARER = 1e-6


@dataclass(frozen=True)
class Outing:
    """What one cell took, and how many samples it brought home on each of its inputs."""

    seconds: float  # of one batch: a walk's total, or the mean over inputs of the median call
    home: tuple[int, ...]
    samples: int
    lawful: tuple[int, ...]  # samples within the tolerance, home or not
    inputs: tuple[str, ...] = ()
    digest: str | None = None  # of the arrays behind the inputs

    @property
    def complete(self) -> bool:
        """Say whether every sample of every input came home."""
        return all(count == self.samples for count in self.home)


@dataclass(frozen=True)
class Contest:
    """Ours on one case against the fastest rival that brings at least as many samples home on every input."""

    case: Case
    kind: Kind
    ours: Outing
    rival: str | None  # None: nobody else brings as many home
    seconds: float | None

    @property
    def ratio(self) -> float | None:
        """Give the rival's seconds as a multiple of ours: above one, ours is faster."""
        return None if self.seconds is None else self.seconds / self.ours.seconds


@dataclass(frozen=True)
class Nearness:
    """One rival's distances against ours, sample by sample, all inputs of a case together."""

    method: str
    compared: int  # samples for which both have a lawful answer
    nearer: int  # the rival's is nearer by more than NEARER
    farther: int
    only_rival: int  # lawful answers where ours has none
    only_ours: int
    gain: float  # largest relative gain of the rival over ours; negative where it never comes as near
    beaten: int  # samples it would be nearer on if both kept their laws exactly; as nearer where the judge did not say

    @property
    def equal(self) -> int:
        """Count the samples where both are as near as the other."""
        return self.compared - self.nearer - self.farther


def typical(turn: Turn) -> float:
    """Give the median seconds of a call."""
    return median(turn.seconds)


def outing(cell: Cell | None) -> Outing | None:
    """Sum a cell up; None for one without figures."""
    if cell is None or cell.state is not State.DONE:
        return None
    if cell.kind is Kind.WALK and cell.verdict is not None and "total" in cell.walk:
        found = cell.verdict
        return Outing(cell.walk["total"], (found.converged,), found.samples, (found.lawful,), digest=cell.inputs)
    if cell.kind is Kind.PROJECTION and cell.turns:
        return Outing(
            fmean(typical(turn) for turn in cell.turns),
            tuple(turn.verdict.converged for turn in cell.turns),
            cell.turns[0].verdict.samples,
            tuple(turn.verdict.lawful for turn in cell.turns),
            tuple(turn.input for turn in cell.turns),
            cell.inputs,
        )
    return None


def contest(case: Case, kind: Kind) -> Contest | None:
    """Find the fastest fair rival of ours; None where ours has no figure or brings no sample home."""
    cells = case.of(kind)
    ours = outing(cells.get(OURS))
    if ours is None or not any(ours.home):
        return None
    fair: dict[str, float] = {}
    for method, cell in cells.items():
        other = outing(cell)
        if method not in OWN and other is not None and fair_rival(ours, other):
            fair[method] = other.seconds
    rival = min(fair, key=lambda method: fair[method], default=None)
    return Contest(case, kind, ours, rival, None if rival is None else fair[rival])


def fair_rival(ours: Outing, other: Outing) -> bool:
    """Say whether another saw the same inputs and brought at least as many samples home on each."""
    return _same(ours, other) and all(theirs >= mine for theirs, mine in zip(other.home, ours.home))


def _same(ours: Outing, other: Outing) -> bool:
    return (other.inputs, other.digest) == (ours.inputs, ours.digest)


def faster(case: Case, kind: Kind) -> list[str]:
    """Name the rivals that took less time than ours on the same inputs, fair or not."""
    return _ahead(case, kind, lambda ours, other: other.seconds < ours.seconds)


def more_lawful(case: Case, kind: Kind) -> list[str]:
    """Name the rivals with more lawful answers than ours on any of the same inputs, home or not."""
    return _ahead(case, kind, lambda ours, other: any(theirs > mine for theirs, mine in zip(other.lawful, ours.lawful)))


def _ahead(case: Case, kind: Kind, ahead: Callable[[Outing, Outing], bool]) -> list[str]:
    cells = case.of(kind)
    ours = outing(cells.get(OURS))
    others = {method: outing(cell) for method, cell in cells.items() if method not in OWN}
    return [
        method
        for method, other in others.items()
        if ours is not None and other is not None and _same(ours, other) and ahead(ours, other)
    ]


def nearness(ours: Cell, other: Cell) -> Nearness:
    """Compare distances on the inputs that both projected; unlawful answers have none and win nothing."""
    mine = {turn.input: turn.verdict for turn in ours.turns}
    compared = nearer = farther = only_rival = only_ours = beaten = 0
    gain = float("-inf")
    for turn in other.turns:
        if turn.input not in mine:
            continue
        for (own, own_exact), (theirs, their_exact) in zip(_distances(mine[turn.input]), _distances(turn.verdict)):
            if own is None or theirs is None:
                only_rival += own is None and theirs is not None
                only_ours += theirs is None and own is not None
                continue
            ahead = (own - theirs) / max(own, ours.tolerance)
            exact = (
                ahead
                if own_exact is None or their_exact is None
                else (own_exact - their_exact) / max(own, ours.tolerance)
            )
            compared += 1
            nearer += ahead > NEARER
            farther += ahead < -NEARER
            beaten += min(ahead, exact) > NEARER
            gain = max(gain, ahead)
    return Nearness(other.method, compared, nearer, farther, only_rival, only_ours, gain, beaten)


def _distances(verdict: Verdict) -> Iterator[tuple[float | None, float | None]]:
    """Go through samples: distance, and what it would be with the laws kept exactly."""
    return zip_longest(verdict.distances, verdict.exact_distances)


def slope(points: Sequence[tuple[float, float]]) -> float | None:
    """Fit the power of y ~ x^p by least squares of logarithms; None for points of fewer than two sizes."""
    across, up = [log(x) for x, _ in points], [log(y) for _, y in points]
    if len(set(across)) < 2:
        return None
    middle_x, middle_y = fmean(across), fmean(up)
    spread = sum((x - middle_x) ** 2 for x in across)
    return sum((x - middle_x) * (y - middle_y) for x, y in zip(across, up)) / spread


def fastest(outings: Mapping[str, tuple[float, int]]) -> str | None:
    """Name the fastest of those that bring the most samples home; `outings` are (seconds, samples home)."""
    most = max((home for _, home in outings.values()), default=0)
    fair = {method: seconds for method, (seconds, home) in outings.items() if home == most and home > 0}
    return min(fair, key=lambda method: fair[method], default=None)
