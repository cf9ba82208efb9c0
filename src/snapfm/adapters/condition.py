"""Extra inputs: parameters, labels or fields a model was trained to be conditioned on. Row i belongs to sample i of a run."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from snapfm.adapters.base import Adapter, Model
from snapfm.errors import ShapeError


class Conditioned(Adapter):
    """A velocity with inputs of its own, (rows, …) each, or (1, …) where all samples share them."""

    name = "conditioned"

    def __init__(self, model: Model, inputs: dict[str, Tensor]) -> None:
        super().__init__(model)
        for name, value in inputs.items():
            if not isinstance(value, Tensor) or value.ndim == 0 or len(value) == 0:
                came = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
                raise ShapeError(
                    f"conditioned(model, {name}=…) expects a tensor with one row per sample; got {came}. Rows shared by all "
                    "samples have a leading axis of 1: torch.as_tensor(value)[None]."
                )
            self.register_buffer(f"input_{name}", value, persistent=False)
        self.names = tuple(inputs)

    def forward(self, u: Tensor, tau: float | Tensor, **inputs: Any) -> Tensor:
        """Ask the model with each sample's inputs; floating-point ones in the dtype of the fields."""
        own = {name: self._rows(name, u) for name in self.names}
        answer: Tensor = self.model(u, tau, **(own | inputs))
        return answer

    def of_samples(self, first: int, count: int) -> Conditioned:
        """Keep the rows of samples first .. first + count − 1."""
        twin = self._around(super().of_samples(first, count).model)
        twin._buffers = dict(self._buffers)
        for name in self.names:
            value = self.get_buffer(f"input_{name}")
            if len(value) > 1:
                if len(value) < first + count:
                    raise ShapeError(
                        f"conditioned(model, {name}=…) expects a row for each of samples 0 .. {first + count - 1}; got "
                        f"{len(value)}. Row i belongs to sample i of the run: give all of them, or one for all."
                    )
                twin._buffers[f"input_{name}"] = value[first : first + count]
        return twin

    def _rows(self, name: str, u: Tensor) -> Tensor:
        value = self.get_buffer(f"input_{name}")
        if len(value) not in (1, len(u)):
            raise ShapeError(
                f"conditioned(model, {name}=…) expects {len(u)} rows or 1 for {len(u)} fields; got {len(value)}. Choose rows "
                "with velocity.of_samples(first, count), as snapfm.sample does."
            )
        rows = value.expand(len(u), *value.shape[1:])
        return rows.to(u) if rows.is_floating_point() else rows.to(u.device)


def conditioned(model: Model, **inputs: Tensor) -> Conditioned:
    """Adapt a velocity that takes extra inputs: model(u, tau, name=rows).

    Every input has a leading axis. Row i belongs to sample i of the run: `sample(first=…, count=…)` chooses rows by the
    numbers of its samples, so that runs in chunks give what one run gives. One row serves all samples.
    """
    return Conditioned(model, inputs)
