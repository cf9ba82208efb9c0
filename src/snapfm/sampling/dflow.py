"""D-Flow: choose the noise so that the flow ends lawful, by descent through the whole flow (math.md, eq. dflow).

H. Ben-Hamu, O. Puny, I. Gat, B. Karrer, U. Singer, Y. Lipman, "D-Flow: Differentiating through Flows for Controlled
Generation", ICML 2024 (arXiv:2402.14017), in the form of the ECI paper (Cheng et al., ICLR 2025) and of PCFM.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from snapfm.errors import ParamsError
from snapfm.sampling.descent import descend
from snapfm.sampling.penalty import row_weights
from snapfm.sampling.settings import is_count, is_positive
from snapfm.sampling.task import Task


@dataclass(frozen=True)
class DFlow:
    """Minimise the squared residual at the end of the plain flow over its noise, by L-BFGS, then follow the flow.

    Published: L-BFGS with line search through a midpoint solver of step 1/6 (images) or 100 evaluations (molecules, 5 × 5
    iterations), from a blend of noise and observation, with an optional prior on the noise. The form for PDEs in the code
    of ECI and PCFM: torch's L-BFGS, 20 iterations at rate 0.1 without line search, Euler steps, plain noise, no prior.
    Adapted: 20 iterations from plain noise through the task's Euler steps, with the paper's line search, each sample for
    itself (theirs is one problem for the whole batch); `physics` is the weight of rows other than given values against
    those, as in Guidance. A sample ends early when it breaks no law by more than `tolerance`, the projector's unless given.
    Memory is one state per step and the network's for one step: each step is run again when its gradient is wanted.
    """

    iterations: int = 20
    physics: float = 0.01
    tolerance: float | None = None

    def __post_init__(self) -> None:
        if not (is_count(self.iterations) and is_positive(self.physics)):
            raise ParamsError(
                f"DFlow expects iterations >= 1 and physics > 0; got {self.iterations!r} and {self.physics!r}. For no descent "
                "use Flow()."
            )
        if self.tolerance is not None and not is_positive(self.tolerance):
            raise ParamsError(
                f"DFlow(tolerance) expects a positive number; got {self.tolerance!r}. None is the projector's own."
            )

    def run(self, task: Task) -> tuple[Tensor, None]:
        """Descend on the noise, then walk the task's times."""
        laws = task.laws()
        weights = row_weights(laws, self.physics).to(task.noise.device)

        def penalty(u: Tensor) -> Tensor:
            return (weights * task.excess(u).square()).sum(1)

        def objective(noise: Tensor) -> Tensor:
            return penalty(_states(task, noise)[-1])

        def slope(noise: Tensor) -> tuple[Tensor, Tensor]:
            states = _states(task, noise)
            end = states[-1].requires_grad_()
            with torch.enable_grad():
                value = penalty(end)
            along = task.gradient(value, end)
            for (tau, later), state in zip(reversed(list(pairwise(task.times))), reversed(states[:-1])):
                at = state.detach().requires_grad_()
                with torch.enable_grad():
                    moved = _step(task, at, tau, later)
                along = task.gradient(moved, at, along)
            return value.detach(), along.double()

        tolerance = laws.tolerance if self.tolerance is None else self.tolerance
        enough = min(1.0, self.physics) * tolerance**2  # then no single row is above the tolerance
        noise = descend(
            objective, slope, task.noise, self.iterations, memory=self.iterations, enough=enough, told=task.reach
        )
        u = _states(task, noise)[-1]
        task.reach(1.0)
        return u, None


def _states(task: Task, noise: Tensor) -> list[Tensor]:
    """Follow the plain flow by Euler's method; give every state, the noise first."""
    states = [noise]
    with torch.no_grad():
        for tau, later in pairwise(task.times):
            states.append(_step(task, states[-1], tau, later))  # each from the one before
    return states


def _step(task: Task, u: Tensor, tau: float, later: float) -> Tensor:
    return u + (later - tau) * task.velocity(u, tau)
