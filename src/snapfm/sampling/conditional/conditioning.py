"""Conditioning: draws of N(d, Σ) given the laws, for a batch. What samplers need of linearized laws, in the caller's tensors.

Made per run: holds the params in float64, the frame that slopes which never change allow to share, and each sample's last one
where they do. Sample i of a run has its own memory, so a run begins with a new one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from snapfm.arrays import Index, Mask, Values
from snapfm.laws import Params
from snapfm.project.linearized import LinearizedProjection, TangentFrame, products
from snapfm.project.metric import Metric
from snapfm.project.projector import Projector
from snapfm.solve.tangent import Tangents

_CHORDS = 2  # steps with the slopes of an earlier draw
# Share of the violation that they may leave. Slopes that leave more also point elsewhere, and draws on strongly curved laws (the
# ellipse of the exact cases) show it.
_CONTRACTS = 0.005
# Iterations of the projection of a draw: ordinary ones need 2 to 12. A draw that needs hundreds, as with thousands of
# inequalities, is returned nearer to the laws; later steps draw anew, and the last projection of a run is the exact one.
_SETTLING = 20
_FEW = 8  # share of a batch up to which laws are evaluated on that share alone
_HALVINGS = 5  # parts of the way to a linearized answer that are tried: 1, 1/2, 1/4, 1/8, 1/16; then none of it


class Conditioning:
    """Laws of a projector with the params of a run, in metrics that share the directions of `metric`.

    `rounds` is how often nonlinear laws are linearized for a draw for which the slopes of the sample's last draw do not serve.
    """

    def __init__(self, laws: Projector, metric: Metric, params: Params | None, count: int, rounds: int) -> None:
        self.laws, self.params, self.count = laws, params, count
        # Inequalities take no part in a draw: whether they hold is asked afterwards.
        system = laws.linearized.equalities
        self.near, self.rounds = LinearizedProjection(system, metric), rounds
        self.inside = laws.params_float64(params or {}, count)
        self.unequal: Index = np.flatnonzero(~laws.linearized.equality)
        self.restricted = len(self.unequal) > 0 or bool(laws.limits.names)
        self.exact = system.constant and not self.restricted
        self._kept: list[TangentFrame | None] = [None] * count  # of nonlinear laws, at the last draw of each sample

    def draw(
        self, center: Tensor, which: Tensor, metrics: Sequence[Metric], white: Tensor, along: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Draw around centers (k, *shape) of samples `which` (k,); return also which draws obey inequalities and bounds (k,).

        Equalities hold as linearized: exactly if they are affine.
        """
        y = perturbed(center, metrics, white, along).flatten(1).numpy()
        params = {name: value[which] for name, value in self.inside.items()}
        if self.near.system.constant:
            at, _ = self.near.chord(y, y, self.near.system.residuals(y, params), metrics, self.near.frames(y, params))
        else:
            at = self._curved(y, which.numpy(), params, metrics)
        found = torch.from_numpy(at).view_as(center)
        return found, self._obeys(found, params) if self.restricted else torch.ones(len(found), dtype=torch.bool)

    def _curved(self, y: Values, which: Index, params: Params, metrics: Sequence[Metric]) -> Values:
        """Return fields near y (k, n), in the metrics, at which nonlinear laws about hold.

        Linearizing laws takes longest, so slopes are kept: a sample first takes chord steps with those of its last draw. Where
        these do not remove nearly all of the violation, the laws are linearized anew.
        """
        found, rest = y.copy(), self._rows(y, params)
        goal = _CONTRACTS**2 * _squares(rest)
        left = np.asarray([self._kept[i] is not None for i in which.tolist()], bool)
        anew = ~left
        for _ in range(_CHORDS):
            some = np.flatnonzero(left)
            if not len(some):
                break
            own, mine = {name: value[some] for name, value in params.items()}, [metrics[i] for i in some.tolist()]
            slopes = [frame for i in which[some].tolist() if (frame := self._kept[i]) is not None]
            found[some], _ = self.near.chord(y[some], found[some], rest[some], mine, slopes)
            rest[some] = self._rows(found[some], own)
            left[some] = ~(_squares(rest[some]) <= goal[some])  # stays true for what is not finite
        some = np.flatnonzero(left | anew)
        if not len(some):
            return found
        own, mine = {name: value[some] for name, value in params.items()}, [metrics[i] for i in some.tolist()]
        start = at = y[some]
        for _ in range(self.rounds):
            frames = self.near.frames(at, own)
            linear, _ = self.near.chord(start, at, self._rows(at, own), mine, frames)
            at = self._toward(at, linear, own)
            for i, frame in zip(which[some].tolist(), frames):
                self._kept[i] = frame
        found[some] = at
        return found

    def _toward(self, at: Values, linear: Values, params: Params) -> Values:
        """Go from fields (k, n) to the answers of their linearized laws, or part of the way if laws are broken more there.

        Slopes at a field far from the laws may say nothing about them: without this one draw in a few hundred of Burgers'
        equation leaves for good. A field for which no part of the way helps stays, and `settle` takes it to the laws.
        """
        found, before = linear.copy(), _squares(self._rows(at, params))
        for halving in range(1, _HALVINGS + 1):
            worse = ~(_squares(self._rows(found, params)) <= before)  # true for what is not finite, too
            if not worse.any():
                return found
            share = 0.5**halving if halving < _HALVINGS else 0.0
            found[worse] = at[worse] + share * (linear[worse] - at[worse]) if share else at[worse]
        return found

    def _rows(self, u: Values, params: Params, system: Tangents | None = None) -> Values:
        """Evaluate the equalities, or the rows of `system` (k, m), at fields (k, n) of some samples.

        Fields are repeated up to one of two sizes: laws are recorded anew for every size of a batch, which takes longer.
        """
        count, few = len(u), max(1, self.count // _FEW)
        size = few if count <= few else max(count, self.count)
        if 0 < count < size:
            index = torch.arange(size) % count
            u, params = u[index.numpy()], {name: value[index] for name, value in params.items()}
        return (system or self.near.system).residuals(u, params)[:count]

    def evidence(self, center: Tensor, metrics: Sequence[Metric]) -> tuple[Values, Values]:
        """Return how far centers (b, *shape) are from the equalities, in squared standard deviations, and log det(JΣJᵀ), (b,)."""
        flat = center.flatten(1).numpy()
        frames, rest = self.near.frames(flat, self.inside), self.residuals(flat)
        found = [frame.evidence(one, metric) for frame, one, metric in zip(frames, rest, metrics)]
        away, volume = zip(*found)
        return np.asarray(away), np.asarray(volume)

    def settle(self, fields: Tensor) -> Tensor:
        """Return the nearest fields that obey all laws, in the plain sense; `fields` themselves if they do exactly.

        A sample that needs many iterations is returned as the first ones leave it.
        """
        return fields if self.exact else self.laws.move(fields, self.params, limit=_SETTLING).u

    def log_volume(self, fields: Tensor) -> Tensor:
        """Return log det(JJᵀ) (b,) over the equalities at fields (b, *shape)."""
        flat = fields.detach().to("cpu", torch.float64).flatten(1).numpy()
        frames = LinearizedProjection(self.near.system, Metric(1.0)).frames(flat, self.inside)
        return torch.tensor([frame.log_volume() for frame in frames], dtype=torch.float64)

    def residuals(self, u: Values) -> Values:
        """Evaluate the equalities (b, m) at fields (b, n)."""
        return self.near.system.residuals(u, self.inside)

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
        if len(self.unequal):
            rows = self._rows(flat.numpy(), params, self.laws.linearized)[:, self.unequal]
            held &= torch.from_numpy((rows <= self.laws.strictest).all(axis=1))
        return held


def _squares(rows: Values) -> Values:
    """Return the sum of squares (k,) of rows (k, m)."""
    found: Values = np.square(rows).sum(axis=1)
    return found


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
