"""Comparisons of methods from records: typical times, the fastest fair rival, whose answers are nearest.

Numbers only. Only the judge's verdict on a method counts, never its own claims.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from math import log
from statistics import fmean, linear_regression, median

from snapfm.evidence.judge import Verdict
from snapfm.evidence.projection.report.book import Case
from snapfm.evidence.projection.suite import OURS, OWN, Cell, Kind, Turn
from snapfm.evidence.record import State

# Distances that differ by less than this share are equal. The share is of the tolerance where a distance is below it: an input
# that is already feasible is within rounding of its projection.
NEARER = 1e-6


@dataclass(frozen=True)
class Totals:
    """What one cell took, and how many samples converged before the judge on each of its inputs."""

    seconds: float  # of one batch: a walk's total, or the mean over inputs of the median call
    converged: tuple[int, ...]  # samples, by input
    samples: int
    lawful: tuple[int, ...]  # samples within the tolerance, converged or not
    inputs: tuple[tuple[str, ...], str | None] = ((), None)  # labels, and the digest of the arrays behind them

    @property
    def complete(self) -> bool:
        """Whether every sample of every input converged."""
        return all(count == self.samples for count in self.converged)


@dataclass(frozen=True)
class Contest:
    """Ours on one case against the fastest rival with at least as many converged samples on every input."""

    case: Case
    kind: Kind
    ours: Totals
    rival: str | None  # None: no rival converges on as many
    seconds: float | None

    @property
    def ratio(self) -> float | None:
        """Return the rival's seconds as a multiple of ours: above one, ours is faster."""
        return None if self.seconds is None else self.seconds / self.ours.seconds


@dataclass(frozen=True)
class Nearness:
    """One rival's distances against ours, sample by sample, all inputs of a case together."""

    method: str
    compared: int  # samples for which both have a feasible answer
    nearer: int  # the rival's is nearer by more than NEARER
    farther: int
    only_rival: int  # feasible answers where ours has none
    only_ours: int
    gain: float  # largest relative gain of the rival over ours; negative where it is never as near
    beaten: int  # samples it would be nearer on if both kept their laws exactly; as nearer where the judge did not say

    @property
    def equal(self) -> int:
        """Count the samples where both are equally near."""
        return self.compared - self.nearer - self.farther


def typical(turn: Turn) -> float:
    """Return the median seconds of a call."""
    return median(turn.seconds)


def totals_of(cell: Cell | None) -> Totals | None:
    """Summarize a cell; None for one without figures."""
    if cell is None or cell.state is not State.DONE:
        return None
    if cell.kind is Kind.WALK and cell.verdict is not None and "total" in cell.walk:
        seconds, found, labels = cell.walk["total"], [cell.verdict], ()
    elif cell.kind is Kind.PROJECTION and cell.turns:
        seconds, found = fmean(typical(turn) for turn in cell.turns), [turn.verdict for turn in cell.turns]
        labels = tuple(turn.input for turn in cell.turns)  # type: ignore[assignment]
    else:
        return None
    converged, lawful = tuple(one.converged for one in found), tuple(one.lawful for one in found)
    return Totals(seconds, converged, found[0].samples, lawful, (labels, cell.inputs))


def contest(case: Case, kind: Kind) -> Contest | None:
    """Find the fastest fair rival of ours; None where ours has no figure or no converged sample."""
    ours, rivals = _same_inputs(case, kind)
    if ours is None or not any(ours.converged):
        return None
    fair = {
        method: other.seconds
        for method, other in rivals.items()
        if all(theirs >= mine for theirs, mine in zip(other.converged, ours.converged))
    }
    rival = min(fair, key=lambda method: fair[method], default=None)
    return Contest(case, kind, ours, rival, None if rival is None else fair[rival])


def faster(case: Case, kind: Kind) -> list[str]:
    """List the rivals that took less time than ours on the same inputs, fair or not."""
    ours, rivals = _same_inputs(case, kind)
    return [] if ours is None else [method for method, other in rivals.items() if other.seconds < ours.seconds]


def more_lawful(case: Case, kind: Kind) -> list[str]:
    """List the rivals with more feasible answers than ours on any of the same inputs, converged or not."""
    ours, rivals = _same_inputs(case, kind)
    own = () if ours is None else ours.lawful
    return [name for name, other in rivals.items() if any(theirs > mine for theirs, mine in zip(other.lawful, own))]


def _same_inputs(case: Case, kind: Kind) -> tuple[Totals | None, dict[str, Totals]]:
    """Summarize ours, and the rivals that had the same inputs."""
    ours = totals_of(case.of(kind).get(OURS))
    others = {method: totals_of(cell) for method, cell in case.of(kind).items() if method not in OWN}
    same = {
        name: one for name, one in others.items() if ours is not None and one is not None and one.inputs == ours.inputs
    }
    return ours, same


def nearness(ours: Cell, other: Cell) -> Nearness:
    """Compare distances on the inputs that both projected; infeasible answers have none and win nothing."""
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
            unit = max(own, ours.tolerance)
            ahead = exact = (own - theirs) / unit
            if own_exact is not None and their_exact is not None:
                exact = (own_exact - their_exact) / unit
            compared += 1
            nearer += ahead > NEARER
            farther += ahead < -NEARER
            beaten += min(ahead, exact) > NEARER
            gain = max(gain, ahead)
    return Nearness(other.method, compared, nearer, farther, only_rival, only_ours, gain, beaten)


def _distances(verdict: Verdict) -> zip_longest[tuple[float | None, float | None]]:
    """Pair each sample's distance with its value if the laws were kept exactly."""
    return zip_longest(verdict.distances, verdict.exact_distances)


def slope(points: Sequence[tuple[float, float]]) -> float | None:
    """Fit the power of y ~ x^p by least squares of logarithms; None for points of fewer than two sizes."""
    across, up = [log(x) for x, _ in points], [log(y) for _, y in points]
    return linear_regression(across, up).slope if len(set(across)) > 1 else None


def fastest(totals: Mapping[str, tuple[float, int]]) -> str | None:
    """Return the fastest of those with the most converged samples; `totals` are (seconds, converged samples)."""
    most = max((converged for _, converged in totals.values()), default=0)
    fair = {method: seconds for method, (seconds, converged) in totals.items() if converged == most > 0}
    return min(fair, key=lambda method: fair[method], default=None)
