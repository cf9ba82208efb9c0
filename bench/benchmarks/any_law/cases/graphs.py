"""Balances on networks of pipes and of power lines."""

from __future__ import annotations

import torch
from torch import Tensor

from benchmarks.any_law.case import Setting, case
from benchmarks.any_law.draws import randn
from snapfm.laws import Bounds, Equality, Params


def _lines(size: int, seed: int) -> tuple[Tensor, Tensor]:
    """Draw a connected graph: a ring of all nodes and as many chords."""
    begin = torch.arange(size)
    generator = torch.Generator().manual_seed(seed)
    chord = torch.randint(2, max(3, size - 1), (size,), generator=generator)
    return torch.cat([begin, begin]), torch.cat([(begin + 1) % size, (begin + chord) % size])


def _gathered(flow: Tensor, begin: Tensor, end: Tensor, size: int) -> Tensor:
    """What enters every node minus what leaves it, by a product with the incidence matrix."""
    incidence = torch.zeros(size, len(begin), dtype=torch.float64)
    incidence[end, torch.arange(len(end))] += 1.0
    incidence[begin, torch.arange(len(begin))] -= 1.0
    return flow @ incidence.T


@case(60, tiny=5)
def pipes(samples: int, generator: torch.Generator, size: int) -> Setting:
    """Pressures of nodes and flows of pipes: pressure drop r q|q|, flows balance given demands; one row too many."""
    begin, end = _lines(size, 4)
    head = 1.0 + randn(samples, size, generator=generator)
    drop = head[:, begin] - head[:, end]
    flow = drop.sign() * drop.abs().sqrt()
    demand = _gathered(flow, begin, end, size)

    def drops(u: Tensor, p: Params) -> Tensor:
        flow = u[size:]
        return u[begin] - u[end] - flow * flow.abs()

    laws = (
        Equality("drop", drops),
        Equality("balance", lambda u, p: _gathered(u[size:], begin, end, size) - p["demand"]),
    )
    return Setting(laws, torch.cat([head, flow], dim=1), {"demand": demand})


@case(30, tiny=5, small=0.01, far=0.1, channels=True)
def power_flow(samples: int, generator: torch.Generator, size: int) -> Setting:
    """Voltage, angle, active and reactive power of every bus of a grid; voltages between 0.8 and 1.2."""
    begin, end = _lines(size, 5)
    conductance = torch.zeros(size, size, dtype=torch.float64)
    susceptance = torch.zeros(size, size, dtype=torch.float64)
    for i, j in zip(begin.tolist(), end.tolist()):
        for matrix, value in ((conductance, 1.0), (susceptance, -5.0)):
            matrix[i, j] -= value
            matrix[j, i] -= value
            matrix[i, i] += value
            matrix[j, j] += value

    def powers(voltage: Tensor, angle: Tensor) -> tuple[Tensor, Tensor]:
        between = angle[..., :, None] - angle[..., None, :]
        cos, sin = torch.cos(between), torch.sin(between)
        active = voltage * ((conductance * cos + susceptance * sin) @ voltage[..., None])[..., 0]
        reactive = voltage * ((conductance * sin - susceptance * cos) @ voltage[..., None])[..., 0]
        return active, reactive

    voltage = 1.0 + 0.03 * randn(samples, size, generator=generator).clamp(-3, 3)
    angle = 0.1 * randn(samples, size, generator=generator)
    angle = angle - angle[:, :1]
    truth = torch.stack([voltage, angle, *powers(voltage, angle)], dim=1)
    low = torch.tensor([0.8, -torch.inf, -torch.inf, -torch.inf], dtype=torch.float64)[:, None]
    high = torch.tensor([1.2, torch.inf, torch.inf, torch.inf], dtype=torch.float64)[:, None]
    laws = (
        Equality("active", lambda u, p: u[2] - powers(u[0], u[1])[0]),
        Equality("reactive", lambda u, p: u[3] - powers(u[0], u[1])[1]),
        Equality("reference", lambda u, p: u[1, 0]),
        Bounds(lower=low, upper=high),
    )
    return Setting(laws, truth, {})
