"""Network sizes by name, in one table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from snapfm.errors import ShapeError, UnknownName
from snapfm.flow.network import NetworkSettings

# Modes per axis, by the number of axes: 1-D + t and 2-D + t. A real transform keeps as many frequencies along time, the
# last axis, as modes, and half as many along the others; time is not periodic, so a field jumps from its last slice to
# its first one and needs them.
_PAPER_MODES = {2: (32, 32), 3: (16, 16, 16)}
_SMALL_MODES = {2: (16, 16), 3: (6, 6, 12)}
_SMALL_PATCH = 2


def _build(shape: tuple[int, ...], modes: dict[int, tuple[int, ...]], patch: int = 1, **rest: Any) -> NetworkSettings:
    if len(shape) not in modes:
        raise ShapeError(
            f"preset(name, shape) expects a shape of {' or '.join(map(str, modes))} axes; got {shape}. "
            "Give NetworkSettings(shape, modes, ...) yourself for other grids."
        )
    kept = tuple(min(m, -(-n // patch)) for m, n in zip(modes[len(shape)], shape))
    return NetworkSettings(shape=shape, modes=kept, patch=patch, **rest)


PRESETS: dict[str, Callable[[tuple[int, ...]], NetworkSettings]] = {
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
    "paper": partial(_build, modes=_PAPER_MODES, width=64, layers=4, lifting=256, projection=256),
}


def preset(name: str, shape: Sequence[int]) -> NetworkSettings:
    """Give the settings of a preset for fields of one shape; modes never exceed the grid."""
    if name not in PRESETS:
        raise UnknownName(
            f"preset(name, shape) expects one of {sorted(PRESETS)}; got {name!r}. Choose a listed preset."
        )
    return PRESETS[name](tuple(shape))
