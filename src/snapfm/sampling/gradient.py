"""Samplers that descend on the squared violation of the laws, by gradients: guidance and D-Flow."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from snapfm.compile import RowKind
from snapfm.errors import ParamsError
from snapfm.laws.checks import Check, check_settings, is_count, is_positive, or_none
from snapfm.project import Projector
from snapfm.sampling.checks import FLAG
from snapfm.sampling.descent import descend
from snapfm.sampling.task import Task


def row_weights(laws: Projector, physics: float) -> Tensor:
    """Weight rows that fix one unknown by 1 and all others by `physics`, in the order of `excess` (math.md, eq. penalty).

    DiffusionPDE weights observations and equations separately; initial values are the former, balances the latter.
    """
    structure = laws.require_sparse("a step along the laws")
    single = (np.diff(structure.pattern.indptr) == 1) & (structure.kinds == RowKind.AFFINE) & structure.equality_rows
    bounded = np.zeros(int(laws.limits.bounded.sum()), dtype=bool)
    return torch.from_numpy(np.where(np.concatenate([single, bounded]), 1.0, physics))


@dataclass(frozen=True)
class Guidance:
    """Step with the velocity minus `weight` times the gradient of the squared residual at the predicted end point.

    J. Huang, G. Yang, Z. Wang, J. J. Park, "DiffusionPDE: Generative PDE-Solving Under Partial Observation", NeurIPS 2024
    (arXiv:2406.17763; code: jhhuangchloe/DiffusionPDE), in the form for flows of the ECI paper (Cheng et al., ICLR 2025) and
    of PCFM (Utkarsh et al., NeurIPS 2025; code: cpfpengfei/PCFM); math.md, eq. guidance.

    Published: DiffusionPDE takes Heun steps of a diffusion model and subtracts ζ times the gradient of the residual's norm
    per value, through the network (Burgers: ζ = 320 for observations, 100 for the equation in the last fifth of 2000 steps).
    The form for flows squares the residual, averages the velocities at τ and τ' of the same state, and does not
    differentiate the network; its η = 200 multiplies a mean over values and over the batch. Adapted: a mean over the
    batch would couple samples, so each has its own sum of squares; `weight` 0.01, and `physics` 0.01 for rows other
    than given values, are those of a public run of PCFM's code sample by sample, on its problems
    (ispamm/Projection-free-energy-guided-flow-matching); 200 over, say, 100 values and 512 samples is 0.004.
    `through_network` also differentiates the velocity, as DiffusionPDE does. Violations shrink but do not vanish. Stiff rows
    (large slopes) need a smaller weight; otherwise their samples diverge, without harm to others.
    """

    weight: float = 0.01
    physics: float = 0.01
    through_network: bool = False

    def __post_init__(self) -> None:
        if not (is_positive(self.weight) and is_positive(self.physics)):
            raise ParamsError(
                f"Guidance expects weight > 0 and physics > 0; got {self.weight!r} and {self.physics!r}. The default is 0.01 for "
                "both; for no guidance use Flow()."
            )
        check_settings(self, through_network=FLAG)

    def run(self, task: Task) -> tuple[Tensor, None]:
        """Step through the task's times."""
        weights = self.weight * row_weights(task.laws(), self.physics).to(task.noise.device)
        u = task.noise
        for tau, later in task.steps():
            at = u.detach().requires_grad_()
            with torch.set_grad_enabled(self.through_network):
                speed = task.velocity(at, tau)
                if later < 1.0:  # averaged over both ends of the step, at the same state
                    speed = 0.5 * (speed + task.velocity(at, later))
            with torch.enable_grad():
                excess = task.excess(task.path.shoot(at, speed, tau))
                loss = (weights * excess.square()).sum()  # over samples too, which has no cross terms
            slope = task.gradient(loss, at)
            u = u + (later - tau) * speed.detach() - slope
        return u, None


@dataclass(frozen=True)
class DFlow:
    """Minimize the squared residual at the end of the plain flow over its noise, by L-BFGS, then follow the flow.

    H. Ben-Hamu, O. Puny, I. Gat, B. Karrer, U. Singer, Y. Lipman, "D-Flow: Differentiating through Flows for Controlled
    Generation", ICML 2024 (arXiv:2402.14017), in the form of the ECI paper (Cheng et al., ICLR 2025) and of PCFM; math.md,
    eq. dflow.

    Published: L-BFGS with line search through a midpoint solver of step 1/6 (images) or 100 evaluations (molecules, 5 × 5
    iterations), from a blend of noise and observation, with an optional prior on the noise. The form for PDEs in the code
    of ECI and PCFM: torch's L-BFGS, 20 iterations at rate 0.1 without line search, Euler steps, plain noise, no prior.
    Adapted: 20 iterations from plain noise through the task's Euler steps, with the paper's line search, per sample (theirs
    is one problem for the whole batch); `physics` is the weight of rows other than given values, as in Guidance. A sample
    ends early when its violation is within `tolerance`, the projector's unless given. Memory holds one state per step and
    the network's activations of one step: each step is run again for its gradient.
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
        check_settings(self, tolerance=Check(or_none(is_positive), "a positive number", "None is the projector's own."))

    def run(self, task: Task) -> tuple[Tensor, None]:
        """Descend on the noise, then step through the task's times."""
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
            adjoint = task.gradient(value, end)
            for (tau, later), state in zip(reversed(list(pairwise(task.times))), reversed(states[:-1])):
                at = state.detach().requires_grad_()
                with torch.enable_grad():
                    moved = task.step(at, tau, later)
                adjoint = task.gradient(moved, at, adjoint)
            return value.detach(), adjoint.double()

        tolerance = laws.strictest if self.tolerance is None else self.tolerance
        enough = min(1.0, self.physics) * tolerance**2  # then no single row is above the tolerance
        noise = descend(
            objective, slope, task.noise, self.iterations, memory=self.iterations, enough=enough, progress=task.reach
        )
        u = _states(task, noise)[-1]
        task.reach(1.0)
        return u, None


def _states(task: Task, noise: Tensor) -> list[Tensor]:
    """Follow the plain flow by Euler's method; return every state, the noise first."""
    states = [noise]
    with torch.no_grad():
        for tau, later in pairwise(task.times):
            states.append(task.step(states[-1], tau, later))  # each from the one before
    return states
