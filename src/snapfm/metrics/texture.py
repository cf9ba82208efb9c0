"""Texture: whether fields vary from point to point like true ones. Noise can obey every law; this detects it.

There are two measures per axis. The correlation of neighbors is near one for resolved fields and near zero for white noise.
The power spectrum, in octaves, shows which share of the variation is at scales where true fields have none. Imports errors only.
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
# Wave numbers below this count as one scale: how true fields distribute their power among them varies from draw to draw.
_LARGE_SCALES = 4


@dataclass(frozen=True)
class Texture:
    """Neighbor correlations and spectra of a batch, compared with those of true fields."""

    correlation: Tensor  # (b, axes)
    true_correlation: Tensor  # (axes,), the median of true fields
    spectrum_distance: Tensor  # (axes,), in [0, 1]: the share of power at other scales

    @property
    def noise(self) -> Tensor:
        """Mask of the samples that are noise (b,): neighbors correlate less than half as well as in true fields."""
        return ~(self.correlation >= CORRELATION_SHARE * self.true_correlation).all(dim=1)

    @property
    def alike(self) -> bool:
        """Whether no sample is noise and the batch has its power at the scales of true fields."""
        return not bool(self.noise.any()) and bool((self.spectrum_distance <= SPECTRUM_LIMIT).all())


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
    return Texture(neighbor_correlation(fields), neighbor_correlation(truth).median(0).values, distance)


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
