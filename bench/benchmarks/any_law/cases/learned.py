"""Networks and the functions they are made of as laws: softmax, silu, gelu, cumulated products, entropy."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.any_law.case import Setting, case
from benchmarks.any_law.draws import randn, smooth
from snapfm.laws import Bounds, Equality, Inequality, Params


def _weights(module: nn.Module, seed: int) -> nn.Module:
    """Draw the weights of a network from a seed, without the global one."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for one in module.parameters():
            fan = one[0].numel() if one.dim() > 1 else one.numel()
            one.copy_(torch.randn(one.shape, generator=generator, dtype=one.dtype) / fan**0.5)
    return module.eval().requires_grad_(False)


@case(32, tiny=4, group="issue")
def small_network(samples: int, generator: torch.Generator, size: int) -> Setting:
    """Two outputs of a small network at every point, from four inputs there."""
    network = _weights(nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)).double(), 1)
    u = randn(samples, size, 4, generator=generator)
    return Setting((Equality("network", lambda u, p: network(u) - p["output"]),), u, {"output": network(u)})


def _picture(dtype: torch.dtype) -> nn.Module:
    layers = (nn.Conv2d(1, 4, 3, stride=2), nn.Tanh(), nn.Conv2d(4, 4, 3, stride=2), nn.Tanh())
    return _weights(nn.Sequential(*layers).to(dtype), 2)


def _float32(samples: int, generator: torch.Generator, size: int) -> Setting:
    network = _picture(torch.float32)
    u = smooth(samples, (size, size), generator)

    def seen(u: Tensor) -> Tensor:
        return network(u.float()[None, None]).mean((-2, -1))[0]

    outputs = torch.stack([seen(one) for one in u]).double()
    return Setting((Equality("network", lambda u, p: seen(u) - p["output"]),), u, {"output": outputs})


@case(32, tiny=12, group="issue")
def float32_network(samples: int, generator: torch.Generator, size: int) -> Setting:
    """Four outputs of a convolutional network in float32: its own rounding is above the tolerance."""
    return _float32(samples, generator, size)


@case(32, tiny=12, tolerance=1e-5)
def float32_network_loosely(samples: int, generator: torch.Generator, size: int) -> Setting:
    """The same, asked for what float32 can give."""
    return _float32(samples, generator, size)


@case(24, tiny=12)
def convolutions(samples: int, generator: torch.Generator, size: int) -> Setting:
    """All outputs of a convolutional network in float64: overlapping windows."""
    network = _picture(torch.float64)
    u = smooth(samples, (size, size), generator)
    outputs = network(u[:, None])
    return Setting((Equality("network", lambda u, p: network(u[None, None])[0] - p["output"]),), u, {"output": outputs})


def _mixed(samples: int, generator: torch.Generator, size: int, activation: nn.Module) -> Setting:
    weight = randn(size, 3, generator=torch.Generator().manual_seed(3)) / size**0.5
    u = randn(samples, 8, size, generator=generator)

    def rows(u: Tensor) -> Tensor:
        return activation(u) @ weight

    return Setting((Equality("mixed", lambda u, p: rows(u) - p["output"]),), u, {"output": rows(u)})


@case(8, tiny=4, group="issue")
def silu(samples: int, generator: torch.Generator, size: int) -> Setting:
    """Three weighted sums of silu in every row."""
    return _mixed(samples, generator, size, nn.SiLU())


@case(8, tiny=4, group="issue")
def gelu(samples: int, generator: torch.Generator, size: int) -> Setting:
    """Three weighted sums of gelu in every row."""
    return _mixed(samples, generator, size, nn.GELU())


@case(6, tiny=4, group="issue")
def softmax(samples: int, generator: torch.Generator, size: int) -> Setting:
    """The mean of a softmax in every row is given."""
    u = randn(samples, 8, size, generator=generator)
    place = torch.arange(size, dtype=torch.float64)

    def mean(u: Tensor) -> Tensor:
        return torch.softmax(u, dim=-1) @ place

    return Setting((Equality("mean", lambda u, p: mean(u) - p["mean"]),), u, {"mean": mean(u)})


@case(6, tiny=4, group="issue")
def cumprod(samples: int, generator: torch.Generator, size: int) -> Setting:
    """Growth rates whose cumulated product reaches given values at half time and at the end."""
    u = 1.0 + 0.2 * randn(samples, 4, size, generator=generator)
    places = [size // 2, size - 1]

    def reached(u: Tensor) -> Tensor:
        return torch.cumprod(u, dim=-1)[..., places]

    return Setting((Equality("growth", lambda u, p: reached(u) - p["reached"]),), u, {"reached": reached(u)})


@case(8, tiny=4, group="issue")
def entropy(samples: int, generator: torch.Generator, size: int) -> Setting:
    """Probabilities of given entropy in every row: −Σp log p = s, Σp = 1, p ≥ 1e-6."""
    u = torch.softmax(randn(samples, 6, size, generator=generator), dim=-1)

    def amount(u: Tensor) -> Tensor:
        return -(u * torch.log(u.clamp(min=1e-6))).sum(-1)

    laws = (
        Equality("entropy", lambda u, p: amount(u) - p["entropy"]),
        Equality("sum", lambda u, p: u.sum(-1) - 1.0),
        Bounds(lower=1e-6),
    )
    return Setting(laws, u, {"entropy": amount(u)})


@case(16, tiny=4)
def attention(samples: int, generator: torch.Generator, size: int) -> Setting:
    """The output of one attention head over a few tokens: softmax of products."""
    u = randn(samples, size, 4, generator=generator)

    def rows(u: Tensor) -> Tensor:
        return (torch.softmax(0.5 * u @ u.transpose(-1, -2), dim=-1) @ u).mean(-2)

    def given(u: Tensor, p: Params) -> Tensor:
        return rows(u) - p["output"]

    return Setting((Equality("attention", given),), u, {"output": rows(u)})


@case(16, tiny=3)
def normalized_network(samples: int, generator: torch.Generator, size: int) -> Setting:
    """A network with layer norm and gelu at every point, in float64."""
    layers = (nn.Linear(6, 12), nn.LayerNorm(12), nn.GELU(approximate="tanh"), nn.Linear(12, 2))
    network = _weights(nn.Sequential(*layers).double(), 6)
    u = randn(samples, size, 6, generator=generator)
    return Setting((Equality("network", lambda u, p: network(u) - p["output"]),), u, {"output": network(u)})


@case(12, tiny=4)
def recurrent(samples: int, generator: torch.Generator, size: int) -> Setting:
    """The last state of a gated recurrent cell that reads a series, and a bound on the mean of the series."""
    cell = _weights(nn.GRUCell(2, 3).double(), 7)
    u = randn(samples, size, 2, generator=generator)

    def last(u: Tensor) -> Tensor:
        state = torch.zeros(1, 3, dtype=torch.float64)
        for one in u:
            state = cell(one[None], state)
        return state[0]

    outputs = torch.stack([last(one) for one in u])
    laws = (
        Equality("state", lambda u, p: last(u) - p["output"]),
        Inequality("mean", lambda u, p: u.mean(0) - p["mean"]),
    )
    return Setting(laws, u, {"output": outputs, "mean": u.mean(1)})


@case(8, tiny=4)
def special_entropy(samples: int, generator: torch.Generator, size: int) -> Setting:
    """Probabilities whose entropy is at least a given one, by torch.special.entr, with given means."""
    u = torch.softmax(randn(samples, 6, size, generator=generator), dim=-1)
    place = torch.arange(size, dtype=torch.float64)
    laws = (
        Inequality("entropy", lambda u, p: p["entropy"] - torch.special.entr(u).sum(-1)),
        Equality("sum", lambda u, p: u.sum(-1) - 1.0),
        Equality("mean", lambda u, p: u @ place - p["mean"]),
        Bounds(lower=1e-6),
    )
    return Setting(laws, u, {"entropy": torch.special.entr(u).sum(-1), "mean": u @ place})
