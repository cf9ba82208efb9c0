"""A case of the benchmark: laws as a user would write them, true fields that obey them, and inputs near and far from these.

Every case is drawn at a size; its name is its stem and that size. What is drawn follows from the case alone: its seeds are fixed.
Cases register themselves when their file in `cases/` is imported.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

import torch
from torch import Tensor

from snapfm.laws import Bounds, Equality, Inequality, Law

SAMPLES = 8
FEW_SAMPLES = 2  # of fields with more than 50 000 unknowns
TOLERANCE = 1e-8
SMALL, FAR = "small", "far"
LEVELS = (SMALL, FAR)


@dataclass(frozen=True)
class Setting:
    """Laws, true fields (b, *shape) in float64 and their params, each with a leading batch axis.

    With `units`, one for every unknown, nearest means nearest in these units, in which methods are judged.
    """

    laws: tuple[Law, ...]
    truth: Tensor
    params: dict[str, Tensor]
    units: Tensor | None = None

    def scaled(self, u: Tensor) -> Tensor:
        """Write fields in units."""
        return u if self.units is None else u / self.units

    def scaled_laws(self) -> tuple[Law, ...]:
        """Write the laws for fields in units."""
        return self.laws if self.units is None else tuple(_scaled(law, self.units) for law in self.laws)


Draw: TypeAlias = Callable[[int, torch.Generator, int], Setting]  # samples, generator, size


@dataclass(frozen=True)
class Case:
    """One law set at one size. `noise` of an input is relative to the root mean square of the true field.

    With `channels` that is taken for each entry of the first axis by itself, as they may have different units. `slack` is
    how far the true fields themselves may break the laws.
    """

    stem: str
    size: int
    tiny: int  # the size for tests
    group: str  # "issue" for the rows of an issue's table, "own" for laws of the same kinds
    draw: Draw
    noise: dict[str, float]
    samples: int
    channels: bool
    tolerance: float
    slack: float

    @property
    def name(self) -> str:
        """The stem and the size."""
        return f"{self.stem}_{self.size}"

    def setting(self, size: int | None = None, samples: int | None = None) -> Setting:
        """Draw laws, true fields and params; always the same ones."""
        generator = torch.Generator().manual_seed(_seed(self.stem))
        return self.draw(samples or self.samples, generator, self.size if size is None else size)

    def input(self, setting: Setting, level: str) -> Tensor:
        """Add white noise of a level to the true fields."""
        generator = torch.Generator().manual_seed(_seed(self.stem + level))
        truth = setting.truth
        axes = tuple(range(2 if self.channels else 1, truth.dim()))
        scale = truth.square().mean(axes, keepdim=True).sqrt()
        return truth + self.noise[level] * scale * torch.randn(truth.shape, generator=generator, dtype=torch.float64)


CASES: dict[str, Case] = {}


def case(
    *sizes: int, tiny: int, group: str = "own", small: float = 0.02, far: float = 0.5, samples: int | None = None,
    channels: bool = False, tolerance: float = TOLERANCE, slack: float = 1e-7,
) -> Callable[[Draw], Draw]:  # fmt: skip
    """Register a function that draws settings as one case per size."""

    def decorate(draw: Draw) -> Draw:
        for size in sizes:
            stem, noise = draw.__name__, {SMALL: small, FAR: far}
            one = Case(stem, size, tiny, group, draw, noise, samples or SAMPLES, channels, tolerance, slack)
            CASES[one.name] = one
        return draw

    return decorate


def broken(setting: Setting) -> float:
    """Return the largest violation of any law by the true fields."""
    worst = 0.0
    for i, u in enumerate(setting.truth):
        params = {name: value[i if len(value) > 1 else 0] for name, value in setting.params.items()}
        for law in setting.laws:
            if isinstance(law, Bounds):
                low = -torch.inf if law.lower is None else law.lower
                high = torch.inf if law.upper is None else law.upper
                over = torch.maximum(u - high, low - u).clamp(min=0.0)
            else:
                rows = law.residual(u, params).double()
                over = rows.abs() if isinstance(law, Equality) else rows.clamp(min=0.0)
            if over.numel():
                worst = max(worst, float(over.nan_to_num(nan=torch.inf).max()))
    return worst


def _scaled(law: Law, units: Tensor) -> Law:
    """Write a law for v = u/units."""
    if isinstance(law, Bounds):
        lower, upper = (None if limit is None else limit / units for limit in (law.lower, law.upper))
        return replace(law, lower=lower, upper=upper)
    assert isinstance(law, (Equality, Inequality))
    function = law.function
    return replace(law, function=lambda v, p: function(v * units, p))


def _seed(name: str) -> int:
    """Turn a name into a seed that every machine agrees on."""
    seed = 0
    for letter in name.encode():
        seed = (131 * seed + letter) % (2**31 - 1)
    return seed
