"""Laws on sums over space: mass, its balances, energy, enstrophy. Each against a loop written from its equation."""

import pytest
import torch

from snapfm.grid import Axis, Grid
from snapfm.laws import Equality, Inequality
from snapfm.laws.pde import godunov, local_flux
from snapfm.laws.totals import (
    energy_balance,
    energy_decay,
    enstrophy,
    flux_balance,
    mass,
    mass_evolution,
    trapezoidal_balance,
)

GRID = Grid((Axis("x", 0.0, 1.0, 5), Axis("t", 0.0, 0.6, 4)))
RING = Grid((Axis("x", 0.0, 1.0, 5, periodic=True), Axis("t", 0.0, 0.6, 4)))
SQUARE = Grid((Axis("x", 0.0, 1.0, 3), Axis("y", 0.0, 2.0, 5), Axis("t", 0.0, 1.0, 4)))
DX, DT = 0.25, 0.2


def noise(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


U, START = noise(5, 4), noise(9)[:5]


def rows(values: list[torch.Tensor]) -> torch.Tensor:
    return torch.stack(values)


def test_mass_counts_each_point_of_a_ring_once():
    expected = rows([U[:4, k].sum() - START[:4].sum() for k in (1, 2, 3)])
    torch.testing.assert_close(mass(RING).residual(U, {"u0": START}), expected)


def test_mass_takes_the_spacing_the_repeated_point_and_the_first_row_on_request():
    law = mass(RING, repeated=True, weighted=True, start=0)
    expected = rows([DX * (U[:, k].sum() - START.sum()) for k in range(4)])
    torch.testing.assert_close(law.residual(U, {"u0": START}), expected)


def test_mass_without_a_param_compares_with_the_first_slice():
    expected = rows([U[:, k].sum() - U[:, 0].sum() for k in (1, 2, 3)])
    torch.testing.assert_close(mass(GRID, None).residual(U, {}), expected)


def test_mass_sums_over_both_axes_of_a_square():
    w, start = noise(3, 5, 4), noise(3, 5)
    expected = rows([w[:, :, k].sum() - start.sum() for k in (1, 2, 3)])
    torch.testing.assert_close(mass(SQUARE).residual(w, {"u0": start}), expected)
    weighted = mass(SQUARE, weighted=True).residual(w, {"u0": start})
    torch.testing.assert_close(weighted, 0.5 * 0.5 * expected)


def test_trapezoidal_balance():
    outflow = [0.5 * U[4, k] ** 2 - 0.5 * U[0, k] ** 2 for k in range(4)]
    expected = rows([DX * (U[:, k] - U[:, k - 1]).sum() + DT / 2 * (outflow[k] + outflow[k - 1]) for k in (1, 2, 3)])
    torch.testing.assert_close(trapezoidal_balance(GRID).residual(U, {}), expected)


@pytest.mark.parametrize("start", [0, 2])
def test_flux_balance(start):
    expected = rows(
        [
            DX * (U[1:4, k + 1] - U[1:4, k]).sum() + DT * (godunov(U[3, k], U[4, k]) - godunov(U[0, k], U[1, k]))
            for k in range(start, 3)
        ]
    )
    torch.testing.assert_close(flux_balance(GRID, start=start).residual(U, {}), expected)


def test_flux_balance_is_the_sum_of_the_local_flux_rows():
    local = local_flux(GRID, None, "godunov").residual(U, {})
    torch.testing.assert_close(flux_balance(GRID).residual(U, {}), DX * local.sum(0))


@pytest.mark.parametrize("inner", [False, True])
def test_mass_evolution(inner):
    rate, diffusivity = 0.3, 0.7
    points = range(1, 4) if inner else range(5)
    expected = []
    for k in (1, 2, 3):
        gain = 0.0
        for j in (k, k - 1):
            growth = sum(rate * DX * U[i, j] * (1 - U[i, j]) for i in points)
            left, right = (-diffusivity * (U[b, j] - U[a, j]) / DX for a, b in ((0, 1), (3, 4)))
            gain = gain + DT / 2 * (growth + left - right)
        expected.append(sum(DX * (U[i, k] - U[i, k - 1]) for i in points) - gain)
    found = mass_evolution(GRID, rate, diffusivity, inner=inner).residual(U, {})
    torch.testing.assert_close(found, rows(expected))


def test_energy_decay_is_an_inequality_on_neighbouring_slices():
    law = energy_decay(GRID)
    assert isinstance(law, Inequality)
    expected = rows([DX * (U[:, k + 1] ** 2).sum() - DX * (U[:, k] ** 2).sum() for k in range(3)])
    torch.testing.assert_close(law.residual(U, {}), expected)


def test_energy_balance_takes_the_dissipation_of_the_earlier_slice():
    law = energy_balance(GRID, 0.4)
    assert isinstance(law, Equality)
    lost = [2 * 0.4 * DT * DX * (((U[1:, k] - U[:-1, k]) / DX) ** 2).sum() for k in range(3)]
    torch.testing.assert_close(law.residual(U, {}), energy_decay(GRID).residual(U, {}) + rows(lost))


def test_enstrophy():
    w, start = noise(3, 5, 4), noise(3, 5)
    expected = rows([0.5 * 0.5 * ((w[:, :, k] ** 2).sum() - (start**2).sum()) for k in (1, 2, 3)])
    torch.testing.assert_close(enstrophy(SQUARE).residual(w, {"u0": start}), expected)


def test_laws_keep_the_dtype_of_the_field():
    u, params = U.float(), {"u0": START.float()}
    for law in (mass(GRID, weighted=True), trapezoidal_balance(GRID), flux_balance(GRID), energy_decay(GRID)):
        assert law.residual(u, params).dtype == torch.float32
