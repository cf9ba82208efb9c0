"""GaussianMixture: how many Gaussians and modes fields have, and what they become given a state."""

from __future__ import annotations

import numpy as np
import pytest

from snapfm.sampling.conditional.mixture import GaussianMixture, fitted

RANDOM = np.random.default_rng(3)


def arc(count: int, start: float) -> np.ndarray:
    angle = RANDOM.uniform(start, start + 2.0, count)
    return np.stack([np.cos(angle), np.sin(angle)], axis=1)


def test_gaussian_fields_need_no_pieces():
    assert fitted(RANDOM.standard_normal((1000, 3)) * [3.0, 1.0, 0.2]) is None
    assert fitted(np.zeros((50, 2))) is None


def test_a_curve_is_one_mode_of_several_gaussians():
    found = fitted(arc(1000, 0.0))
    assert found is not None
    assert len(found.weights) > 2
    assert found.count == 1


@pytest.mark.parametrize("curved", [False, True])
def test_what_lies_apart_is_kept_apart(curved: bool):
    first = arc(600, 0.0) if curved else 0.2 * RANDOM.standard_normal((600, 2))
    second = arc(300, 3.6) if curved else 0.2 * RANDOM.standard_normal((300, 2)) + [3.0, 0.0]
    found = fitted(RANDOM.permutation(np.concatenate([first, second])))
    assert found is not None
    assert found.count == 2
    shares = np.bincount(found.modes, weights=found.weights)
    np.testing.assert_allclose(np.sort(shares), [1 / 3, 2 / 3], atol=0.02)


def test_given_a_state_modes_have_the_moments_of_weighted_fields():
    """By Monte Carlo: fields of the mixture, weighted by the density of the state given each."""
    axes = np.linalg.qr(RANDOM.standard_normal((3, 2, 2)))[0]
    variances = np.array([[0.5, 0.1], [0.3, 0.2], [0.4, 0.4]])
    pieces = GaussianMixture(
        np.array([0.5, 0.3, 0.2]), np.array([[0.0, 0.0], [0.8, 0.2], [-1.0, 1.0]]), axes, variances, np.array([0, 0, 1])
    )
    which = RANDOM.choice(3, 400_000, p=pieces.weights)
    white = RANDOM.standard_normal((len(which), 2)) * np.sqrt(variances[which])
    fields = pieces.means[which] + (axes[which] @ white[:, :, None])[:, :, 0]
    state, data, noise = np.array([0.3, 0.2]), 0.6, 0.4
    weight = np.exp(-0.5 * ((state - data * fields) ** 2).sum(axis=1) / noise**2)
    mean, modes = pieces.at(data, noise).given(state)
    np.testing.assert_allclose(mean, weight @ fields / weight.sum(), atol=5e-3)
    shares = np.exp([mode.share for mode in modes])
    for number, mode in enumerate(modes):
        own = weight * (pieces.modes[which] == number)
        assert shares[number] / shares.sum() == pytest.approx(own.sum() / weight.sum(), abs=5e-3)
        np.testing.assert_allclose(mode.mean, own @ fields / own.sum(), atol=1e-2)
        np.testing.assert_allclose(mode.covariance, np.cov(fields.T, aweights=own, bias=True), atol=1e-2)
