"""Diffusion models: from a prediction of noise, of data or of v, to the velocity of the path (math.md, eq. prediction)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from snapfm.adapters.base import Adapter, Model, levels, numbers_of
from snapfm.adapters.calls import Clock, FieldFirst
from snapfm.adapters.paths import LAST, check_path, first_time
from snapfm.adapters.units import Normalized
from snapfm.errors import SettingError
from snapfm.sampling.path import Path

# A prediction of noise determines the data up to its error divided by α. Where α is smaller than this, the model is called a
# little later with the same state, whose change in between is of the size of α.
LEAST_DATA = 1e-3

Taus = list[float]  # one for all samples, or one each


class Prediction(Adapter):
    """A velocity made from a prediction of data or noise: v = α'·data + σ'·noise."""

    def __init__(self, model: Model, path: Path, clock: Clock | None = None) -> None:
        call = f"{self.name}(model, path)"
        if isinstance(model, Adapter):
            if clock is not None:
                raise SettingError(
                    f"{call} expects clock=… for a model that is called as model(u, time); got one beside an adapter. Give it to "
                    "the adapter: time_first(model, clock=…)."
                )
            moving = [part.name for part in model.modules() if isinstance(part, (Prediction, Normalized))]
            if moving:
                raise SettingError(
                    f"{call} expects a model that predicts; got one inside {moving[0]}, which gives velocities. Turn them round: "
                    f"{moving[0]}({self.name}(model, path), …)."
                )
        super().__init__(
            model if isinstance(model, Adapter) else _Predictor(model, clock, self.name), check_path(path, call)
        )

    def forward(self, u: Tensor, tau: float | Tensor, **inputs: Any) -> Tensor:
        """Return the velocity at fields u (b, *shape) and flow time tau, a number or (b,)."""
        taus = [min(at, LAST) for at in numbers_of(tau, u)]
        data, noise = self._parts(u, taus, inputs)
        return levels(self.path.data_slope, taus, u) * data + levels(self.path.noise_slope, taus, u) * noise

    def _parts(self, u: Tensor, taus: Taus, inputs: dict[str, Any]) -> tuple[Tensor, Tensor]:
        """Split the state u into its data and its noise."""
        raise NotImplementedError

    def _predict(self, u: Tensor, taus: Taus, inputs: dict[str, Any]) -> Tensor:
        tau = taus[0] if len(taus) == 1 else torch.tensor(taus, dtype=torch.float64, device=u.device)
        answer: Tensor = self.model(u, tau, **inputs)
        return answer

    def _implied(self, u: Tensor, data: Tensor, taus: Taus) -> Tensor:
        """Return the noise in u, given its data."""
        return (u - levels(self.path.data, taus, u) * data) / levels(self.path.noise, taus, u)


class PredictsData(Prediction):
    """Adapt a model that predicts clean data, called as model(u, time) or already adapted; settings as in predicts_noise."""

    name = "predicts_data"

    def _parts(self, u: Tensor, taus: Taus, inputs: dict[str, Any]) -> tuple[Tensor, Tensor]:
        data = self._predict(u, taus, inputs)
        return data, self._implied(u, data, taus)


class PredictsNoise(Prediction):
    """Adapt a diffusion model that predicts noise, called as model(u, time) or already adapted.

    `path` is the one it was trained on: variance_preserving(…), Timesteps(…).path or your own. `clock` maps flow time to the
    model's: Timesteps(…).index, or lambda tau: 1 - tau; without it the model is called with flow time.
    """

    name = "predicts_noise"

    def __init__(self, model: Model, path: Path, clock: Clock | None = None) -> None:
        super().__init__(model, path, clock)
        self.start = first_time(path.data, LEAST_DATA)

    def _parts(self, u: Tensor, taus: Taus, inputs: dict[str, Any]) -> tuple[Tensor, Tensor]:
        at = [max(tau, self.start) for tau in taus]
        noise = self._predict(u, at, inputs)
        data = (u - levels(self.path.noise, at, u) * noise) / levels(self.path.data, at, u)
        early = levels(lambda tau: float(tau < self.start), taus, u) > 0.0
        return data, torch.where(early, self._implied(u, data, taus), noise)


class PredictsV(Prediction):
    """Adapt a diffusion model that predicts v = α·noise − σ·data (v-prediction); settings as in predicts_noise.

    T. Salimans, J. Ho, "Progressive Distillation for Fast Sampling of Diffusion Models" (2022). With the state
    u = α·data + σ·noise these are two equations for data and noise. Their matrix [[α, σ], [−σ, α]] is a rotation times
    √(α² + σ²), so that data = (α·u − σ·v)/(α² + σ²) and noise = (σ·u + α·v)/(α² + σ²), on any affine path: neither is divided by
    a small number at either end. On variance-preserving paths α² + σ² = 1.
    """

    name = "predicts_v"

    def _parts(self, u: Tensor, taus: Taus, inputs: dict[str, Any]) -> tuple[Tensor, Tensor]:
        v = self._predict(u, taus, inputs)
        alpha, sigma = levels(self.path.data, taus, u), levels(self.path.noise, taus, u)
        size = alpha.square() + sigma.square()
        return (alpha * u - sigma * v) / size, (sigma * u + alpha * v) / size


class _Predictor(FieldFirst):
    """The model of a prediction, called as model(u, time); it returns a tensor or, as in diffusers, an object with `.sample`."""

    def __init__(self, model: Model, clock: Clock | None, name: str) -> None:
        self.name = name  # of the prediction, as the caller wrote it
        super().__init__(model, None, clock)

    def _call(self, u: Tensor, time: Tensor, **inputs: Any) -> Any:
        answer = super()._call(u, time, **inputs)
        return answer if isinstance(answer, Tensor) else getattr(answer, "sample", answer)


# The names that users call.
predicts_data, predicts_noise, predicts_v = PredictsData, PredictsNoise, PredictsV
