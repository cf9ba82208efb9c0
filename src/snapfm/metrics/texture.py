"""Texture: whether fields vary from point to point like true ones. Noise can obey every law; this detects it.

There are two measures per axis. The correlation of neighbors is near one for resolved fields and near zero for white noise.
The power spectrum, in octaves, shows which share of the variation is at scales where true fields have none. Neither sees how
large a field is. Two more do: how far values leave the range of true ones, and how much a field varies. Imports errors only.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from snapfm.errors import ShapeError

# Measured on the six benchmark problems (tests/metrics): neighbors of true fields correlate by 0.92 and more, of white
# noise projected onto the laws by less than 0.1. Half the correlation of true fields is far from both.
CORRELATION_SHARE = 0.5
# Two batches of a dozen true fields differ by less than 0.2, projected white noise by more than 0.5.
SPECTRUM_LIMIT = 0.3
# Values of another batch of a dozen true fields leave the range of the first by far less than half of it.
REACH_LIMIT = 0.5
# Standard deviations of single true fields are within this factor of the smallest and the largest of a dozen others.
SWING_LIMIT = 2.0
# Wave numbers below this count as one scale: how true fields distribute their power among them varies from draw to draw.
_LARGE_SCALES = 4


@dataclass(frozen=True)
class Texture:
    """Neighbor correlations and spectra of a batch, compared with those of true fields."""

    correlation: Tensor  # (b, axes)
    true_correlation: Tensor  # (axes,), the median of true fields
    spectrum_distance: Tensor  # (axes,), in [0, 1]: the share of power at other scales
    reach: Tensor  # (b,), how far values leave the range of true fields, in units of that range
    swing: Tensor  # (b,), the factor by which the standard deviation is beyond those of true fields, at least 1

    @property
    def noise(self) -> Tensor:
        """Mask of the samples that are noise (b,): neighbors correlate less than half as well as in true fields."""
        return ~(self.correlation >= CORRELATION_SHARE * self.true_correlation).all(dim=1)

    @property
    def oversized(self) -> Tensor:
        """Mask of the samples (b,) whose values are too far from those of true fields, or vary too much or too little."""
        return ~((self.reach <= REACH_LIMIT) & (self.swing <= SWING_LIMIT))

    @property
    def alike(self) -> bool:
        """Whether no sample is noise or of another size, and the batch has its power at the scales of true fields."""
        strange = self.noise | self.oversized
        return not bool(strange.any()) and bool((self.spectrum_distance <= SPECTRUM_LIMIT).all())


def texture(fields: Tensor, truth: Tensor) -> Texture:
    """Compare fields (b, *shape) with a dozen or more true fields under the same conditions (math.md, eq. spectrum)."""
    if fields.shape[1:] != truth.shape[1:] or min(fields.shape) < 1 or min(fields.shape[1:]) < 2:
        raise ShapeError(
            f"texture(fields, truth) expects fields of one shape, at least 2 points along each axis; got "
            f"{tuple(fields.shape)} and {tuple(truth.shape)}. Simulate the truth on the grid of the samples."
        )
    axes = range(1, fields.ndim)
    distances = [0.5 * (_spectrum(fields, axis) - _spectrum(truth, axis)).abs().sum() for axis in axes]
    # A batch without any variation has no spectrum: it gets the largest distance.
    distance = torch.stack(distances).nan_to_num(nan=1.0)
    correlations = neighbor_correlation(fields), neighbor_correlation(truth).median(0).values
    return Texture(*correlations, distance, _reach(fields, truth), _swing(fields, truth))


def _reach(fields: Tensor, truth: Tensor) -> Tensor:
    low, high = truth.double().min(), truth.double().max()
    flat = fields.double().flatten(1)
    beyond = torch.maximum(low - flat.min(1).values, flat.max(1).values - high).clamp(min=0.0)
    return beyond / (high - low)  # NaN in a field stays NaN, and counts as oversized


def _swing(fields: Tensor, truth: Tensor) -> Tensor:
    own, true = (_centered(one).flatten(1).square().mean(1).sqrt() for one in (fields, truth))
    return torch.maximum(own / true.max(), true.min() / own).clamp(min=1.0)


def neighbor_correlation(fields: Tensor) -> Tensor:
    """Correlate neighbors along each axis, per sample: (b, axes); 1 for a constant field (math.md, eq. correlation)."""
    centered = _centered(fields)
    space = tuple(range(1, fields.ndim))
    found = []
    for axis in space:
        inner = centered.shape[axis] - 1
        here, there = centered.narrow(axis, 0, inner), centered.narrow(axis, 1, inner)
        both = (here.square().sum(space) * there.square().sum(space)).sqrt()
        # NaN in a field stays NaN and counts as noise.
        found.append(torch.where(both == 0, torch.ones_like(both), (here * there).sum(space) / both))
    return torch.stack(found, dim=1)


def _spectrum(fields: Tensor, axis: int) -> Tensor:
    """Return the share of a batch's power at large scales and in each finer octave along an axis, summed over the others.

    A Hann taper at the ends keeps the jump between the ends of a non-periodic axis out of the fine scales.
    """
    size = fields.shape[axis]
    taper = torch.hann_window(size + 2, periodic=False, dtype=torch.float64)[1:-1]
    power: Tensor = torch.fft.rfft(_centered(fields).movedim(axis, -1) * taper, dim=-1).abs().square()
    power = power.flatten(0, -2).sum(0)
    wave = torch.arange(len(power), dtype=torch.float64)
    octave = (wave / _LARGE_SCALES).clamp(min=0.5).log2().floor().long() + 1
    shares = power.new_zeros(int(octave.max()) + 1).index_add_(0, octave, power)
    return shares / shares.sum()


def _centered(fields: Tensor) -> Tensor:
    fields = fields.double()
    return fields - fields.mean(tuple(range(1, fields.ndim)), keepdim=True)
