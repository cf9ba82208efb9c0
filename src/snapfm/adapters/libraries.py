"""Models of `flow_matching`, `torchcfm` and `diffusers`: their calling conventions, and their paths, read from their own objects.

None of the libraries is imported: a user's scheduler or matcher is called for numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from snapfm.adapters.base import Model
from snapfm.adapters.calls import Joined, ModelCall, TimeFirst
from snapfm.adapters.diffusion import Prediction, PredictsData, PredictsNoise, PredictsV
from snapfm.adapters.paths import LAST, Timesteps, check_path, first_time
from snapfm.errors import ParamsError, SettingError
from snapfm.laws.checks import signature_of
from snapfm.sampling.path import Path

# A path α = τⁿ has zero velocity at τ = 0 if n > 1, which says nothing about data, and an infinite one if n < 1. Such a path
# is entered where it holds this much data, with noise that holds none, as in diffusion models.
ENTERED = 0.01


class KeywordCall(ModelCall):
    """A model called like in flow_matching's solvers, model(x=…, t=…), from its time `start` on."""

    name = "flow_matching"

    def __init__(self, model: Model, path: Path | None = None, start: float = 0.0) -> None:
        super().__init__(model, path, None if start == 0.0 else partial(_from, start))
        self.start = start

    def forward(self, u: Tensor, tau: float | Tensor, **inputs: Any) -> Tensor:
        """Evaluate the velocity at fields u (b, *shape) and flow time tau, a number or (b,)."""
        speed = super().forward(u, tau, **inputs)
        return speed if self.start == 0.0 else (1.0 - self.start) * speed

    def _call(self, u: Tensor, time: Tensor, **inputs: Any) -> Any:
        return self.model(x=u, t=time, **inputs)


def flow_matching(model: Model, path: Any = None) -> KeywordCall:
    """Adapt a model of Meta's `flow_matching`, called as model(x=…, t=…) with t of shape (b,).

    `path` is what it was trained with: a scheduler (CondOTScheduler(), CosineScheduler(), …) or an AffineProbPath. The default
    is the straight path, CondOT.
    """
    return KeywordCall(model) if path is None else KeywordCall(model, scheduler_path(path), _start(_scheduler(path)))


def torchcfm(model: Model, matcher: Any = None) -> ModelCall:
    """Adapt a model of `torchcfm`: called as model(t, x) with one t for all samples, as its ODE solvers call it.

    A model with one input, such as torchcfm.models.MLP, gets flat fields with time as last column. `matcher` is what it was
    trained with: a ConditionalFlowMatcher or a subclass. The default is the straight path.
    """
    path = None if matcher is None else matcher_path(matcher)
    return Joined(model, path) if _inputs_of(model) == 1 else TimeFirst(model, path, times="one")


def diffusers(model: Model, scheduler: Any) -> Prediction:
    """Adapt a model of `diffusers`, such as a UNet2DModel: called as model(sample, timestep), with the answer in `.sample`.

    `scheduler` is what it was trained with, such as a DDPMScheduler: its alphas_cumprod are the path, its prediction_type says
    what the model predicts: epsilon, sample or v_prediction. Fields are (c, h, w); put `channels` around it for fields (h, w),
    and `conditioned` for more inputs, such as encoder_hidden_states.
    """
    told, levels = getattr(scheduler, "config", None), getattr(scheduler, "alphas_cumprod", None)
    kind = told.get("prediction_type") if isinstance(told, Mapping) else getattr(told, "prediction_type", None)
    if levels is None or kind not in _PREDICTIONS:
        came = scheduler.__name__ if isinstance(scheduler, type) else type(scheduler).__name__
        raise SettingError(
            f"diffusers(model, scheduler) expects a scheduler with alphas_cumprod and a prediction_type of {list(_PREDICTIONS)}; "
            f"got {came} with {kind!r}. Pass the scheduler the model was trained with; a model of flow matching is called with "
            "field_first(lambda x, t: -model(x, t).sample, clock=lambda tau: 1000 * (1 - tau))."
        )
    steps = Timesteps(levels)
    return _PREDICTIONS[kind](model, steps.path, steps.index)


def scheduler_path(scheduler: Any) -> Path:
    """Read the path of a scheduler of `flow_matching`, or of an AffineProbPath that holds one."""
    ask = _scheduler(scheduler)
    start = _start(ask)

    def read(name: str, tau: float) -> float:
        return _read(ask, name, _from(start, tau))

    def slope(name: str, tau: float) -> float:  # infinite at the end of variance-preserving paths
        return (1.0 - start) * read(name, min(tau, LAST))

    # Rounding leaves cos(π/2) of noise at the end; the pull-back there must return the data themselves.
    path = Path(
        lambda tau: read("alpha_t", tau) if tau < 1.0 else 1.0,
        lambda tau: read("sigma_t", tau) if tau < 1.0 else 0.0,
        lambda tau: slope("d_alpha_t", tau),
        lambda tau: slope("d_sigma_t", tau),
    )
    return check_path(path, "flow_matching(model, path)")


def matcher_path(matcher: Any) -> Path:
    """Read the path of a matcher of `torchcfm`: its mean and its flow at fields that are one in data or in noise alone.

    Constant jitter around a path (`sigma` of ConditionalFlowMatcher) is left out, as torchcfm does when it samples. A bridge,
    whose noise rises and falls again, is not an affine path and is refused.
    """
    if not all(callable(getattr(matcher, name, None)) for name in _MATCHER):
        raise SettingError(
            f"torchcfm(model, matcher) expects a ConditionalFlowMatcher or one of its kinds; got {type(matcher).__name__}. Pass "
            "the object whose sample_location_and_conditional_flow the model was trained with."
        )
    zero, one = torch.zeros(1, 1, dtype=torch.float64), torch.ones(1, 1, dtype=torch.float64)

    def mean(noise: Tensor, data: Tensor, tau: float) -> float:
        return float(matcher.compute_mu_t(noise, data, _row(tau)))

    def spread(tau: float) -> float:
        return float(torch.as_tensor(matcher.compute_sigma_t(_row(tau))))

    started = mean(one, zero, 0.0) != 0.0  # from noise x0; else all noise is in the spread
    if started and any(not math.isclose(spread(tau), spread(0.5), abs_tol=_SAME) for tau in (0.0, 0.25)):
        raise ParamsError(
            f"torchcfm(model, matcher) expects a path from noise to data; got {type(matcher).__name__}, whose bridge noise "
            "comes and goes. Train with ConditionalFlowMatcher, its optimal-transport, target or variance-preserving kind."
        )

    def noise(tau: float) -> float:
        if tau >= 1.0:
            return 0.0  # a spread that stops short of zero would put noise on finished fields
        return mean(one, zero, tau) if started else spread(tau)

    def slope(x0: Tensor, x1: Tensor, tau: float, held: float) -> float:
        return float(matcher.compute_conditional_flow(x0, x1, _row(tau), held * one))

    path = Path(
        lambda tau: mean(zero, one, tau),
        noise,
        lambda tau: slope(zero, one, tau, mean(zero, one, tau)),
        lambda tau: slope(one, zero, tau, mean(one, zero, tau) if started else spread(tau)),
    )
    return check_path(path, "torchcfm(model, matcher)")


def _scheduler(given: Any) -> Callable[[Tensor], Any]:
    found = getattr(given, "scheduler", given)
    if callable(found) and not isinstance(found, (type, torch.nn.Module)):
        try:
            answer = found(torch.tensor(0.5, dtype=torch.float64))
        except Exception:  # any function may be given as a scheduler and may raise anything
            answer = None
        if all(hasattr(answer, name) for name in _SCHEDULER):
            return found  # type: ignore[no-any-return]
    came = given.__name__ if isinstance(given, type) else type(given).__name__
    raise SettingError(
        f"flow_matching(model, path) expects a scheduler or an AffineProbPath; got {came}. Pass the object the model was trained "
        "with, such as CondOTScheduler()."
    )


def _start(scheduler: Callable[[Tensor], Any]) -> float:
    """Return the time from which a path is used: 0, unless its velocity there is zero or infinite."""
    alpha, sigma, rise, fall = (_read(scheduler, name, 0.0) for name in _SCHEDULER)
    moving = 0.0 < rise * sigma - alpha * fall < math.inf
    return 0.0 if moving else first_time(lambda tau: _read(scheduler, "alpha_t", tau), ENTERED)


def _read(scheduler: Callable[[Tensor], Any], name: str, time: float) -> float:
    return float(getattr(scheduler(torch.tensor(time, dtype=torch.float64)), name))


def _from(start: float, tau: float) -> float:
    return start + (1.0 - start) * tau


def _inputs_of(model: Model) -> int:
    """Count the required positional inputs of a model; 0 if unknown."""
    signature = signature_of(model.forward if isinstance(model, torch.nn.Module) else model)
    inputs = [] if signature is None else signature.parameters.values()
    if any(i.kind is i.VAR_POSITIONAL for i in inputs):
        return 0
    return sum(i.kind in (i.POSITIONAL_ONLY, i.POSITIONAL_OR_KEYWORD) and i.default is i.empty for i in inputs)


def _row(tau: float) -> Tensor:
    return torch.tensor([tau], dtype=torch.float64)


_SAME = 1e-12
_PREDICTIONS: dict[Any, type[Prediction]] = {
    "epsilon": PredictsNoise,
    "sample": PredictsData,
    "v_prediction": PredictsV,
}
_SCHEDULER = ("alpha_t", "sigma_t", "d_alpha_t", "d_sigma_t")
_MATCHER = ("compute_mu_t", "compute_sigma_t", "compute_conditional_flow")
