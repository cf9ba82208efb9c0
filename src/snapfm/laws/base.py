"""The three kinds of law: Equality (h = 0), Inequality (g <= 0) and Bounds on the field itself.

A law is WHAT must hold, as a plain torch function of ONE field and its params; it knows no solver and no batch.
May import grid and errors only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from snapfm.errors import LawError

Params: TypeAlias = Mapping[str, Tensor]
Residual: TypeAlias = Callable[[Tensor, Params], Tensor]
Coordinates: TypeAlias = tuple[Sequence[int], Sequence[int]]


@dataclass(frozen=True)
class _Rows:
    """A named stack of rows: `function(u, params)` of one field returns their signed residuals, in any shape.

    `pattern`, where given, replaces detection: (rows, columns) of every entry of the Jacobian that can be non-zero,
    over the flattened residual and the flattened field. It may name too many entries, never too few.
    """

    name: str
    function: Residual
    pattern: Coordinates | None = None

    def __post_init__(self) -> None:
        _check_name(self.name)
        if not callable(self.function):
            raise LawError(
                f"{type(self).__name__}('{self.name}', function) expects a callable function(u, params) -> residual; "
                f"got {type(self.function).__name__}. Wrap it: lambda u, p: ..."
            )

    def residual(self, u: Tensor, params: Params) -> Tensor:
        """Evaluate the signed residual of one field."""
        return self.function(u, params)


@dataclass(frozen=True)
class Equality(_Rows):
    """Rows that must vanish: residual(u, params) = 0."""


@dataclass(frozen=True)
class Inequality(_Rows):
    """Rows that must not be positive: residual(u, params) <= 0."""


@dataclass(frozen=True)
class Bounds:
    """Limits on the field itself, point by point: lower <= u <= upper; numbers, or tensors that broadcast to the field."""

    lower: float | Tensor | None = None
    upper: float | Tensor | None = None
    name: str = "bounds"

    def __post_init__(self) -> None:
        _check_name(self.name)
        if self.lower is None and self.upper is None:
            raise LawError(
                "Bounds(lower, upper) expects at least one limit; got none. Give lower=..., upper=... or both."
            )
        if self.lower is not None and self.upper is not None:
            gap = torch.as_tensor(self.upper) - torch.as_tensor(self.lower)
            if not bool((gap >= 0).all()):
                raise LawError(
                    f"Bounds(lower, upper) expects lower <= upper everywhere; got a gap of {float(gap.min()):g}. "
                    "Swap the two, or drop the points that have no room."
                )


Law: TypeAlias = Equality | Inequality | Bounds


def _check_name(name: str) -> None:
    if not isinstance(name, str) or not name:
        raise LawError(
            f"A law expects a non-empty name; got {name!r}. Name it after what it states, such as 'mass': reports use it."
        )
