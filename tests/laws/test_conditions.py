"""Laws that pin points: initial, Dirichlet, Neumann, periodic closure."""

import torch

from snapfm.laws import dirichlet, initial, neumann, periodic

U = torch.arange(15.0, dtype=torch.float64).reshape(3, 5) ** 1.5


def test_initial_reads_the_first_time_of_any_field():
    start = torch.ones(3, dtype=torch.float64)
    torch.testing.assert_close(initial().residual(U, {"u0": start}), U[:, 0] - start)
    square = U.reshape(3, 1, 5)
    torch.testing.assert_close(initial().residual(square, {"u0": start[:, None]}), square[:, :, 0] - start[:, None])


def test_dirichlet_takes_one_number_or_one_per_time():
    value, values = torch.tensor(0.3, dtype=torch.float64), torch.linspace(0, 1, 5, dtype=torch.float64)
    torch.testing.assert_close(dirichlet().residual(U, {"left": value}), U[0] - 0.3)
    torch.testing.assert_close(dirichlet("wall", "right").residual(U, {"wall": values}), U[2] - values)


def test_neumann_is_the_difference_to_the_neighbour():
    torch.testing.assert_close(neumann().residual(U, {}), U[2] - U[1])
    torch.testing.assert_close(neumann("left").residual(U, {}), U[0] - U[1])


def test_periodic_closes_every_slice_but_the_first():
    torch.testing.assert_close(periodic().residual(U, {}), (U[2] - U[0])[1:])
    assert periodic(start=0).residual(U, {}).shape == (5,)
