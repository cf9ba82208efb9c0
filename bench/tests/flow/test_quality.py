import pytest
import torch

from snapfm.errors import ShapeError
from snapfm_bench.flow.quality import answer_error, integrate, quality, roughness


def test_euler_steps_follow_the_velocity() -> None:
    noise = torch.full((20, 3, 5), 2.0)
    seen = []

    def velocity(u: torch.Tensor, tau: float) -> torch.Tensor:
        seen.append(tau)
        return -u

    fields = integrate(velocity, noise, steps=4)
    assert fields.shape == noise.shape
    assert fields.flatten().tolist() == pytest.approx([2.0 * 0.75**4] * fields.numel())
    assert seen[:4] == [0.0, 0.25, 0.5, 0.75]


def test_scores_of_known_samples() -> None:
    truth = torch.zeros(4, 3, 5)
    truth[::2] = 2.0  # mean 1, spread √(4/3) at every point
    truth[:, 1] += 1.0  # so that second differences are not zero
    spread = float(truth[:, 0, 0].double().std())
    report = quality(lambda u, tau: torch.full_like(u, 3.0) - u, truth, truth.mean(0) + 0.5, count=4, steps=1)
    assert report["samples"]["smse"] == pytest.approx(spread**2)
    assert report["samples"]["mmse"] == pytest.approx((4 + 1 + 4) / 3)  # sample mean 3 against rows 1, 2, 1
    assert report["samples"]["roughness"] == pytest.approx(0.0, abs=1e-6)
    assert report["constant"]["mmse"] == pytest.approx(0.25)
    assert report["constant"]["smse"] == pytest.approx(spread**2)
    assert report["true"] == {"mmse": 0.0, "smse": 0.0, "roughness": 1.0}
    assert (report["count"], report["steps"], report["truth_count"]) == (4, 1, 4)


def test_noise_is_rough_and_straight_lines_are_not() -> None:
    line = torch.arange(5.0).expand(2, 3, 5)
    noise = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(0))
    assert roughness(line) == 0.0
    assert roughness(line + noise) > 1.0


def test_one_sample_has_no_spread() -> None:
    with pytest.raises(ShapeError, match=r"at least 2 of each.*got 5 true fields and count=1\. Ask for more"):
        quality(lambda u, tau: -u, torch.zeros(5, 3, 4), torch.zeros(3, 4), count=1)


def test_quality_is_the_same_on_every_call() -> None:
    truth = torch.randn(5, 3, 4, generator=torch.Generator().manual_seed(0))
    first, second = (quality(lambda u, tau: -u, truth, truth.mean(0), count=3, steps=2) for _ in range(2))
    assert first == second


def test_the_error_of_an_answer_is_its_mean_square_distance_from_the_field() -> None:
    fields = torch.randn(20, 3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def off_by_a_half(u: torch.Tensor, tau: float) -> torch.Tensor:
        start = next(start for start in (0, 16) if len(u) == len(fields[start : start + 16]))
        return (fields[start : start + 16] + 0.5 - u) / (1.0 - tau)

    assert answer_error(off_by_a_half, fields) == pytest.approx(0.25)
