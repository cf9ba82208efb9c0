"""GaussianMixture: fields that are not Gaussian, as a mixture in a few coordinates, and what it becomes given a state.

Fields on a curved family, or in several modes, vary around a state in a way of their own. The mixture is fitted by expectation
maximization; how many Gaussians it has is decided by fields that were left out. Gaussians that overlap are one mode: a mode
stands for a curved piece of the distribution, and its Gaussians are merged to one covariance once the state is known. Modes
that do not overlap are kept apart, for the laws to choose between (math.md, eq. pieces).

Knows coordinates only: nothing of fields, laws or paths.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from snapfm.arrays import Index, Values
from snapfm.display import brief

_COUNTS = (1, 2, 4, 8, 16, 32)  # numbers of Gaussians that are tried
_PER_AXIS = 4  # fields that a Gaussian needs for each coordinate, on average
_LEFT_OUT = 5  # every fifth field decides
_LEVELS = (0.3, 0.1, 0.03)  # noise, relative to the size of the fields, under which the fields left out are judged
_NOISES = 2  # draws of it
_SURE = 2.0  # standard errors by which more Gaussians have to be better
_ROUNDS, _SORTING = 20, 10  # of expectation maximization, and of the k-means that starts it
_FLOOR = 1e-6  # least variance in a Gaussian relative to the largest of the fields
# Gaussians on a thin family touch without an overlap: whether they do is judged under noise of this relative size.
_BLUR = 0.1
_OVERLAP = 0.02  # share of the smaller Gaussian's fields that may belong to the other if they are different modes
_NEGLIGIBLE = 1e-9  # share of a Gaussian that does not matter


@dataclass(frozen=True, eq=False)
class Given:
    """One mode given a state: the logarithm of its share, its mean (q,) and covariance (q, q)."""

    share: float
    mean: Values
    covariance: Values


@dataclass(frozen=True, eq=False)
class GaussianMixture:
    """Gaussians with weights (k,), means (k, q), principal axes (k, q, q) in columns, variances (k, q), and their modes (k,)."""

    weights: Values
    means: Values
    axes: Values
    variances: Values
    modes: Index

    def __repr__(self) -> str:
        return brief(self)

    @property
    def count(self) -> int:
        """Number of modes."""
        return int(self.modes.max()) + 1

    def scaled(self, factor: float) -> GaussianMixture:
        """Return the mixture of coordinates times a factor."""
        return replace(self, means=factor * self.means, variances=factor**2 * self.variances)

    def densities(self, states: Values, data: float, noise: float) -> Values:
        """Return the logarithm (b, k) of each weight times its density at states data·x + noise·white (b, q)."""
        total = data**2 * self.variances + noise**2
        found = np.empty((len(states), len(self.weights)))
        for k, axes in enumerate(self.axes):
            away = (states - data * self.means[k]) @ axes
            found[:, k] = -0.5 * ((away * away / total[k]).sum(axis=1) + np.log(2.0 * np.pi * total[k]).sum())
        return found + np.log(self.weights)

    def at(self, data: float, noise: float) -> MixtureAt:
        """Prepare for states data·x + noise·white of one noise level."""
        return MixtureAt(self, data, noise)


class MixtureAt:
    """A mixture at one noise level: what all states share."""

    def __init__(self, pieces: GaussianMixture, data: float, noise: float) -> None:
        self.pieces, self.data = pieces, data
        total = data**2 * pieces.variances + noise**2
        self._precision, self._logs = 1.0 / total, np.log(pieces.weights) - 0.5 * np.log(total).sum(axis=1)
        self._gain = data * pieces.variances / total
        left = pieces.variances * noise**2 / total
        self.least = float(left.min())  # no direction has a smaller variance given any state
        self._left = np.stack([(axes * one) @ axes.T for axes, one in zip(pieces.axes, left)])
        self._turned = np.ascontiguousarray(np.swapaxes(pieces.axes, 1, 2))
        self._members = [np.flatnonzero(pieces.modes == mode) for mode in range(pieces.count)]

    def given(self, state: Values) -> tuple[Values, list[Given]]:
        """Return the mean (q,) of the coordinates given one state (q,), and each mode."""
        away = (self._turned @ (state - self.data * self.pieces.means)[:, :, None])[:, :, 0]
        logs = self._logs - 0.5 * (away * away * self._precision).sum(axis=1)
        means = self.pieces.means + (self.pieces.axes @ (away * self._gain)[:, :, None])[:, :, 0]
        return _normalized(logs) @ means, [self._mode(members, logs, means) for members in self._members]

    def _mode(self, members: Index, logs: Values, means: Values) -> Given:
        """Merge the Gaussians of a mode."""
        own = _normalized(logs[members])
        members, own = members[own > _NEGLIGIBLE], own[own > _NEGLIGIBLE]
        mean = own @ means[members]
        off = means[members] - mean
        covariance = (own[:, None] * off).T @ off
        for share, k in zip(own, members):
            covariance += share * self._left[k]
        highest = logs[members].max()
        return Given(float(highest + np.log(np.exp(logs[members] - highest).sum())), mean, covariance)


def fitted(coordinates: Values) -> GaussianMixture | None:
    """Fit to coordinates (count, q) with mean zero; None if one Gaussian describes fields that were left out as well."""
    count, axes = coordinates.shape
    generator = np.random.default_rng(0)
    left_out = np.arange(count) % _LEFT_OUT == 0
    seen, judged = coordinates[~left_out], coordinates[left_out]
    size = float(np.sqrt(coordinates.var(axis=0).max(initial=0.0)))
    if not size > 0.0:
        return None
    noises = generator.standard_normal((_NOISES, *judged.shape))
    best: Values = np.zeros(len(judged))
    found = 1
    for pieces in _COUNTS:
        if len(seen) < _PER_AXIS * axes * pieces:
            break
        trial = _fit(seen, pieces, size, np.random.default_rng(0))
        scores = [
            _log_sum(trial.densities(judged + level * size * noise, 1.0, level * size))
            for level in _LEVELS
            for noise in noises
        ]
        score = np.stack(scores).sum(axis=0)
        gain = score - best
        if pieces == 1 or gain.mean() > _SURE * gain.std() / np.sqrt(len(gain)):
            best, found = score, pieces
    if found == 1:
        return None
    whole = _fit(coordinates, found, size, np.random.default_rng(0))
    noise = _BLUR * size
    blurred = coordinates + noise * generator.standard_normal(coordinates.shape)
    modes = _modes(_normalized(whole.densities(blurred, 1.0, noise)))
    return GaussianMixture(whole.weights, whole.means, whole.axes, whole.variances, modes)


def _fit(coordinates: Values, pieces: int, size: float, generator: np.random.Generator) -> GaussianMixture:
    """Return a mixture of at most `pieces` Gaussians, all in one mode."""
    shares = np.eye(pieces)[_sorted(coordinates, pieces, generator)]
    mixture = _mixture(coordinates, shares, size)
    for _ in range(_ROUNDS if pieces > 1 else 0):
        shares = _normalized(mixture.densities(coordinates, 1.0, 0.0))
        mixture = _mixture(coordinates, shares, size)
    return mixture


def _sorted(coordinates: Values, pieces: int, generator: np.random.Generator) -> Index:
    """Return the nearest of `pieces` centers for each field (k-means, started far apart)."""
    centers = coordinates[generator.integers(len(coordinates), size=1)]
    for _ in range(pieces - 1):
        away = _distances(coordinates, centers).min(axis=1)
        centers = np.concatenate([centers, coordinates[[generator.choice(len(away), p=away / away.sum())]]])
    nearest: Index = _distances(coordinates, centers).argmin(axis=1)
    for _ in range(_SORTING):
        for k in range(pieces):
            if (nearest == k).any():
                centers[k] = coordinates[nearest == k].mean(axis=0)
        nearest = _distances(coordinates, centers).argmin(axis=1)
    return nearest


def _distances(coordinates: Values, centers: Values) -> Values:
    found: Values = (
        (coordinates * coordinates).sum(axis=1)[:, None]
        - 2.0 * coordinates @ centers.T
        + (centers * centers).sum(axis=1)
    )
    return np.maximum(found, 0.0)


def _mixture(coordinates: Values, shares: Values, size: float) -> GaussianMixture:
    """Return the Gaussians that fields with shares (count, k) have; those with too few fields are dropped."""
    shares = shares[:, shares.sum(axis=0) > coordinates.shape[1] + 1]
    shares = shares / np.maximum(shares.sum(axis=1, keepdims=True), np.finfo(float).tiny)
    weights = shares.sum(axis=0)
    means = shares.T @ coordinates / weights[:, None]
    axes, variances = [], []
    for k, mean in enumerate(means):
        away = coordinates - mean
        own, turned = np.linalg.eigh((shares[:, k, None] * away).T @ away / weights[k])
        axes.append(turned)
        variances.append(own.clip(min=0.0) + _FLOOR * size**2)
    return GaussianMixture(
        weights / weights.sum(), means, np.stack(axes), np.stack(variances), np.zeros(len(weights), np.int64)
    )


def _modes(shares: Values) -> Index:
    """Number the sets of Gaussians that overlap, from the share (count, k) of each in each field."""
    each = shares.sum(axis=0)
    joined = shares.T @ shares > _OVERLAP * np.minimum.outer(each, each)
    mode = np.arange(len(each))
    for _ in each:  # the least number reaches every member of a set in as many rounds
        mode = np.where(joined, mode[None], len(each)).min(axis=1)
    found: Index = np.unique(mode, return_inverse=True)[1]
    return found


def _normalized(logs: Values) -> Values:
    """Return shares that add up to one along the last axis."""
    found = np.exp(logs - logs.max(axis=-1, keepdims=True))
    shares: Values = found / found.sum(axis=-1, keepdims=True)
    return shares


def _log_sum(logs: Values) -> Values:
    highest = logs.max(axis=1)
    found: Values = highest + np.log(np.exp(logs - highest[:, None]).sum(axis=1))
    return found
