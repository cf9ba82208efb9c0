"""Whether fields look like true ones from point to point: noise can obey every law, and this is where it shows.

Two measures per axis. The correlation of neighbours is near one for resolved fields and near zero for white noise. The
power spectrum, in octaves, tells which share of a batch's variation sits at scales where true fields have none of it.
Imports errors only.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from snapfm.errors import ShapeError

# Measured on the six benchmark problems (tests/metrics): neighbours of true fields correlate by 0.92 and more, of white
# noise projected onto the laws by less than 0.1. Half of what true fields have lies far from both.
CORRELATION_SHARE = 0.5
# Two batches of a dozen true fields differ by less than 0.2, projected white noise by more than 0.5.
SPECTRUM_LIMIT = 0.3
# Wave numbers below this count as one scale: how true fields share their power among them is a matter of the draw.
_LARGE_SCALES = 4


@dataclass(frozen=True)
class Texture:
    """Neighbour correlations and spectra of a batch, beside those of true fields."""

    correlation: Tensor  # (b, axes)
    true_correlation: Tensor  # (axes,), the median of true fields
    spectrum_distance: Tensor  # (axes,), in [0, 1]: the share of power that sits elsewhere

    @property
    def noise(self) -> Tensor:
        """Tell which samples are noise (b,): neighbours correlate less than half as well as in true fields."""
        return ~(self.correlation >= CORRELATION_SHARE * self.true_correlation).all(dim=1)

    @property
    def alike(self) -> bool:
        """Tell whether no sample is noise and the batch has its power where true fields have it."""
        return not bool(self.noise.any()) and bool((self.spectrum_distance <= SPECTRUM_LIMIT).all())


def texture(fields: Tensor, truth: Tensor) -> Texture:
    """Compare fields (b, *shape) with true fields under the same conditions, of which a dozen are enough.

    Distances of spectra are those of math.md, eq. spectrum.
    """
    if fields.shape[1:] != truth.shape[1:] or min(fields.shape) < 1 or min(fields.shape[1:]) < 2:
        raise ShapeError(
            f"texture(fields, truth) expects fields of one shape, at least 2 points along each axis; got "
            f"{tuple(fields.shape)} and {tuple(truth.shape)}. Simulate the truth on the grid of the samples."
        )
    axes = range(1, fields.ndim)
    distances = [0.5 * (_spectrum(fields, axis) - _spectrum(truth, axis)).abs().sum() for axis in axes]
    # A batch without any variation has no spectrum: it is as far from one as can be.
    distance = torch.stack(distances).nan_to_num(nan=1.0)
    return Texture(neighbor_correlation(fields), neighbor_correlation(truth).median(0).values, distance)


def neighbor_correlation(fields: Tensor) -> Tensor:
    """Correlate neighbours along each axis, per sample: (b, axes) (math.md, eq. correlation).

    A constant field has nothing to miss: one.
    """
    centered = _centered(fields)
    space = tuple(range(1, fields.ndim))
    found = []
    for axis in space:
        inner = centered.shape[axis] - 1
        here, there = centered.narrow(axis, 0, inner), centered.narrow(axis, 1, inner)
        both = (here.square().sum(space) * there.square().sum(space)).sqrt()
        # NaN in a field stays NaN, and counts as noise.
        found.append(torch.where(both == 0, torch.ones_like(both), (here * there).sum(space) / both))
    return torch.stack(found, dim=1)


def _spectrum(fields: Tensor, axis: int) -> Tensor:
    """Give the share of a batch's power at large scales and in each finer octave along an axis, summed over the others.

    Tapered at the ends (Hann): most axes are not periodic, and the jump between their ends is no fine structure.
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
