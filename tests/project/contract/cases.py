"""Fields and laws of many shapes, and what the tests of the contract of Projector and Projection share."""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from snapfm import Equality, Inequality, Projection, Projector
from snapfm.linear import Fronts, Lanes, Solver

EPS = torch.finfo(torch.float64).eps
SOLVERS: list[Solver] = [Lanes(), Fronts()]  # of the KKT systems: inside the compiled loop, and by callback
BATCH = 7  # odd, and no multiple of any vector width


def randn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


@dataclass(frozen=True)
class Case:
    name: str
    shape: tuple[int, ...]
    laws: tuple[Equality | Inequality, ...]
    params: dict[str, tuple[int, ...]]  # shape of each param, without its batch axis

    def draw(self, count: int, seed: int = 100) -> dict[str, Tensor]:
        return {name: randn(count, *shape, seed=seed + i) for i, (name, shape) in enumerate(self.params.items())}

    def projector(self, linear: Solver, seed: int = 100) -> Projector:
        return Projector(self.laws, shape=self.shape, params=self.draw(1, seed), linear=linear)


STENCIL = randn(4, 15, seed=1)  # a full matrix, as a law that measures a field with four sensors
CASES = [
    Case(
        "1d+t",
        (6, 5),
        (
            Equality("initial", lambda u, p: u[:, 0] - p["u0"]),
            Equality("mass", lambda u, p: u[:-1, 1:].sum(0) - p["u0"][:-1].sum()),
        ),
        {"u0": (6,)},
    ),
    Case(
        "2d+t",
        (3, 5, 4),
        (
            Equality("initial", lambda u, p: u[..., 0] - p["w0"]),
            Equality("total", lambda u, p: u.sum((0, 1))[1:] - p["w0"].sum()),
        ),
        {"w0": (3, 5)},
    ),
    Case(
        "3d, a law that returns a scalar",
        (3, 4, 5),
        (Equality("mean", lambda u, p: u.mean() - p["mean"]),),
        {"mean": ()},
    ),
    Case(
        "channels, a law that returns a matrix",
        (2, 3, 5),
        (
            Equality("divergence", lambda u, p: u[0, 1:, :-1] - u[0, :-1, :-1] + u[1, :-1, 1:] - u[1, :-1, :-1]),
            Equality("sum", lambda u, p: u.sum((1, 2)) - p["flow"]),
        ),
        {"flow": (2,)},
    ),
    Case(
        "sensors, a matrix product",
        (3, 5),
        (Equality("sensors", lambda u, p: STENCIL @ u.flatten() - p["seen"]),),
        {"seen": (4,)},
    ),
    Case(
        "redundant rows",
        (3, 5),
        (
            Equality("columns", lambda u, p: u.sum(0) - p["c"]),
            Equality("twice", lambda u, p: 2 * u.sum(0)[:2] - 2 * p["c"][:2]),
            Equality("all", lambda u, p: u.sum() - p["c"].sum()),
        ),
        {"c": (5,)},
    ),
    Case("one unknown, one row", (1,), (Equality("value", lambda u, p: 3 * u - p["v"]),), {"v": (1,)}),
    Case("no params", (3, 5), (Equality("rows", lambda u, p: u.sum(1) - 1.0),), {}),
    # Affine equalities are solved in closed form; these are what a linear solver is called for.
    Case(
        "curved, a diagonal Hessian",
        (3, 5),
        (
            Equality("energy", lambda u, p: (u**2).sum(0) - 1.0 - p["e"] ** 2),
            Equality("total", lambda u, p: u.sum() - p["e"].sum()),
        ),
        {"e": (5,)},
    ),
    Case(
        "curved, neighbours coupled",
        (4, 3),
        (Equality("products", lambda u, p: (u[1:] * u[:-1]).sum(0) - p["c"]),),
        {"c": (3,)},
    ),
    Case(
        "curved, with inequalities",
        (3, 5),
        (
            Equality("energy", lambda u, p: (u**2).sum(0) - 4.0),
            Inequality("cap", lambda u, p: u.sum(1) - p["cap"]),
        ),
        {"cap": (3,)},
    ),
]


@dataclass(frozen=True)
class Run:
    case: Case
    linear: Solver
    project: Projector
    u_hat: Tensor
    params: dict[str, Tensor]
    result: Projection


def tensors(result: Projection) -> dict[str, Tensor]:
    """List every tensor of a projection under one name each."""
    out: dict[str, Tensor] = {}
    for field in fields(result):
        value = getattr(result, field.name)
        if isinstance(value, Tensor):
            out[field.name] = value
        elif isinstance(value, dict):
            out |= {f"{field.name}[{name}]": one for name, one in value.items()}
    return out


def assert_same_bits(one: Projection, other: Projection) -> None:
    left, right = tensors(one), tensors(other)
    assert left.keys() == right.keys()
    for name in left:
        a, b = left[name].detach(), right[name].detach()
        assert (a.dtype, a.shape) == (b.dtype, b.shape), name
        assert a.contiguous().numpy().tobytes() == b.contiguous().numpy().tobytes(), f"{name}: {a} is not {b}"


def assert_same_answer(one: Projection, other: Projection) -> None:
    """Same bits in all but the violation: the law's own function measures it, and torch's sums round by batch size."""
    left, right = tensors(one), tensors(other)
    assert left.keys() == right.keys()
    for name in left:
        a, b = left[name].detach(), right[name].detach()
        if name.startswith(("violation", "by_law")):
            scale = float(one.u.abs().max()) * one.u[0].numel()
            assert torch.allclose(a, b, rtol=0.0, atol=scale * torch.finfo(a.dtype).eps), name
        else:
            assert a.contiguous().numpy().tobytes() == b.contiguous().numpy().tobytes(), f"{name}: {a} is not {b}"


def part(params: dict[str, Tensor], samples: list[int]) -> dict[str, Tensor]:
    return {name: value[samples] for name, value in params.items()}


def sizes_by_hand(laws: tuple[Equality | Inequality, ...], u: Tensor, params: dict[str, Tensor]) -> dict[str, Tensor]:
    """Measure each law in float64, one sample at a time, from nothing but law.residual."""
    out = {}
    for law in laws:
        worst = []
        for i in range(len(u)):
            rows = law.residual(u[i].double(), {name: value[i].double() for name, value in params.items()})
            worst.append((rows.abs() if isinstance(law, Equality) else rows.clamp(min=0.0)).max())
        out[law.name] = torch.stack(worst)
    return out
