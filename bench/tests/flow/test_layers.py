"""The quick layers against two oracles: neuralop's own layers, and a full Fourier transform."""

import pytest
import torch
from neuralop.layers.spectral_convolution import SpectralConv
from neuralop.models import FNO
from torch import Tensor, nn

from snapfm_bench.flow.layers import Pointwise, Spectral, accelerate

CHANNELS = 3
TOLERANCE = 64 * torch.finfo(torch.float32).eps  # sums of some dozens of terms of order one


def by_full_transform(convolution: SpectralConv, x: Tensor) -> Tensor:
    """Compute a spectral convolution the slow way: all modes, each kept one found by its own frequency."""
    weight = convolution.weight.to_tensor().detach().to(torch.complex128)
    shape, kept = x.shape[2:], weight.shape[2:]
    axes = tuple(range(2, x.ndim))
    spectrum = torch.fft.rfftn(x.double(), dim=axes, norm="forward")
    out = torch.zeros(len(x), weight.shape[1], *spectrum.shape[2:], dtype=torch.complex128)
    for index in torch.cartesian_prod(*[torch.arange(n) for n in kept]).tolist():
        *front, last = index
        place = (*((j - n // 2) % size for j, n, size in zip(front, kept, shape)), last)
        mode = (slice(None), slice(None), *place)
        out[mode] = spectrum[mode] @ weight[(slice(None), slice(None), *index)]
    answer = torch.fft.irfftn(out, s=shape, dim=axes, norm="forward")
    return (answer + convolution.bias.detach().double()).float()


@pytest.mark.parametrize(
    ("shape", "modes"),
    [
        ((6, 8), (4, 4)),
        ((7, 9), (3, 5)),
        ((5, 8), (5, 8)),
        ((6, 3), (1, 1)),
        ((4, 6, 5), (2, 3, 4)),
        ((3, 5, 7, 4), (2, 2, 3, 4)),
    ],
)
@pytest.mark.parametrize("count", [1, 3])
def test_spectral_equals_the_full_transform(shape: tuple[int, ...], modes: tuple[int, ...], count: int) -> None:
    torch.manual_seed(0)
    convolution = SpectralConv(CHANNELS, CHANNELS, modes)
    x = torch.randn(count, CHANNELS, *shape)
    torch.testing.assert_close(
        Spectral(convolution, shape)(x), by_full_transform(convolution, x), rtol=TOLERANCE, atol=TOLERANCE
    )


def test_pointwise_equals_the_convolution_it_replaces() -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 3, 11)
    for bias in (True, False):
        convolution = nn.Conv1d(3, 5, 1, bias=bias)
        torch.testing.assert_close(Pointwise(convolution)(x), convolution(x), rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize("channel_mlp", [True, False])
def test_a_accelerated_network_is_the_same_network(channel_mlp: bool) -> None:
    torch.manual_seed(0)
    fno = FNO(
        n_modes=(4, 4),
        in_channels=2,
        out_channels=1,
        hidden_channels=5,
        positional_embedding=None,
        use_channel_mlp=channel_mlp,
    )
    x = torch.randn(3, 2, 6, 8, requires_grad=True)
    before = fno(x)
    (slope,) = torch.autograd.grad(before.square().sum(), x)
    names = [name for name, _ in fno.named_parameters()]

    accelerate(fno, (6, 8))
    after = fno(x)
    (quick_slope,) = torch.autograd.grad(after.square().sum(), x)

    assert [name for name, _ in fno.named_parameters()] == names
    assert not any(isinstance(module, nn.Conv1d | SpectralConv) for module in fno.modules())
    torch.testing.assert_close(after, before, rtol=TOLERANCE, atol=TOLERANCE)
    torch.testing.assert_close(quick_slope, slope, rtol=TOLERANCE, atol=TOLERANCE * float(slope.abs().max()))
