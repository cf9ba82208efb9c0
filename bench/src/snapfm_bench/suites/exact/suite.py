"""What `snapfm quality exact` runs: every case, every sampler, some step counts; and the record of one of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from snapfm.sampling import ECI, PCFM, Conditional, EndProjection, Projected, Spread
from snapfm.sampling.task import Sampler
from snapfm_bench.suites.exact.case import ExactCase, Scores
from snapfm_bench.suites.exact.curves import ellipse, saddle
from snapfm_bench.suites.exact.gaussian import gaussian_field
from snapfm_bench.suites.exact.heat import heat
from snapfm_bench.suites.exact.mixture import mixture
from snapfm_bench.suites.exact.scores import RATIO
from snapfm_bench.suites.exact.truncated import truncated

_CORRECTIONS = 4  # Metropolis steps per flow step


@dataclass(frozen=True)
class ExactSuite:
    """Settings of a run; records of other settings do not mix with it."""

    count: int = 512
    steps: tuple[int, ...] = (20, 100, 200)
    seed: int = 0
    fields: int = 4096  # from which Conditional estimates how fields vary
    rounds: int = 8  # sets of exact draws of which chance is the mean
    name: str = "exact"


@dataclass(frozen=True)
class ExactCell:
    """One sampler on one case with one number of steps."""

    case: str
    sampler: str
    steps: int
    scores: Scores
    chance: Scores  # scores of as many exact draws
    count: int
    certified: int  # samples whose projection converged
    effective: float  # samples of equal weight that these are worth
    calls: int  # of the velocity, for the whole batch
    seconds: float  # of processor time
    machine: dict[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, ...]:
        """Identify the cell within its suite."""
        return self.case, self.sampler, str(self.steps)

    @property
    def excess(self) -> float:
        """The largest score in units of chance: a perfect sampler has about one."""
        return max(value / self.chance[name] for name, value in self.scores.items() if name != RATIO)


Cells = dict[tuple[str, ...], ExactCell]
Make = Callable[[ExactCase, Spread], Sampler]

# By the name in tables. Those of CURVED differ from the others on nonlinear laws only.
SAMPLERS: dict[str, Make] = {
    "PCFM": lambda case, spread: PCFM(),
    "Projected": lambda case, spread: Projected(),
    "ECI": lambda case, spread: ECI(),
    "End projection": lambda case, spread: EndProjection(),
    "Conditional": lambda case, spread: Conditional(spread, measure=case.measure),
    "Conditional, refined spread": lambda case, spread: Conditional(
        spread.refined(case.velocity), measure=case.measure
    ),
    "Conditional, kept noise": lambda case, spread: Conditional(spread, renewal=0.0, measure=case.measure),
    "Conditional, Metropolis": lambda case, spread: Conditional(spread, measure=case.measure, corrections=_CORRECTIONS),
}
CURVED = ("Conditional, Metropolis",)


@cache
def cases() -> dict[str, ExactCase]:
    """Return the cases by name; they never change."""
    found = (
        gaussian_field(), heat(), mixture(changed=False), mixture(changed=True), truncated(), ellipse("surface"),
        ellipse("residual"), saddle("surface"), saddle("residual"),
    )  # fmt: skip
    return {one.name: one for one in found}


def keys(suite: ExactSuite) -> list[tuple[str, str, str]]:
    """List the cells of a suite: (case, sampler, steps)."""
    return [
        (case.name, sampler, str(steps))
        for case in cases().values()
        for sampler in SAMPLERS
        if case.curved or sampler not in CURVED
        for steps in suite.steps
    ]
