"""Network sizes by name, in one table, and the networks of their settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

from snapfm.errors import ShapeError, UnknownName
from snapfm.text import meant
from snapfm_bench.flow.frame import FrameSettings, FrameVelocity
from snapfm_bench.flow.network import FNOVelocity, NetworkSettings

Settings: TypeAlias = NetworkSettings | FrameSettings
VelocityNetwork: TypeAlias = FNOVelocity | FrameVelocity
"""A network of this package, called as velocity(u, tau) with fields (b, *shape)."""

# Modes per axis, by the number of axes: 1-D + t and 2-D + t. A real transform keeps as many frequencies along time, the
# last axis, as modes, and half as many along the others. Time is not periodic, so a field jumps from its last slice to
# its first one and needs them.
_PAPER_MODES = {2: (32, 32), 3: (16, 16, 16)}
_SMALL_MODES = {2: (16, 16), 3: (6, 6, 12)}
_SMALL_PATCH = 2

# Principal fields by the number of axes, and axes whose first slice is read point by point. With 96 of them, 1e-6 remains of
# the variance 0.1 of Burgers fields with all their jumps, and 3e-13 for reaction-diffusion. Turbulent flow is not measured.
_FRAME_SIZE = {2: 96, 3: 256}
_FRAME_ANCHORS = {2: (-1, 0), 3: (-1,)}
_LATENT_SIZE = {2: 64, 3: 384}
_LATENT_WIDTH = {2: 192, 3: 256}


def _build(shape: tuple[int, ...], modes: dict[int, tuple[int, ...]], patch: int = 1, **rest: Any) -> NetworkSettings:
    _check_axes(shape, modes, "NetworkSettings(shape, modes, ...)")
    kept = tuple(min(m, -(-n // patch)) for m, n in zip(modes[len(shape)], shape))
    return NetworkSettings(shape=shape, modes=kept, patch=patch, **rest)


def _frame(shape: tuple[int, ...], **rest: Any) -> FrameSettings:
    _check_axes(shape, _FRAME_SIZE, "FrameSettings(shape, size, ...)")
    return FrameSettings(shape=shape, size=_FRAME_SIZE[len(shape)], anchors=_FRAME_ANCHORS[len(shape)], **rest)


def _latent(shape: tuple[int, ...]) -> FrameSettings:
    _check_axes(shape, _LATENT_SIZE, "FrameSettings(shape, size, ...)")
    axes = len(shape)
    return FrameSettings(
        shape, _LATENT_SIZE[axes], _LATENT_WIDTH[axes], layers=3, anchors=(), filtered=True, separable=axes == 3
    )


def _check_axes(shape: tuple[int, ...], known: Mapping[int, Any], instead: str) -> None:
    if len(shape) not in known:
        raise ShapeError(
            f"preset(name, shape) expects a shape of {' or '.join(map(str, known))} axes; got {shape}. "
            f"Give {instead} yourself for other grids."
        )


PRESETS: dict[str, Callable[[tuple[int, ...]], Settings]] = {
    # Sized for 2 CPU cores: a forward pass of 16 heat fields of 100×100 takes a tenth of a second or less
    # (benchmarks/steps.py). Without neuralop's per-block channel MLP; the skip connections mix channels too.
    "small": partial(
        _build,
        modes=_SMALL_MODES,
        patch=_SMALL_PATCH,
        width=24,
        layers=4,
        lifting=24,
        projection=24,
        channel_mlp=False,
        predicts="data",
    ),
    # Dense layers on coefficients: a training step of 64 fields costs less than one of 16 of the small network.
    "frame": partial(_frame, width=256, layers=3),
    # The same without a look at single points, so that it is trained on coefficients alone: a step of 256 fields costs a
    # tenth of one of 16 of the small network.
    "latent": _latent,
    "paper": partial(_build, modes=_PAPER_MODES, width=64, layers=4, lifting=256, projection=256),
}
"""The settings of each preset, as a function of the shape of one field."""


def preset(name: str, shape: Sequence[int]) -> Settings:
    """Return the settings of a preset for fields of one shape; modes never exceed the grid."""
    if name not in PRESETS:
        raise UnknownName(
            f"preset(name, shape) expects one of {sorted(PRESETS)}; got {name!r}. {meant(name, PRESETS)}Choose a listed "
            "preset."
        )
    return PRESETS[name](tuple(shape))


def network_of(settings: Settings, seed: int = 0) -> VelocityNetwork:
    """Build the network that settings describe; its first weights depend on `seed` alone."""
    return FrameVelocity(settings, seed) if isinstance(settings, FrameSettings) else FNOVelocity(settings, seed)


# Training settings of the frame's network: at every flow time it sees its own answers, and initial and boundary values of
# other fields. A `meeting` of 0.5 was worse under laws in a trial, and no better without them.
FRAME_TRAINING: dict[str, Any] = {"meeting": 0.8, "own": 0.5, "least_gap": 0.05, "tau_power": 1.5}

# Plain flow matching: noise and field are drawn independently, and nothing anticipates laws. More early flow times than late
# ones: the first few hundredths decide which field a noise becomes.
PLAIN_TRAINING: dict[str, Any] = {
    "pairing": "independent",
    "imposed": (),
    "stray": 0.0,
    "least_gap": 0.1,
    "tau_power": 1.5,
}
