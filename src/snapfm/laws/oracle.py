"""Oracle: a law that brings its own derivatives, such as a simulator's, as plain functions of numpy arrays.

States WHAT must hold, like the other kinds of law: lower <= value(u, params) <= upper. compile.oracle evaluates it on batches.
May import errors and the checks of laws only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor

from snapfm.arrays import Index, Mask, Values
from snapfm.errors import LawError, ShapeError
from snapfm.laws.base import Law
from snapfm.laws.checks import Check, check_callable, check_function, check_limits, check_pattern, own

Array: TypeAlias = Any  # a numpy array or a torch tensor, as `arrays` says
Limit: TypeAlias = float | Sequence[float] | Values | Tensor | None

_ARRAYS = Check(
    lambda name: name in ("numpy", "torch"), "'numpy' or 'torch'", "It says what functions get; leave it out for numpy.", LawError
)  # fmt: skip
_READS = Check(
    lambda names: not isinstance(names, str) and all(isinstance(name, str) for name in names or ()),
    "a list of names of params", "Write reads=['u0'], or reads=[] for none.", LawError,
)  # fmt: skip


@dataclass(frozen=True)
class Oracle(Law):
    """A law with its own derivatives, such as a simulator: lower <= value(u, params) <= upper; by default value(u, params) = 0.

    All functions get ONE field (*shape) and its params as float64 copies: numpy arrays, or tensors if `arrays` is "torch". They
    return numpy arrays, tensors or lists. If one raises or returns NaN, its sample is NONFINITE; other samples are not affected.

    `value(u, params)` returns m numbers in any shape. `jacobian(u, params)` returns the values at the entries of `pattern`
    (rows, columns), in that order, or a dense or sparse matrix (m, n) over the flattened value and field. Without a pattern,
    every row may depend on every unknown. `hessian(u, params, multipliers)` returns Σ multipliers·∇²value, with multipliers
    (m,), in the same ways: `hessian_pattern` lists one triangle or both. Without it, pairs of unknowns that share a row of
    `pattern` may be coupled. Without `hessian`, the curvature is not known: more iterations, `second_order` is -1, no gradients.
    For an affine value write hessian_pattern=([], []).

    `lower` and `upper` are numbers or arrays that broadcast to the value; None or infinite means no limit. An entry
    between two different limits has two rows: those of upper limits and equalities come first, then those of lower limits.
    `reads` names the params that the functions may read; gradients in the others are then possible. `example` is a field at which
    the functions can be evaluated, where derivatives are checked once; the default is random between 0.1 and 0.9.
    With `threads`, several threads may call the functions at once.
    """

    name: str
    value: Callable[[Array, Mapping[str, Array]], Any]
    jacobian: Callable[[Array, Mapping[str, Array]], Any]
    hessian: Callable[[Array, Mapping[str, Array], Array], Any] | None = None
    _: KW_ONLY
    lower: Limit = 0.0
    upper: Limit = 0.0
    pattern: tuple[Sequence[int], Sequence[int]] | None = None
    hessian_pattern: tuple[Sequence[int], Sequence[int]] | None = None
    reads: Sequence[str] | None = None
    example: Any = None
    arrays: Literal["numpy", "torch"] = "numpy"
    threads: bool = False

    def __post_init__(self) -> None:
        check_function("Oracle", self.name, self.value)
        call = f"Oracle('{self.name}', …"
        check_callable(f"{call}, jacobian)", self.jacobian, "jacobian(u, params)", 2)
        if self.hessian is not None:
            check_callable(f"{call}, hessian)", self.hessian, "hessian(u, params, multipliers)", 3)
        for argument in ("pattern", "hessian_pattern"):
            if getattr(self, argument) is not None:
                check_pattern("Oracle", self.name, getattr(self, argument), argument)
        curved = self.hessian_pattern is not None and len(self.hessian_pattern[0]) > 0
        if curved and self.hessian is None:
            raise LawError(
                f"{call}, hessian_pattern=…) expects a hessian whose entries it lists; got none. Give hessian=…, or leave the "
                "pattern out."
            )
        check_limits(self.lower, self.upper, "Oracle")
        _ARRAYS.apply(f"{call}, arrays=…)", self.arrays)
        _READS.apply(f"{call}, reads=…)", self.reads)
        own(self, "lower", "upper", "pattern", "hessian_pattern", "reads", "example")

    def residual(self, u: Tensor, params: Mapping[str, Tensor]) -> Tensor:
        """Evaluate the signed residual of one field, a row per limit."""
        value = self.values(u, params)
        rows = self.split(value.shape)
        return torch.from_numpy(rows.of(value.ravel())).to(u)

    def values(self, u: Tensor | Values, params: Mapping[str, Tensor]) -> Values:
        """Evaluate `value` at one field, as a float64 array of any shape."""
        return as_array(self.value(self.given(u), self.given_params(params)))

    def given(self, u: Tensor | Values) -> Array:
        """Return a float64 copy of a field or a param, as the functions get it."""
        if isinstance(u, np.ndarray):
            copied = np.array(u)
            return copied if self.arrays == "numpy" else torch.from_numpy(copied)
        own = u.detach().to("cpu", torch.float64 if u.is_floating_point() else u.dtype, copy=True)
        return own.numpy() if self.arrays == "numpy" else own

    def given_params(self, params: Mapping[str, Tensor]) -> dict[str, Array]:
        """Return copies of the params that the functions may read."""
        names = params if self.reads is None else [name for name in params if name in self.reads]
        return {name: self.given(params[name]) for name in names}

    def split(self, shape: tuple[int, ...]) -> Split:
        """Sort the entries of a value of this shape into rows; raises ShapeError if limits do not fit."""
        lower, upper = self._spread("lower", -np.inf, shape), self._spread("upper", np.inf, shape)
        equal = lower == upper
        above = np.flatnonzero(np.isfinite(upper))
        below = np.flatnonzero(np.isfinite(lower) & ~equal)
        return Split(
            np.concatenate([above, below]),
            np.concatenate([np.ones(len(above)), -np.ones(len(below))]),
            np.concatenate([upper[above], lower[below]]),
            np.concatenate([equal[above], np.zeros(len(below), bool)]),
        )

    def _spread(self, argument: str, none: float, shape: tuple[int, ...]) -> Values:
        limit = getattr(self, argument)
        values = np.asarray(none) if limit is None else as_array(limit)
        try:
            return np.broadcast_to(values, shape).ravel()
        except ValueError as cause:
            raise ShapeError(
                f"Oracle('{self.name}', …, {argument}=…) expects limits that broadcast to the value, of shape {shape}; got shape "
                f"{values.shape}. Give one number for all entries, or one each."
            ) from cause


@dataclass(frozen=True)
class Split:
    """The rows of an Oracle: row r is sign[r]·(value[source[r]] − limit[r])."""

    source: Index
    sign: Values
    limit: Values
    equality: Mask  # rows that must vanish; the others must not be positive

    def of(self, value: Values) -> Values:
        """Return the rows of a flat value."""
        rows: Values = self.sign * (value[self.source] - self.limit)
        return rows


def as_array(value: Any) -> Values:
    """Return numbers of numpy, torch or lists as a float64 array; raises TypeError for complex ones."""
    found = np.asarray(value.detach().cpu() if isinstance(value, Tensor) else value)
    if found.dtype.kind not in "fiu" and found.size:
        raise TypeError(f"real numbers are expected; got {found.dtype}")
    return found.astype(np.float64)
