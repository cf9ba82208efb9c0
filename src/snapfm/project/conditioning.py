"""Conditioning: draws of N(d, Σ) given the laws, for a batch. What samplers need of linearized laws, in the caller's tensors.

Made per run: holds the params in float64 and the frames that slopes which never change allow to share.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from snapfm.arrays import Mask, Values
from snapfm.laws import Params
from snapfm.project.linearized import Nearest, products
from snapfm.project.metric import Metric
from snapfm.project.projector import Projector

_HALVINGS = 5  # parts of the way to a linearized answer that are tried: 1, 1/2, 1/4, 1/8, 1/16; then none of it


class Conditioning:
    """Laws of a projector with the params of a run, in metrics that share the directions of `metric`.

    `rounds` is how often nonlinear laws are linearized for one draw.
    """

    def __init__(self, laws: Projector, metric: Metric, params: Params | None, count: int, rounds: int) -> None:
        self.laws, self.params, self.count = laws, params, count
        self.near = Nearest(laws.linearized, metric)
        self.inside = laws.inside_params(params or {}, count)
        system = laws.linearized
        self.rounds = 1 if system.constant else rounds
        self.equality = system.equality
        # Rows of inequalities take no part in a draw: whether they hold is asked afterwards.
        self.active = None if bool(self.equality.all()) else np.tile(self.equality, (count, 1))
        self.exact = system.constant and self.active is None and not laws.limits.names
        self.restricted = self.active is not None or bool(laws.limits.names)

    def draw(
        self, center: Tensor, which: Tensor, metrics: Sequence[Metric], white: Tensor, along: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Draw around centers (k, *shape) of samples `which` (k,); return also which draws obey inequalities and bounds (k,).

        Equalities hold as linearized: exactly if they are affine.
        """
        y = perturbed(center, metrics, white, along).flatten(1).numpy()
        params = {name: value[which] for name, value in self.inside.items()}
        active = None if self.active is None else self.active[which.numpy()]
        at = y
        for _ in range(self.rounds):
            linear, _, _ = self.near.step(y, at, params, metrics, active)
            at = linear if self.near.system.constant else self._toward(at, linear, params)
        found = torch.from_numpy(at).view_as(center)
        return found, self._obeys(found, params) if self.restricted else torch.ones(len(found), dtype=torch.bool)

    def _toward(self, at: Values, linear: Values, params: Params) -> Values:
        """Go from fields (k, n) to the answers of their linearized laws, or part of the way if laws are broken more there.

        Slopes at a field far from the laws may say nothing about them: without this one draw in a few hundred of Burgers'
        equation leaves for good. A field for which no part of the way helps stays, and `settle` takes it to the laws.
        """
        found, before = linear.copy(), self._broken(at, params)
        for halving in range(1, _HALVINGS + 1):
            worse = ~(self._broken(found, params) <= before)  # true for what is not finite, too
            if not worse.any():
                return found
            share = 0.5**halving if halving < _HALVINGS else 0.0
            found[worse] = at[worse] + share * (linear[worse] - at[worse]) if share else at[worse]
        return found

    def _broken(self, u: Values, params: Params) -> Values:
        """Return the sum of squares (k,) of the equalities at fields (k, n)."""
        rows = self.near.system.residuals(u, params)[:, self.equality]
        found: Values = np.square(rows).sum(axis=1)
        return found

    def evidence(self, center: Tensor, metrics: Sequence[Metric]) -> tuple[Values, Values]:
        """Return how far centers (b, *shape) are from the equalities, in squared standard deviations, and log det(JΣJᵀ), (b,)."""
        flat = center.flatten(1).numpy()
        frames, rest = self.near.frames(flat, self.inside, self.active), self.residuals(flat)
        found = [frame.evidence(one, metric) for frame, one, metric in zip(frames, rest, metrics)]
        away, volume = zip(*found)
        return np.asarray(away), np.asarray(volume)

    def settle(self, fields: Tensor) -> Tensor:
        """Return the nearest fields that obey all laws, in the plain sense; `fields` themselves if they do exactly."""
        return fields if self.exact else self.laws.move(fields, self.params).u

    def log_volume(self, fields: Tensor) -> Tensor:
        """Return log det(JJᵀ) (b,) over the equalities at fields (b, *shape)."""
        flat = fields.detach().to("cpu", torch.float64).flatten(1).numpy()
        frames = Nearest(self.laws.linearized, Metric(1.0)).frames(flat, self.inside, self.active)
        return torch.tensor([frame.log_volume() for frame in frames], dtype=torch.float64)

    def residuals(self, u: Values) -> Values:
        """Evaluate the equalities (b, m) at fields (b, n); other rows are zero."""
        found: Values = np.where(self.equality, self.laws.linearized.residuals(u, self.inside), 0.0)
        return found

    def obeys(self, u: Values) -> Mask:
        """Mark the fields (b, n) that obey inequalities and bounds."""
        if not self.restricted:
            return np.ones(len(u), bool)
        found: Mask = self._obeys(torch.from_numpy(u).view(len(u), *self.laws.shape), self.inside).numpy()
        return found

    def _obeys(self, fields: Tensor, params: Params) -> Tensor:
        flat, limits = fields.flatten(1), self.laws.limits
        held = torch.ones(len(fields), dtype=torch.bool)
        if limits.names:
            held &= ((flat >= torch.from_numpy(limits.lower)) & (flat <= torch.from_numpy(limits.upper))).all(dim=1)
        if self.active is not None:
            rows = self.laws.linearized.residuals(flat.numpy(), params)[:, ~self.equality]
            held &= torch.from_numpy((rows <= self.laws.tolerance).all(axis=1))
        return held


def perturbed(fields: Tensor, metrics: Sequence[Metric], white: Tensor, along: Tensor) -> Tensor:
    """Add draws of N(0, Σ) to fields (b, *shape), each in its metric; the metrics share their directions.

    `white` is noise of their shape, `along` (b, r) that along the directions; both and the fields are float64 on the CPU.
    """
    roots = [torch.as_tensor(metric.diagonal, dtype=torch.float64).sqrt() for metric in metrics]
    drawn = fields + torch.stack([root * one for root, one in zip(roots, white)])
    if not metrics[0].rank:
        return drawn
    amounts = np.stack([metric.amounts(one) for metric, one in zip(metrics, along.numpy())])
    return drawn + torch.from_numpy(products(amounts, metrics[0].rows)).view_as(fields)
