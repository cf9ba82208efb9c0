"""Conditional: draw fields from the model's distribution given the laws, not only fields that obey (math.md, eq. conditional).

At flow time τ the model's data given the state u are, to second order, N(d, Σ_τ): d is where the model shoots, Σ_τ the spread
given u. Each step draws y from it, takes the nearest field that obeys the laws in the metric Σ_τ⁻¹, and returns to the path with
fresh noise. For Gaussian fields and linear laws each of these is exact: a draw of N(d, Σ_τ) projected in its own metric is a draw
of it given the laws. If fields are not Gaussian, Σ_τ depends on the state, and modes are chosen by their shares given the state
and the laws. The last projection is the exact Euclidean one, as for every sampler.

With fresh noise a step at one noise level σ/α is a Gibbs step: what matters is which levels are visited, not how far apart they
are in τ. Unless the caller gives times, levels are spaced evenly in their logarithm, over the range in which the spread matters.

Relatives: ΠGDM (Song et al. 2023), DAPS (Zhang et al. 2024), RePaint (Lugmayr et al. 2022), TDS (Wu et al. 2023), ECI (Cheng et
al. 2024), PCFM (Utkarsh et al. 2025).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from snapfm.arrays import Values
from snapfm.errors import ParamsError
from snapfm.laws.checks import Check, check_settings, is_count, is_positive, is_share, is_whole, or_none
from snapfm.project import Projection
from snapfm.project.metric import Metric
from snapfm.sampling.conditional.conditioning import Conditioning
from snapfm.sampling.conditional.metropolis import Chain
from snapfm.sampling.conditional.posterior import Mode, Posterior
from snapfm.sampling.conditional.spread import Spread, own_spread
from snapfm.sampling.path import Path
from snapfm.sampling.task import Task, Velocity, noise_of, noise_units

Measure = Literal["surface", "residual"]
# Standard errors of a sum of m squared normal numbers: what is further from the laws than this is not explained by the spread.
_PLAUSIBLE = 4.0
_LEAST_SIZE = 1e-12  # of a spread without any variance: its levels are near τ = 1


@dataclass(frozen=True)
class Conditional:
    """Draw from the conditional distribution of a model's fields given the laws.

    `spread` says how the model's fields vary: Spread.of_fields(fields, velocity=velocity) if there are training fields, otherwise
    Spread.of_model(velocity, shape, rest=…); None uses `velocity.spread`. `renewal` is the share of noise drawn again at every
    step: 1 replaces all noise, which corrects early errors; 0 keeps the noise that the state implies. `rounds` is how often
    nonlinear laws are linearized at a step, if the slopes of an earlier step are no longer good enough. With inequalities, up to
    `tries` draws are made until they hold; then the last one is projected. `levels` are the largest and the smallest noise level
    σ/α, relative to the size of the spread; steps are evenly spaced in the logarithm between them. None spaces steps evenly in
    τ; `times` given to `sample` replace them.

    On nonlinear laws "given the laws" has two meanings. `measure="surface"` restricts the density to the surface of lawful
    fields; "residual" is the limit of small noise in the residuals, which favors places where residuals change slowly, by the
    factor det(JJᵀ)^−½. `Samples.weights` holds this factor. With `corrections` Metropolis steps on the surface at each flow step,
    fields are drawn from the measure itself, and no weights are needed.
    """

    spread: Spread | None = None
    renewal: float = 1.0
    rounds: int = 2
    tries: int = 8
    measure: Measure = "surface"
    corrections: int = 0
    levels: tuple[float, float] | None = (1.0, 0.01)

    def __post_init__(self) -> None:
        if self.spread is not None and not isinstance(self.spread, Spread):
            raise ParamsError(
                f"Conditional(spread) expects a Spread; got {type(self.spread).__name__}. Write Spread.of_fields(fields), or "
                "Spread.of_model(velocity, shape, rest=…)."
            )
        if not (is_count(self.rounds) and is_count(self.tries)):
            raise ParamsError(
                f"Conditional(rounds, tries) expects whole numbers >= 1; got {self.rounds!r} and {self.tries!r}. The defaults "
                "are 2 and 8."
            )
        check_settings(
            self,
            renewal=Check(is_share, "a share in [0, 1]", "The default is 1."),
            measure=Check(
                lambda name: name in get_args(Measure), "'surface' or 'residual'", "They differ on nonlinear laws only."
            ),
            corrections=Check(
                lambda value: is_whole(value) and value >= 0, "a whole number >= 0", "0 draws by projection alone."
            ),
            levels=Check(
                or_none(_falling),
                "the largest and the least noise level, positive and falling, or None", "The default is (1.0, 0.01).",
            ),
        )  # fmt: skip

    def times(self, steps: int, path: Path, velocity: Velocity, shape: tuple[int, ...]) -> tuple[float, ...]:
        """Return the flow times of a run for which the caller gave none: 0, those of the levels, and 1."""
        if self.levels is None or steps < 2:
            return tuple(step / steps for step in range(steps + 1))
        size = self._spread(velocity, shape, noise_units(velocity, shape)[1]).size
        high, low = (math.log(level * max(size, _LEAST_SIZE)) for level in self.levels)
        each = [low] if steps == 2 else [high + (low - high) * step / (steps - 2) for step in range(steps - 1)]
        inner = [path.time_of(math.exp(level)) for level in each]
        return (0.0, *(tau for tau in inner if 0.0 < tau < 1.0), 1.0)

    def run(self, task: Task) -> tuple[Tensor, Projection]:
        """Step through the task's times (math.md, eq. conditional)."""
        laws, shape = task.laws(), tuple(task.noise.shape[1:])
        mean, scale = noise_units(task.model, shape)
        spread = self._spread(task.model, shape, scale)
        if not hasattr(laws, "linearized"):
            raise ParamsError(
                f"Conditional expects a snapfm.Projector, whose laws it linearizes; got {type(laws).__name__}. Build one: "
                "snapfm.Projector(laws, shape, params), or take PCFM()."
            )
        u, drawn = task.noise, None
        chain: Chain | None = None
        posterior = Posterior(spread, task.path, mean)
        with torch.no_grad():
            with task.timed("projection"):
                near = Conditioning(laws, spread.at(task.path, 0.0), task.params, len(u), self.rounds)
            for tau, later in task.steps():
                ahead = task.shoot(u, tau).to("cpu", torch.float64)
                with task.timed("projection"):
                    center, metrics = self._chosen(task, near, ahead, posterior.at(u, tau))
                if drawn is None or not self.corrections:
                    drawn = self._draw(task, near, center, metrics)
                if self.corrections:
                    with task.timed("projection"):
                        chain = chain or Chain(near, self.measure)
                        drawn = chain.run(drawn, center, metrics, task.streams, self.corrections)
                u = self._return(task, u, drawn.to(u.dtype), tau, later)
            found = task.project(u)
            if self.measure == "residual" and not self.corrections:
                with task.timed("projection"):
                    task.log_weights = -0.5 * near.log_volume(found.u)
        return found.u, found

    def _spread(self, velocity: Velocity, shape: tuple[int, ...], scale: Tensor) -> Spread:
        spread = self.spread if self.spread is not None else own_spread(velocity)
        if spread is None:
            raise ParamsError(
                "Conditional(spread) expects how the model's fields vary; got None, and the velocity has no `spread`. Write "
                "Conditional(Spread.of_fields(training_fields, velocity=velocity)), or Spread.of_model(velocity, shape, rest=…)."
            )
        if tuple(spread.directions.shape[1:]) != shape:
            raise ParamsError(
                f"Conditional(spread) expects directions of the fields' shape {shape}; got "
                f"{tuple(spread.directions.shape[1:])}. Estimate it from fields of this shape."
            )
        return spread.in_units(scale)

    def _chosen(
        self, task: Task, near: Conditioning, ahead: Tensor, modes: list[Mode]
    ) -> tuple[Tensor, Sequence[Metric]]:
        """Choose a mode for each sample, by its share given the state times how well it explains the laws."""
        if len(modes) == 1:
            return ahead, modes[0].metrics
        centers = [ahead if mode.offsets is None else ahead + mode.offsets for mode in modes]
        away, volume = zip(*(near.evidence(center, mode.metrics) for center, mode in zip(centers, modes)))
        explained = _explained(np.stack(away, axis=1), np.stack(volume, axis=1), len(near.near.system.rows))
        logs = np.stack([mode.shares for mode in modes], axis=1) + explained
        total = np.exp(logs - logs.max(axis=1, keepdims=True)).cumsum(axis=1)
        chance = [float(torch.rand((), generator=stream, dtype=torch.float64)) for stream in task.streams]
        which = (np.asarray(chance)[:, None] * total[:, -1:] > total).sum(axis=1).clip(max=len(modes) - 1).tolist()
        center = torch.stack([centers[mode][i] for i, mode in enumerate(which)])
        return center, [modes[mode].metrics[i] for i, mode in enumerate(which)]

    def _draw(self, task: Task, near: Conditioning, center: Tensor, metrics: Sequence[Metric]) -> Tensor:
        """Draw from N(center, Σ) given the laws: float64, on the CPU."""
        found, waiting = center, torch.arange(len(center))
        for last in range(self.tries, 0, -1):
            white, along = draws(task.streams, waiting, center[0].numel(), metrics[0].rank)
            with task.timed("projection"):
                own, around = [metrics[i] for i in waiting.tolist()], center[waiting]
                drawn, obeys = near.draw(around, waiting, own, white.reshape(around.shape), along)
                if last > 1:
                    found = found.index_copy(0, waiting[obeys], drawn[obeys])
                    waiting = waiting[~obeys]
                    if not len(waiting):
                        break
                    continue
                found = found.index_copy(0, waiting, drawn)
        with task.timed("projection"):
            return near.settle(found)

    def _return(self, task: Task, u: Tensor, data: Tensor, tau: float, later: float) -> Tensor:
        """Return to the path at `later` with noise of which a share is fresh."""
        data = data.to(u.device)
        if later == 1.0:
            return data
        noise = torch.zeros_like(u)
        if self.renewal > 0.0:
            (white,) = draws(task.streams, torch.arange(len(u)), u[0].numel())
            noise = noise_of(task.model, white.reshape(u.shape)).to(u)
        if self.renewal < 1.0:
            own = (u - task.path.data(tau) * data) / task.path.noise(tau)
            noise = math.sqrt(1.0 - self.renewal**2) * own + self.renewal * noise
        return task.path.pull_back(noise, data, later)


def draws(streams: tuple[torch.Generator, ...], which: Tensor, *counts: int) -> list[Tensor]:
    """Draw white numbers (k, count) for some samples, each from its own stream, for each of `counts`.

    They are drawn in single precision, in a fifth of the time; where they come from N(0, 1) nothing is lost by it.
    """
    each = [torch.randn(sum(counts), generator=streams[i]) for i in which.tolist()]
    ends = list(accumulate(counts))
    whole = torch.stack(each).double()
    return [whole[:, end - count : end] for end, count in zip(ends, counts)]


def _explained(away: Values, volume: Values, rows: int) -> Values:
    """Return the log density (b, k) of the laws in each mode, from squared distances and log-determinants.

    Where even the best mode is further from the laws than chance allows, the spread is too small there, for all modes alike:
    distances are divided by that excess, so that they do not decide by what they cannot know.
    """
    plausible = rows + _PLAUSIBLE * math.sqrt(2.0 * rows)
    excess = np.maximum(away.min(axis=1, keepdims=True) / plausible, 1.0)
    found: Values = -0.5 * (away / excess + volume)
    return found


def _falling(levels: object) -> bool:
    """Tell whether levels are two positive numbers, the larger one first."""
    if not isinstance(levels, tuple) or len(levels) != 2 or not all(is_positive(level) for level in levels):
        return False
    return bool(levels[0] > levels[1])
