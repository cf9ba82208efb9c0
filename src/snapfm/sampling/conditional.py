"""Conditional: draw fields from the model's distribution given the laws, not only fields that obey (math.md, eq. conditional).

At flow time τ the model's data given the state u are, to second order, N(d, Σ_τ): d is where the model shoots, Σ_τ the spread
given u. Each step draws y from it, takes the nearest field that obeys the laws in the metric Σ_τ⁻¹, and returns to the path with
fresh noise. For Gaussian fields and linear laws each of these is exact: a draw of N(d, Σ_τ) projected in its own metric is a draw
of it given the laws. The last projection is the exact Euclidean one, as for every sampler.

Relatives: ΠGDM (Song et al. 2023), DAPS (Zhang et al. 2024), RePaint (Lugmayr et al. 2022), TDS (Wu et al. 2023), ECI (Cheng et
al. 2024), PCFM (Utkarsh et al. 2025).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, get_args

import torch
from torch import Tensor

from snapfm.errors import ParamsError
from snapfm.project import Projection
from snapfm.project.checks import is_real, is_whole
from snapfm.project.conditioning import Conditioning
from snapfm.project.metric import Metric
from snapfm.sampling.checks import is_count
from snapfm.sampling.metropolis import Chain
from snapfm.sampling.spread import Spread
from snapfm.sampling.task import Task, noise_of

Measure = Literal["surface", "residual"]


@dataclass(frozen=True)
class Conditional:
    """Draw from the conditional distribution of a model's fields given the laws.

    `spread` says how the model's fields vary: Spread.of_fields(training data) where there are some, else
    Spread.of_model(velocity); None takes `velocity.spread`. `renewal` is the share of noise drawn afresh at every step: 1
    forgets the noise, which corrects early errors; 0 keeps the noise that the state implies. `rounds` is how often nonlinear
    laws are linearized again at each step. With inequalities, up to `tries` draws are made until they hold; then the last is
    projected.

    On nonlinear laws "given the laws" has two meanings. `measure="surface"` restricts the density to the surface of fields that
    obey; "residual" is the limit of small noise in the residuals, which favors places where residuals change slowly, by the
    factor det(JJᵀ)^−½. `Samples.weights` hold this factor. With `corrections` Metropolis steps on the surface at each flow step,
    fields are drawn from the measure itself, and no weights are needed.
    """

    spread: Spread | None = None
    renewal: float = 1.0
    rounds: int = 2
    tries: int = 8
    measure: Measure = "surface"
    corrections: int = 0

    def __post_init__(self) -> None:
        if self.spread is not None and not isinstance(self.spread, Spread):
            raise ParamsError(
                f"Conditional(spread) expects a Spread; got {type(self.spread).__name__}. Write Spread.of_fields(fields), or "
                "Spread.of_model(velocity, shape)."
            )
        if not is_real(self.renewal) or not 0.0 <= self.renewal <= 1.0:
            raise ParamsError(
                f"Conditional(renewal) expects a share in [0, 1]; got {self.renewal!r}. The default is 1."
            )
        if not (is_count(self.rounds) and is_count(self.tries)):
            raise ParamsError(
                f"Conditional(rounds, tries) expects whole numbers >= 1; got {self.rounds!r} and {self.tries!r}. The defaults "
                "are 2 and 8."
            )
        if self.measure not in get_args(Measure):
            raise ParamsError(
                f"Conditional(measure) expects 'surface' or 'residual'; got {self.measure!r}. They differ on nonlinear laws only."
            )
        if not is_whole(self.corrections) or self.corrections < 0:
            raise ParamsError(
                f"Conditional(corrections) expects a whole number >= 0; got {self.corrections!r}. 0 draws by projection alone."
            )

    def run(self, task: Task) -> tuple[Tensor, Projection]:
        """Step through the task's times (math.md, eq. conditional)."""
        laws, spread = task.laws(), self._spread(task)
        white = torch.linspace(-1.0, 1.0, task.noise[:1].numel(), dtype=torch.float64).view_as(task.noise[:1])
        if not torch.equal(noise_of(task.model, white), white):
            raise ParamsError(
                "Conditional expects a velocity that starts from white noise; got one with noise of its own. Sample in the units "
                "in which its noise is white, or take PCFM()."
            )
        if not hasattr(laws, "linearized"):
            raise ParamsError(
                f"Conditional expects a snapfm.Projector, whose laws it linearizes; got {type(laws).__name__}. Build one: "
                "snapfm.Projector(laws, shape, params), or take PCFM()."
            )
        u, drawn = task.noise, None
        chain: Chain | None = None
        with torch.no_grad():
            with task.timed("projection"):
                near = Conditioning(laws, spread.at(task.path, 0.0), task.params, len(u), self.rounds)
            for tau, later in pairwise(task.times):
                ahead, metric = task.shoot(u, tau), spread.at(task.path, tau)
                if drawn is None or not self.corrections:
                    drawn = self._draw(task, near, ahead, metric)
                if self.corrections:
                    with task.timed("projection"):
                        chain = chain or Chain(near, self.measure)
                        drawn = chain.run(drawn, ahead.double(), metric, task.streams, self.corrections)
                u = self._return(task, u, drawn.to(u.dtype), tau, later)
                task.tick()
            found = task.project(u)
            if self.measure == "residual" and not self.corrections:
                with task.timed("projection"):
                    task.weights = weights_of(-0.5 * near.log_volume(found.u))
        return found.u, found

    def _spread(self, task: Task) -> Spread:
        spread = self.spread if self.spread is not None else getattr(task.model, "spread", None)
        if not isinstance(spread, Spread):
            raise ParamsError(
                "Conditional(spread) expects how the model's fields vary; got None, and the velocity has no `spread`. Write "
                "Conditional(Spread.of_fields(training_fields)), or Spread.of_model(velocity, shape)."
            )
        if tuple(spread.directions.shape[1:]) != tuple(task.noise.shape[1:]):
            raise ParamsError(
                f"Conditional(spread) expects directions of the fields' shape {tuple(task.noise.shape[1:])}; got "
                f"{tuple(spread.directions.shape[1:])}. Estimate it from fields of this shape."
            )
        return spread

    def _draw(self, task: Task, near: Conditioning, ahead: Tensor, metric: Metric) -> Tensor:
        """Draw from N(ahead, Σ) given the laws: float64, on the CPU."""
        center = ahead.to("cpu", torch.float64)
        found, waiting = center, torch.arange(len(center))
        for last in range(self.tries, 0, -1):
            white, along = draws(task.streams, waiting, center.shape[1:], metric.rank)
            with task.timed("projection"):
                drawn, obeys = near.draw(center[waiting], waiting, metric, white, along)
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
        noise = task.renew() if self.renewal > 0.0 else torch.zeros_like(u)
        if self.renewal < 1.0:
            own = (u - task.path.data(tau) * data) / task.path.noise(tau)
            noise = math.sqrt(1.0 - self.renewal**2) * own + self.renewal * noise
        return task.path.pull_back(noise, data, later)


def draws(streams: tuple[torch.Generator, ...], which: Tensor, shape: torch.Size, rank: int) -> tuple[Tensor, Tensor]:
    """Draw white noise (k, *shape) and (k, rank) for some samples, each from its own stream."""
    fields, along = [], []
    for i in which.tolist():
        fields.append(torch.randn(shape, generator=streams[i], dtype=torch.float64))
        along.append(torch.randn(rank, generator=streams[i], dtype=torch.float64))
    return torch.stack(fields), torch.stack(along)


def weights_of(logs: Tensor) -> Tensor:
    """Return weights (b,) with mean one from their logarithms."""
    return torch.softmax(logs, dim=0) * len(logs)
