"""Diffusion models: from a prediction of noise, or of data, to the velocity of the path (math.md, eq. prediction)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from snapfm.adapters.base import Adapter, Model, along, check_path, times_of
from snapfm.adapters.calls import Clock, FieldFirst
from snapfm.adapters.paths import LAST, first_time
from snapfm.adapters.units import Normalized
from snapfm.errors import SettingError
from snapfm.sampling.path import Path, Schedule

# A prediction of noise says what the data are to within its error over α. Where α is smaller than this the model is asked a
# little later, as if the state were there: what that changes in the state is of the size of α.
LEAST_DATA = 1e-3

Taus = list[float]  # one for all samples, or one each


class Prediction(Adapter):
    """A velocity made of what a model says about data or noise: v = α'·data + σ'·noise."""

    def __init__(self, model: Model, path: Path, clock: Clock | None) -> None:
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
            model if isinstance(model, Adapter) else _Asked(model, clock, self.name), check_path(path, call)
        )

    def forward(self, u: Tensor, tau: float | Tensor, **inputs: Any) -> Tensor:
        """Give the velocity at fields u (b, *shape) and flow time tau, a number or (b,)."""
        taus = [min(at, LAST) for at in _numbers(tau, u)]
        data, noise = self._parts(u, taus, inputs)
        return _levels(self.path.data_slope, taus, u) * data + _levels(self.path.noise_slope, taus, u) * noise

    def _parts(self, u: Tensor, taus: Taus, inputs: dict[str, Any]) -> tuple[Tensor, Tensor]:
        """Say which data and which noise the state u is made of."""
        raise NotImplementedError

    def _ask(self, u: Tensor, taus: Taus, inputs: dict[str, Any]) -> Tensor:
        tau = taus[0] if len(taus) == 1 else torch.tensor(taus, dtype=torch.float64, device=u.device)
        answer: Tensor = self.model(u, tau, **inputs)
        return answer

    def _implied(self, u: Tensor, data: Tensor, taus: Taus) -> Tensor:
        """Give the noise that is in u when `data` are."""
        return (u - _levels(self.path.data, taus, u) * data) / _levels(self.path.noise, taus, u)


class PredictsData(Prediction):
    """A model that predicts clean data."""

    name = "predicts_data"

    def _parts(self, u: Tensor, taus: Taus, inputs: dict[str, Any]) -> tuple[Tensor, Tensor]:
        data = self._ask(u, taus, inputs)
        return data, self._implied(u, data, taus)


class PredictsNoise(Prediction):
    """A model that predicts the noise."""

    name = "predicts_noise"

    def __init__(self, model: Model, path: Path, clock: Clock | None) -> None:
        super().__init__(model, path, clock)
        self.start = first_time(path.data, LEAST_DATA)

    def _parts(self, u: Tensor, taus: Taus, inputs: dict[str, Any]) -> tuple[Tensor, Tensor]:
        asked = [max(tau, self.start) for tau in taus]
        noise = self._ask(u, asked, inputs)
        data = (u - _levels(self.path.noise, asked, u) * noise) / _levels(self.path.data, asked, u)
        early = _levels(lambda tau: float(tau < self.start), taus, u) > 0.0
        return data, torch.where(early, self._implied(u, data, taus), noise)


class _Asked(FieldFirst):
    """The model behind a prediction: called as model(u, time), its answer a tensor or, as diffusers has it, `.sample`."""

    def __init__(self, model: Model, clock: Clock | None, name: str) -> None:
        self.name = name  # of the prediction, which is what the caller wrote
        super().__init__(model, None, clock)

    def _call(self, u: Tensor, time: Tensor, **inputs: Any) -> Any:
        answer = super()._call(u, time, **inputs)
        return answer if isinstance(answer, Tensor) else getattr(answer, "sample", answer)


def predicts_noise(model: Model, path: Path, clock: Clock | None = None) -> PredictsNoise:
    """Adapt a diffusion model that predicts noise, called as model(u, time) or already adapted.

    `path` is the one it was trained on: variance_preserving(…), Timesteps(…).path or your own. `clock` maps flow time to the
    model's: Timesteps(…).index, or lambda tau: 1 - tau; without it the model is given flow time.
    """
    return PredictsNoise(model, path, clock)


def predicts_data(model: Model, path: Path, clock: Clock | None = None) -> PredictsData:
    """Adapt a model that predicts clean data, called as model(u, time) or already adapted; settings as in predicts_noise."""
    return PredictsData(model, path, clock)


def _numbers(tau: float | Tensor, u: Tensor) -> Taus:
    times_of(tau, u)  # refuses what is neither
    return [float(at) for at in tau.reshape(-1).tolist()] if isinstance(tau, Tensor) else [float(tau)]


def _levels(schedule: Schedule, taus: Taus, u: Tensor) -> Tensor:
    """Evaluate a schedule at each flow time, shaped to multiply fields."""
    values = torch.tensor([schedule(tau) for tau in taus], dtype=u.dtype, device=u.device)
    return along(values if len(taus) == len(u) else values.reshape(()), u)
