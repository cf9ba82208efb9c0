"""Gradients do not depend on the units of a law: multiplied by any factor, alone or beside laws in other units."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import Tensor

from snapfm import Bounds, Equality, Inequality, Projector
from snapfm.compile import TooDense
from snapfm.laws import Law, Params
from snapfm.solve.budget import LIMIT, SECONDS, Budget
from snapfm.solve.gradient import attach_gradient

FACTORS = [1e-8, 1e-3, 1e8]
RELATIVE = 1e-9
N = 6


def mass(u: Tensor, p: Params) -> Tensor:
    return u.sum() - p["m"].sum()


def energy(u: Tensor, p: Params) -> Tensor:
    return (torch.arange(1.0, N + 1, dtype=torch.float64) * u**2).sum() - 3.0 * p["m"].square().sum()


def product(u: Tensor, p: Params) -> Tensor:
    return u[:2].prod()[None] - 0.1 * p["m"]


def peaks(u: Tensor, p: Params) -> Tensor:
    return u**2 - 0.3 * p["m"].sum()


def sizes(u: Tensor, p: Params) -> Tensor:
    return u.abs().sum()[None] - p["m"]


def scaled(residual: Callable[..., Tensor], factor: float) -> Callable[..., Tensor]:
    return lambda u, p: factor * residual(u, p)


Make = Callable[[float], list[Law]]
CASES: dict[str, Make] = {
    "affine": lambda s: [Equality("mass", scaled(mass, s))],
    "affine beside another": lambda s: [
        Equality("mass", scaled(mass, s)), Equality("tied", lambda u, p: u[:1] - u[1:2] * p["m"])],
    "nonlinear": lambda s: [Equality("energy", scaled(energy, s))],
    "nonlinear beside another": lambda s: [Equality("energy", scaled(energy, s)), Equality("product", product)],
    "inequalities": lambda s: [Equality("mass", scaled(mass, s)), Inequality("peaks", scaled(peaks, s))],
    "inequalities beside another": lambda s: [
        Equality("mass", mass), Inequality("peaks", scaled(peaks, s)), Bounds(lower=-0.4)],
    "on kinks": lambda s: [Inequality("sizes", scaled(sizes, s))],
    "on kinks beside another": lambda s: [Inequality("sizes", scaled(sizes, s)), Equality("mass", lambda u, p: mass(u, p) + 0.8)],
}  # fmt: skip
M = torch.tensor([[1.1], [0.8], [1.3]], dtype=torch.float64)


def draw(seed: int) -> Tensor:
    return torch.randn(3, N, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def gradients(make: Make, factor: float, kinked: bool = False) -> tuple[Tensor, Tensor]:
    """Return the gradients in û and in m of laws times a factor, at the answer of the laws themselves."""
    project, other = (Projector(make(one), (N,), {"m": M[:1]}, tolerance=1e-12) for one in (1.0, factor))
    u_hat, m = draw(1).requires_grad_(), M.clone().requires_grad_()
    with torch.no_grad():
        inside = {"m": M}
        solved = project.method.solve(u_hat.detach(), inside, 1e-12, None, Budget.of(LIMIT, SECONDS))
        ends = project(u_hat.detach(), inside)
        assert ends.converged.all()
        assert bool(ends.generalized.any()) == kinked
        rows = other.structure.residual(draw(2), inside) / project.structure.residual(draw(2), inside)
        there = replace(solved, multipliers=solved.multipliers / rows)
    answer = attach_gradient(
        u_hat, solved.u, other.structure, inside, {"m": m}, solved.u, there.multipliers,
        partial(other.method.adjoint, there, inside),
    )  # fmt: skip
    by_u, by_m = torch.autograd.grad((answer * draw(3)).sum(), [u_hat, m])
    return by_u, by_m


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_those_of_the_law_without_its_factor(name: str):
    """The multipliers of a law times s are those of the law divided by s, and nothing else changes."""
    kinked = "kinks" in name
    expected = gradients(CASES[name], 1.0, kinked)
    assert all(one.abs().max() > 0.1 for one in expected)
    for factor in FACTORS:
        for found, truth in zip(gradients(CASES[name], factor, kinked), expected):
            assert float((found - truth).abs().max()) <= RELATIVE * float(truth.abs().max()), factor


def test_matrix_free_gradients_too(monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object) -> None:
        raise TooDense("law expects fewer entries", 10**9)

    monkeypatch.setattr("snapfm.project.projector.compile_laws", refuse)
    for name in ("nonlinear beside another", "inequalities beside another"):
        expected = gradients(CASES[name], 1.0)
        for factor in (1e-11, *FACTORS, 1e11):  # where multipliers are compared with absolute numbers, it shows
            for found, truth in zip(gradients(CASES[name], factor), expected):
                assert float((found - truth).abs().max()) <= 1e-7 * float(truth.abs().max()), factor


@pytest.mark.parametrize("name", ["affine", "nonlinear", "inequalities", "on kinks"])
def test_the_gradient_of_a_small_law_is_that_of_finite_differences(name: str):
    factor, step = 1e-6, 1e-6
    project = Projector(CASES[name](factor), (N,), {"m": M[:1]}, tolerance=1e-13 * factor)
    u_hat, m, along = draw(1).requires_grad_(), M.clone().requires_grad_(), draw(4)
    by_u, by_m = torch.autograd.grad((project(u_hat, {"m": m}).u * draw(3)).sum(), [u_hat, m])
    ahead, behind = (
        project(u_hat.detach() + sign * step * along, {"m": M + sign * step}).u for sign in (1.0, -1.0)
    )  # fmt: skip
    slope = ((ahead - behind) * draw(3)).sum(1) / (2 * step)
    torch.testing.assert_close((by_u * along).sum(1) + by_m.sum(1), slope, rtol=1e-6, atol=1e-7)
