"""The table of lowerings: one entry per aten operator that has a scalar form; for real numbers and for complex ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from torch.fx import Node

from snapfm.structure.lowering.tape import Form

if TYPE_CHECKING:
    from snapfm.structure.lowering.walk import Walk

# A lowering gives the form of a result, or a tuple of them where torch gives several; None has no scalar form.
Lowered: TypeAlias = "Callable[[Walk, Node], Form | tuple[Form | None, ...]]"

REAL: dict[str, Lowered] = {}
COMPLEX: dict[str, Lowered] = {}  # operators that read complex numbers which vary, and bend


def lowers(*names: str, table: dict[str, Lowered] = REAL) -> Callable[[Lowered], Lowered]:
    """Register a lowering for aten operators by name, every overload included."""

    def register(function: Lowered) -> Lowered:
        for name in names:
            if name in table:
                raise AssertionError(f"two lowerings for aten.{name}")
            table[name] = function
        return function

    return register
