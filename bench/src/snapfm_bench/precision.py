"""Evaluate laws that compute in float32 in float64: what is cast to float32 stays, and weights are converted, which is exact.

The judge's own way to do this, call by call of torch; it shares nothing with the methods. What is computed from constants
alone is computed as it is written. Writes into float32 tensors stay in float32, and so does what is read from them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from snapfm.torch_internals import DispatchMode, is_mutable, tree_leaves, tree_map

_FINER = {torch.float32: torch.float64, torch.complex64: torch.complex128}


@contextmanager
def in_float64() -> Iterator[None]:
    """Let no call on float64 tensors cast to float32 or mix with it, while entered."""
    with _Functions(), _Operators():  # type: ignore[no-untyped-call]
        yield


class _Operators(DispatchMode):  # type: ignore[no-untyped-call]
    """Below autograd, where every cast is an operator with a dtype."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = (args, kwargs or {})
        args, kwargs = given if is_mutable(func) else _without_mixing(given)
        return func(*args, **kwargs)


class _Functions(TorchFunctionMode):
    """As the law calls them: functions such as convolutions refuse weights of another dtype before any operator is called."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = (args, kwargs or {})
        name = getattr(func, "__name__", "")
        writes = name in ("__setitem__", "__get__", "__set__") or (name.endswith("_") and not name.endswith("__"))
        args, kwargs = given if writes else _without_mixing(given)
        return func(*args, **kwargs)


def _without_mixing(given: Any) -> Any:
    """Convert float32 tensors and dtypes among arguments, if there is a float64 tensor among them."""
    return tree_map(_finer, given) if any(_fine(one) for one in tree_leaves(given)) else given


def _fine(one: Any) -> bool:
    return isinstance(one, Tensor) and one.dtype in _FINER.values()


def _finer(one: Any) -> Any:
    if isinstance(one, torch.dtype):
        return _FINER.get(one, one)
    return one.to(_FINER[one.dtype]) if isinstance(one, Tensor) and one.dtype in _FINER else one
