import pytest
import torch

from snapfm_bench.flow.path import LEAST_GAP, interpolate, loss

NOISE = torch.tensor([[[1.0, -2.0, 0.5]], [[4.0, 0.0, -1.0]]], dtype=torch.float64)
DATA = torch.tensor([[[3.0, 2.0, 0.5]], [[0.0, 8.0, 1.0]]], dtype=torch.float64)


def test_path_runs_from_noise_to_data_with_a_time_per_sample() -> None:
    path = interpolate(NOISE, DATA, torch.tensor([0.5, 0.25], dtype=torch.float64))
    assert path.tolist() == [[[2.0, 0.0, 0.5]], [[3.0, 2.0, -0.5]]]
    assert torch.equal(interpolate(NOISE, DATA, torch.zeros(2, dtype=torch.float64)), NOISE)
    assert torch.equal(interpolate(NOISE, DATA, torch.ones(2, dtype=torch.float64)), DATA)


def test_loss_is_the_mean_square_of_what_the_velocity_misses() -> None:
    tau = torch.tensor([0.5, 0.25], dtype=torch.float64)
    assert float(loss(lambda u, tau: DATA - NOISE, NOISE, DATA, tau)) == 0.0
    # Velocity zero misses the whole target: squares 4 + 16 + 0 and 16 + 64 + 4 over six points.
    assert float(loss(lambda u, tau: torch.zeros_like(u), NOISE, DATA, tau)) == pytest.approx(104 / 6)


def test_loss_counts_a_small_gap_as_the_least_one() -> None:
    near = 1 - LEAST_GAP / 2
    tau = torch.tensor([0.5, near], dtype=torch.float64)
    # The second sample misses 16 + 64 + 4 over half the least gap, squared: a quarter of it counts.
    assert float(loss(lambda u, tau: torch.zeros_like(u), NOISE, DATA, tau)) == pytest.approx((20 + 84 / 4) / 6)
    assert float(loss(lambda u, tau: torch.zeros_like(u), NOISE, DATA, torch.ones(2, dtype=torch.float64))) == 0.0
    # A smaller least gap counts it in full.
    half = LEAST_GAP / 2
    assert float(loss(lambda u, tau: torch.zeros_like(u), NOISE, DATA, tau, least_gap=half)) == pytest.approx(104 / 6)


def test_loss_asks_for_data_where_something_else_is_shown() -> None:
    tau = torch.tensor([0.5, 0.25], dtype=torch.float64)
    shown = DATA + 1.0
    u = interpolate(NOISE, shown, tau)
    gap = (1 - tau).view(2, 1, 1)
    assert float(loss(lambda u, tau: (DATA - u) / gap, NOISE, DATA, tau, shown)) == pytest.approx(0.0)
    missed = ((u - DATA) / gap).square().mean()
    assert float(loss(lambda u, tau: torch.zeros_like(u), NOISE, DATA, tau, shown)) == pytest.approx(float(missed))


def test_loss_hands_the_velocity_the_point_on_the_path_and_its_time() -> None:
    tau = torch.tensor([0.5, 0.25], dtype=torch.float64)
    seen = []

    def velocity(u: torch.Tensor, times: torch.Tensor) -> torch.Tensor:
        seen.append((u, times))
        return u

    loss(velocity, NOISE, DATA, tau)
    assert torch.equal(seen[0][0], interpolate(NOISE, DATA, tau))
    assert torch.equal(seen[0][1], tau)
