"""Posterior: what a spread says about the data given the states of a batch, mode by mode (math.md, eq. spread and pieces).

Made per run, from a spread and the model's noise. Gives means relative to what the model predicts, and metrics.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from snapfm.arrays import Values
from snapfm.project.linearized import products
from snapfm.project.metric import Metric
from snapfm.sampling.conditional.mixture import GaussianMixture, MixtureAt
from snapfm.sampling.conditional.spread import Spread
from snapfm.sampling.path import Path

# Added to covariances relative to their largest variance, so that rounding leaves them positive.
_SOFT = 1e-12


@dataclass(frozen=True, eq=False)
class Mode:
    """One mode for a batch: the logarithms of its shares (b,), its means relative to the prediction, and a metric per sample."""

    shares: Values
    offsets: Tensor | None  # (b, *shape); None where they are zero
    metrics: Sequence[Metric]


class Posterior:
    """The data given states, for the noise mean + spread.scale·white."""

    def __init__(self, spread: Spread, path: Path, mean: Tensor) -> None:
        self.spread, self.path, self.mean = spread, path, mean

    def at(self, u: Tensor, tau: float) -> list[Mode]:
        """Return the modes given states u (b, *shape) at τ; a single one if the spread has no pieces."""
        pieces = self.spread.pieces
        if pieces is None:
            return [Mode(np.zeros(len(u)), None, [self.spread.at(self.path, tau)] * len(u))]
        level = pieces.at(self.path.data(tau), self.path.noise(tau))
        shrunk, left = self.spread.left(self.path, tau)
        least = min(left, 0.5 * level.least)
        others = (shrunk[pieces.means.shape[1] :] - least).clamp(min=0.0).sqrt().numpy()
        found = [self._of_state(level, state, least, others) for state in self._coordinates(u, tau, pieces)]
        return [self._mode([one[mode] for one in found], u) for mode in range(pieces.count)]

    def _coordinates(self, u: Tensor, tau: float, pieces: GaussianMixture) -> Values:
        """Return states along the first directions (b, q), relative to the center."""
        spread = self.spread
        assert spread.center is not None
        middle = self.path.data(tau) * spread.center + self.path.noise(tau) * self.mean
        # A state that is not finite gets some metric; its prediction is not finite either, and the projection says so.
        away = (u.detach().to("cpu", torch.float64) - middle) / torch.as_tensor(spread.scale, dtype=torch.float64)
        rows = spread.directions[: pieces.means.shape[1]].flatten(1).numpy()
        return np.stack(
            [rows @ one for one in away.nan_to_num(0.0, 0.0, 0.0).flatten(1).numpy()]
        )  # one by one: bits do not depend on the batch

    def _of_state(
        self, level: MixtureAt, state: Values, least: float, others: Values
    ) -> list[tuple[float, Values, Metric]]:
        """Return share, offset along the directions and metric of each mode; `others` are the roots of the other directions."""
        mean, modes = level.given(state)
        found = []
        for mode in modes:
            inner = mode.covariance
            inner[np.diag_indices(len(inner))] += _SOFT * inner.diagonal().max() - least
            roots = np.zeros((len(inner) + len(others),) * 2)
            roots[: len(inner), : len(inner)] = np.linalg.cholesky(inner)
            roots[len(inner) :, len(inner) :] = np.diag(others)
            away = mode.mean - mean if len(modes) > 1 else np.zeros_like(mean)
            found.append((mode.share, away, self.spread.metric(least, torch.from_numpy(roots))))
        return found

    def _mode(self, found: list[tuple[float, Values, Metric]], u: Tensor) -> Mode:
        shares, away, metrics = zip(*found)
        if not np.any(away):
            return Mode(np.asarray(shares), None, metrics)
        axes = self.spread.axes[: len(away[0])].flatten(1).numpy()
        return Mode(np.asarray(shares), torch.from_numpy(products(np.stack(away), axes)).view(u.shape), metrics)
