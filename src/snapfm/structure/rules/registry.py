"""The table of sparsity rules: one entry per aten operator, and the operands a rule sees.

A rule maps the tracked operands of one operator call to the tracked result. A rule may answer too dense, never too
sparse; an operator without one falls to `dense`, which assumes that everything it reads enters everything it gives.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from snapfm.structure.dependence import PARAMETRIC, Dependence, Events, combined
from snapfm.structure.sets import Index


@dataclass(frozen=True)
class Operand:
    """One tensor of the graph: its value at the example point and what is tracked of it.

    `known` says that the value is the same at every call: no unknown and no param enters it.
    """

    value: Tensor
    track: Dependence | None  # None: does not depend on the field
    known: bool


@dataclass(frozen=True)
class Call:
    """One operator call: operands in place of tensors, and the value (or tuple of values) it gave."""

    target: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    value: Any
    events: Events
    width: int

    def track(self, operand: Any) -> Dependence:
        """Give what is tracked of an operand; constants read nothing."""
        if isinstance(operand, Operand) and operand.track is not None:
            return operand.track
        size = operand.value.numel() if isinstance(operand, Operand) else 1
        return Dependence.none(size, self.width)

    def spread(self, operand: Any) -> Dependence:
        """Broadcast what is tracked of an operand to the shape of the result."""
        return self.spread_to(operand, self.value.shape)

    def spread_to(self, operand: Any, wanted: torch.Size) -> Dependence:
        """Broadcast what is tracked of an operand to a shape."""
        track = self.track(operand)
        shape = operand.value.shape if isinstance(operand, Operand) else torch.Size([])
        if shape == wanted:
            return track
        return track.gather(flat(positions(shape).expand(wanted)))


Tracked: TypeAlias = Dependence | tuple[Dependence | None, ...]
Rule: TypeAlias = Callable[[Call], Tracked]

_RULES: dict[Any, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register a rule for aten operators by name, every overload included."""

    def register(function: Rule) -> Rule:
        for name in names:
            packet = getattr(torch.ops.aten, name)
            if packet in _RULES:
                raise AssertionError(f"two rules for aten.{name}")
            _RULES[packet] = function
        return function

    return register


def rule_for(target: Any) -> Rule | None:
    """Look the rule of an operator up."""
    return _RULES.get(getattr(target, "overloadpacket", target))


def supported() -> list[str]:
    """List the aten operators that have a rule."""
    return sorted(str(packet).removeprefix("aten.") for packet in _RULES)


def positions(shape: torch.Size | tuple[int, ...], first: int = 0) -> Tensor:
    """Number the elements of a tensor of that shape, from `first`, in float64 so that any operator can move them."""
    count = int(np.prod(shape)) if len(shape) else 1
    return torch.arange(first, first + count, dtype=torch.float64).reshape(tuple(shape))


def flat(numbers: Tensor) -> Index:
    """Turn moved element numbers back to indices."""
    return numbers.reshape(-1).to(torch.int64).numpy()


def dense(call: Call) -> Tracked:
    """Let everything that is read enter everything that is given, nonlinearly: the answer when nothing is known."""
    reads = [leaf for leaf in torch.utils._pytree.tree_leaves((call.args, call.kwargs)) if isinstance(leaf, Operand)]
    tracks = [operand.track for operand in reads if operand.track is not None]
    whole = combined([t.group(np.zeros(t.size, np.int64), np.arange(t.size), 1) for t in tracks])
    whole = call.events.curve(whole).marked(PARAMETRIC)
    values = call.value if isinstance(call.value, (tuple, list)) else (call.value,)
    spread = tuple(
        whole.gather(np.zeros(value.numel(), np.int64)) if isinstance(value, Tensor) else None for value in values
    )
    return spread if isinstance(call.value, (tuple, list)) else spread[0]  # type: ignore[return-value]
