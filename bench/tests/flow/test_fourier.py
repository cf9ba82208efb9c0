"""The chain of narrow real products against torch's full transforms."""

import math

import pytest
import torch
from torch import Tensor

from snapfm_bench.flow.prepared import NetworkStage, fourier

CHANNELS = 3
GRIDS = [
    ((6, 8), (4, 3)),
    ((7, 9), (3, 5)),
    ((5, 4), (5, 3)),
    ((9,), (4,)),
    ((4, 6, 5), (2, 3, 3)),
    ((3, 5, 2, 7), (2, 3, 1, 4)),
]
# layers.py evaluates angles of up to 2π·modes in float32 before it goes on in double precision
TOLERANCE = 2 * math.pi * 8 * torch.finfo(torch.float32).eps


def through(stages: tuple[NetworkStage, ...], values: Tensor) -> Tensor:
    for stage in stages:
        slabs = values.reshape(stage.slabs, stage.matrix.shape[1], -1)
        values = torch.stack([stage.matrix @ slab for slab in slabs])
    return values


def kept(shape: tuple[int, ...], modes: tuple[int, ...]) -> tuple[Tensor, ...]:
    """Give the places of the kept modes among those of torch.fft.rfftn."""
    *front, last = modes
    return torch.meshgrid(
        *[(torch.arange(m) - m // 2) % n for m, n in zip(front, shape)], torch.arange(last), indexing="ij"
    )


@pytest.mark.parametrize(("shape", "modes"), GRIDS)
def test_forward_finds_the_kept_modes_of_a_full_transform(shape: tuple[int, ...], modes: tuple[int, ...]) -> None:
    u = torch.randn(*shape, CHANNELS, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    axes = tuple(range(len(shape)))
    expected = torch.fft.rfftn(u, dim=axes, norm="forward")[kept(shape, modes)]
    transform = fourier(shape, modes, torch.float64)
    real, imaginary = through(transform.forward, u).view(2, *modes, CHANNELS)
    torch.testing.assert_close(torch.complex(real, imaginary), expected, rtol=TOLERANCE, atol=TOLERANCE)
    ones = through(transform.forward, torch.ones(*shape, CHANNELS, dtype=torch.float64)).view(2, -1, CHANNELS)
    assert ones[0, :, 0].argmax() == transform.zero
    assert len(ones[0]) == transform.modes


@pytest.mark.parametrize(("shape", "modes"), GRIDS)
def test_inverse_is_that_of_a_full_transform_with_all_other_modes_zero(
    shape: tuple[int, ...], modes: tuple[int, ...]
) -> None:
    generator = torch.Generator().manual_seed(0)
    spectrum = torch.randn(*modes, CHANNELS, dtype=torch.complex128, generator=generator)
    full = torch.zeros(*shape[:-1], shape[-1] // 2 + 1, CHANNELS, dtype=torch.complex128)
    full[kept(shape, modes)] = spectrum
    expected = torch.fft.irfftn(full, s=shape, dim=tuple(range(len(shape))), norm="forward")
    parts = torch.stack([spectrum.real, spectrum.imag])
    found = through(fourier(shape, modes, torch.float64).inverse, parts).view(*shape, CHANNELS)
    torch.testing.assert_close(found, expected, rtol=TOLERANCE * spectrum.numel(), atol=TOLERANCE * spectrum.numel())
