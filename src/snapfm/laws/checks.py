"""Checks of a law when it is made, and what all checks of arguments share: kinds of values, and Check, a test with its wording.

A value that cannot be used is refused with an error in three parts, before any work. Imports errors only.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from numbers import Integral, Real
from typing import Any, NamedTuple, TypeGuard

import numpy as np
import torch
from torch import Tensor

from snapfm.errors import LawError, ParamsError, ShapeError, SnapfmError


class Check(NamedTuple):
    """What an argument has to be: a test, its wording, what to do about any other value, and the error for it."""

    holds: Callable[[Any], bool]
    expected: str
    cure: str
    error: type[SnapfmError] = ParamsError

    def apply(self, argument: str, value: Any) -> None:
        """Raise the error unless the test holds; `argument` is how the caller wrote it."""
        if not self.holds(value):
            raise self.error(f"{argument} expects {self.expected}; got {value!r}. {self.cure}")


def check_settings(settings: object, **checks: Check) -> None:
    """Check attributes of settings by name."""
    for name, check in checks.items():
        check.apply(f"{type(settings).__name__}({name})", getattr(settings, name))


def is_whole(value: object) -> TypeGuard[int]:
    """Whether a value is a whole number, of Python or of numpy; True and False are not."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def is_real(value: object) -> TypeGuard[float]:
    """Whether a value is a real number, of Python or of numpy; True, False and tensors are not."""
    return isinstance(value, Real) and not isinstance(value, bool)


def is_count(value: object) -> bool:
    """Whether a value is a whole number, at least one."""
    return is_whole(value) and value >= 1


def is_positive(value: object) -> bool:
    """Whether a value is a positive, finite number."""
    return is_real(value) and 0.0 < value < math.inf


def is_share(value: object) -> bool:
    """Whether a value is a number from 0 to 1."""
    return is_real(value) and 0.0 <= value <= 1.0


def or_none(holds: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Return the test that accepts None too."""
    return lambda value: value is None or holds(value)


def check_name(name: Any) -> None:
    """Accept a non-empty text: reports show it."""
    if not isinstance(name, str) or not name.strip():
        raise LawError(
            f"A law expects a non-empty name; got {name!r}. Name it after what it states, such as 'mass': reports use it."
        )


def check_function(kind: str, name: Any, function: Any) -> None:
    """Accept a name and a function of the field and its params; `kind` is the class the caller wrote."""
    if callable(name) and isinstance(function, str):
        raise LawError(
            f"{kind}(name, function) expects the name first; got the function first and {function!r} second. Swap the two: "
            f"{kind}({function!r}, function)."
        )
    check_name(name)
    check_callable(
        f"{kind}('{name}', function)", function, "function(u, params) -> residual", 2,
        "a function of the field and its params, function(u, params)", "Write lambda u, p: ..., also where no params are read.",
    )  # fmt: skip


def check_callable(call: str, function: Any, form: str, count: int, expected: str = "", cure: str = "") -> None:
    """Accept a function of `count` arguments, which `form` shows."""
    if isinstance(function, type) or not callable(function):
        raise LawError(f"{call} expects a callable {form}; got {named(function)}. Wrap it: lambda u, p: ...")
    if not takes(function, count):
        raise LawError(
            f"{call} expects {expected or f'a function {form}'}; got one that takes {signature_of(function)}. "
            f"{cure or f'Give it these {count} arguments, also where one is not read.'}"
        )


def takes(function: Callable[..., Any], count: int) -> bool:
    """Whether a function can be called with so many arguments; True if its signature is unknown."""
    signature = signature_of(function)
    try:
        if signature is not None:
            signature.bind(*[None] * count)
    except TypeError:
        return False
    return True


def signature_of(function: Callable[..., Any]) -> inspect.Signature | None:
    """Return the arguments of a function without their types; None if unknown, as for functions not written in Python."""
    try:
        found = inspect.signature(function)
    except (TypeError, ValueError):
        return None
    plain = [one.replace(annotation=inspect.Parameter.empty) for one in found.parameters.values()]
    return found.replace(parameters=plain, return_annotation=inspect.Signature.empty)


def check_limits(lower: Any, upper: Any, kind: str = "Bounds") -> None:
    """Accept at least one real limit; two must broadcast with lower <= upper. An infinite limit means no limit."""
    if lower is None and upper is None:
        raise LawError(f"{kind}(lower, upper) expects at least one limit; got none. Give lower=..., upper=... or both.")
    low, high = _limit(kind, "lower", lower, -torch.inf), _limit(kind, "upper", upper, torch.inf)
    whole = "field" if kind == "Bounds" else "value"
    try:
        gap = high - low
    except RuntimeError as cause:
        raise ShapeError(
            f"{kind}(lower, upper) expects limits that broadcast to one {whole}; got shapes {tuple(low.shape)} and "
            f"{tuple(high.shape)}. Give numbers, or tensors of the {whole}'s shape."
        ) from cause
    if not bool((gap >= 0).all()):
        raise LawError(
            f"{kind}(lower, upper) expects lower <= upper everywhere; got a gap of {float(gap.min()):g}. "
            "Swap the two, or drop the points that have no room."
        )


def own(law: Any, *arguments: str) -> None:
    """Replace arguments of a frozen law by copies, so that it stays as it was made whatever the caller writes to them."""
    for argument in arguments:
        object.__setattr__(law, argument, _copied(getattr(law, argument)))


def _copied(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, np.ndarray):
        return value.copy()
    if type(value) in (list, tuple):
        return type(value)(_copied(one) for one in value)
    return value


def check_pattern(kind: str, name: str, pattern: Any, argument: str = "pattern") -> None:
    """Accept two equally long lists of whole numbers >= 0. Their upper end is checked later, when the size is known."""
    expected = (
        f"{kind}('{name}', {argument}=(rows, columns)) expects two equally long lists of whole numbers >= 0: the row and the "
        "column of every entry"
    )
    cure = "Index the flattened residual and the flattened field, from 0."
    try:
        items = -1 if isinstance(pattern, (str, Mapping)) else len(pattern)
    except TypeError:  # not a list
        items = -1
    if items < 0:
        raise LawError(f"{expected}; got {named(pattern)}. {cure}")
    if items != 2:
        raise LawError(
            f"{expected}; got {items} items. Turn a list of pairs into two lists: {argument}=tuple(zip(*pairs)); an array of "
            f"pairs: {argument}=pairs.T."
        )
    rows, columns = (_indices(side) for side in pattern)
    for side, values in zip(pattern, (rows, columns)):
        if values is None:
            raise LawError(f"{expected}; got {named(side)} that holds something else. {cure}")
    if rows.size != columns.size:
        raise ShapeError(f"{expected}; got lengths {rows.size} and {columns.size}. Give both for every entry.")
    least = min(rows.min(initial=0), columns.min(initial=0))
    if least < 0:
        raise ShapeError(f"{expected}; got {least}. {cure}")


def _limit(kind: str, argument: str, limit: Any, none: float) -> Tensor:
    """Return a limit as float64 values, `none` for no limit; refuse anything but real numbers, and limits no field obeys."""
    if limit is None:
        return torch.tensor(none, dtype=torch.float64)
    call = f"{kind}({argument}=…)"
    if isinstance(limit, str):
        raise LawError(
            f"{call} expects a number, or a tensor of numbers; got the text {limit!r}. The name comes last: "
            f"Bounds({argument}=0.0, name={limit!r})."
        )
    try:
        values = torch.as_tensor(limit).detach().cpu()
    except (TypeError, ValueError, RuntimeError) as cause:
        raise LawError(
            f"{call} expects a number, or a tensor of numbers; got {named(limit)}. A limit that depends on params or on other "
            "points is an Inequality."
        ) from cause
    if values.is_complex() or values.dtype == torch.bool:
        parts = "Bound real and imaginary parts, as channels of a real field."
        raise LawError(
            f"{call} expects real numbers; got {values.dtype}. {parts if values.is_complex() else 'Write 0.0 or 1.0.'}"
        )
    values = values.double()
    cure = f"Where a point has no limit write float('{none}')."
    wrong = values.isnan()
    if bool(wrong.any()):
        came = f"NaN at {int(wrong.sum())} of {values.numel()} points" if values.dim() else "nan"
        raise LawError(f"{call} expects numbers; got {came}. {cure}")
    if bool((values == -none).any()):
        raise LawError(f"{call} expects a limit that leaves room; got {-none}, which no field obeys. {cure}")
    return values


def _indices(side: Any) -> Any:
    """Return a list of indices as an array, or None if it holds anything but whole numbers."""
    try:
        values = np.asarray(side).ravel()
    except (TypeError, ValueError, RuntimeError):  # lists of unequal length, tensors on another device
        return None
    return values if values.dtype.kind in "iu" else values.astype(np.int64) if not values.size else None


def named(value: Any) -> str:
    """Name an unusable value for a message: its type, or that it is a class."""
    return f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__


def shown(value: Any) -> str:
    """Write a value for a message; a tensor by its shape."""
    return f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else repr(value)
