"""The kinds of law: Equality (h = 0), Inequality (g <= 0), Bounds on the field itself, and Oracle (laws.oracle).

A law states WHAT must hold, as a plain torch function of ONE field and its params. It knows no solver and no batch.
May import grid and errors only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from torch import Tensor

from snapfm.laws.checks import check_function, check_limits, check_name, check_pattern, own


class Law:
    """A physical law on fields: an Equality, an Inequality, Bounds, or an Oracle.

    Lists that mix them are lists of laws, also for a type checker: `laws: list[snapfm.Law] = [...]`, or without the annotation.
    """

    name: str


Params: TypeAlias = Mapping[str, Tensor]
"""What laws read besides the field, by name: tensors with a leading batch axis of size b, or 1 if all samples share them.

A law's function gets the slice of its own sample, without that axis.
"""

Residual: TypeAlias = Callable[[Tensor, Params], Tensor]
Coordinates: TypeAlias = tuple[Sequence[int], Sequence[int]]


@dataclass(frozen=True)
class _Rows(Law):
    """A named stack of rows: `function(u, params)` of one field returns their signed residuals, in any shape.

    `pattern` replaces automatic detection: (rows, columns) of every entry of the Jacobian that can be non-zero,
    over the flattened residual and the flattened field. It may list too many entries, never too few.
    """

    name: str
    function: Residual
    pattern: Coordinates | None = None

    def __post_init__(self) -> None:
        kind = type(self).__name__
        check_function(kind, self.name, self.function)
        if self.pattern is not None:
            check_pattern(kind, self.name, self.pattern)
            own(self, "pattern")

    def residual(self, u: Tensor, params: Params) -> Tensor:
        """Evaluate the signed residual of one field."""
        return self.function(u, params)


@dataclass(frozen=True)
class Equality(_Rows):
    """A law whose residuals must be zero: function(u, params) = 0.

    `function` is a plain torch function of ONE field u (*shape) and its params, each without the batch axis. It returns
    residuals of any shape, one row for each number. `name` appears in results and messages. `pattern`, (rows, columns) of all
    Jacobian entries that can be non-zero, replaces automatic detection; it may list too many entries, never too few.
    """


@dataclass(frozen=True)
class Inequality(_Rows):
    """A law whose residuals must not be positive: function(u, params) <= 0.

    `function` is a plain torch function of ONE field u (*shape) and its params, each without the batch axis. It returns
    residuals of any shape, one row for each number. `name` and `pattern` are as for Equality.
    """


@dataclass(frozen=True)
class Bounds(Law):
    """Limits on the field at every point: lower <= u <= upper.

    `lower` and `upper` are numbers, or tensors that broadcast to ONE field (*shape); None or infinite means no limit. For fields
    (c, nx, nt), a tensor of shape (c, 1, 1) gives each component its own limit.
    """

    lower: float | Tensor | None = None
    upper: float | Tensor | None = None
    name: str = "bounds"

    def __post_init__(self) -> None:
        check_name(self.name)
        check_limits(self.lower, self.upper)
        own(self, "lower", "upper")
