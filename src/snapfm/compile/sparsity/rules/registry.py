"""The table of sparsity rules: which elements of its operands each element of an operator's result may read.

For linear regions of a law, whose matrix is probed, and for laws without a scalar form. A rule may answer too dense, never
too sparse. A pointwise operator needs no entry, unless more is known about it (below) or torch's tag is missing. Any other
operator without an entry is treated as `dense`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from snapfm.arrays import Index
from snapfm.compile.sparsity.pattern import Sets, union
from snapfm.torch_internals import tree_leaves


@dataclass(frozen=True)
class Operand:
    """One tensor of the graph: its value at the example point and what each element reads.

    `known` means that the value is the same at every call: no unknown and no param enters it.
    """

    value: Tensor
    reads: Sets | None  # None: does not depend on the field
    known: bool


@dataclass(frozen=True)
class OperatorCall:
    """One operator call: operands in place of tensors, and the value (or tuple of values) it returned."""

    target: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    value: Any
    width: int

    @property
    def name(self) -> str:
        """The aten name, without its overload."""
        return str(self.target.overloadpacket.__name__)

    def operands(self) -> list[Operand]:
        """List all tensors that go in."""
        leaves = tree_leaves((self.args, self.kwargs))
        return [leaf for leaf in leaves if isinstance(leaf, Operand)]

    def reads(self, operand: Any) -> Sets:
        """Return what each element of an operand reads; constants read nothing."""
        if isinstance(operand, Operand) and operand.reads is not None:
            return operand.reads
        size = operand.value.numel() if isinstance(operand, Operand) else 1
        return Sets.empty(size, self.width)

    def spread(self, operand: Any, shape: torch.Size | None = None) -> Sets:
        """Broadcast what an operand reads to the shape of the result, or to another one."""
        wanted = self.value.shape if shape is None else shape
        mine = operand.value.shape if isinstance(operand, Operand) else torch.Size([])
        sets = self.reads(operand)
        return sets if mine == wanted else sets.gather(flat(positions(mine).expand(wanted)))


Found: TypeAlias = Sets | tuple[Sets | None, ...]
Rule: TypeAlias = Callable[[OperatorCall], Found]

_RULES: dict[Any, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register a rule for aten operators by name, every overload included, or for one overload by "name.overload"."""

    def register(function: Rule) -> Rule:
        for name in names:
            target = attrgetter(name)(torch.ops.aten)
            if target in _RULES:
                raise AssertionError(f"two rules for aten.{name}")
            _RULES[target] = function
        return function

    return register


def rule_for(target: Any) -> Rule | None:
    """Look up the rule of an operator; torch tags the pointwise ones."""
    found = _RULES.get(target) or _RULES.get(getattr(target, "overloadpacket", target))
    if found is None and torch.Tag.pointwise in getattr(target, "tags", ()):
        return pointwise
    return found


def pointwise(call: OperatorCall) -> Found:
    """Let an element read what the elements at its place read, with broadcasting."""
    return union([call.spread(operand) for operand in call.operands()])


def positions(shape: torch.Size | tuple[int, ...], first: int = 0) -> Tensor:
    """Number the elements of a tensor of that shape, from `first`, in float64 so that any operator can move them."""
    count = int(np.prod(shape)) if len(shape) else 1
    return torch.arange(first, first + count, dtype=torch.float64).reshape(tuple(shape))


def flat(numbers: Tensor) -> Index:
    """Turn moved element numbers back to indices."""
    return numbers.reshape(-1).to(torch.int64).numpy()


def dense(call: OperatorCall) -> Found:
    """Let every element of the result read everything the operands read: the answer when nothing is known."""
    sets = [operand.reads for operand in call.operands() if operand.reads is not None]
    whole = union([one.group(np.zeros(one.size, np.int64), np.arange(one.size), 1) for one in sets])
    values = call.value if isinstance(call.value, (tuple, list)) else (call.value,)
    spread = tuple(
        whole.shared(np.zeros(value.numel(), np.int64)) if isinstance(value, Tensor) else None for value in values
    )
    return spread if isinstance(call.value, (tuple, list)) else spread[0]  # type: ignore[return-value]


rule("_to_copy", "rsub")(pointwise)  # torch does not tag them


@rule("sign", "floor", "ceil", "round", "trunc", "detach")
def flat_steps(call: OperatorCall) -> Found:
    """Steps have no slope, and neither have values that the law detaches."""
    return Sets.empty(call.value.numel(), call.width)


@rule("div")
def quotient(call: OperatorCall) -> Found:
    """Divide; a quotient that is rounded has no slope."""
    return pointwise(call) if call.kwargs.get("rounding_mode") is None else flat_steps(call)


@rule("pow")
def power(call: OperatorCall) -> Found:
    """Raise to a power; with a known exponent of zero the base is not read."""
    base, exponent = call.args[0], call.args[1]
    if isinstance(exponent, Operand) and (exponent.reads is not None or not exponent.known):
        return pointwise(call)
    value = exponent.value if isinstance(exponent, Operand) else torch.tensor(exponent)
    return call.spread(base).keep((value != 0).expand(call.value.shape).reshape(-1).numpy())


@rule("mul")
def product(call: OperatorCall) -> Found:
    """Multiply: where a factor is a known zero nothing is read."""
    one, other = call.args[:2]
    for scale, form in ((one, other), (other, one)):
        if not isinstance(scale, Operand) or (scale.known and scale.reads is None):
            value = scale.value if isinstance(scale, Operand) else torch.tensor(scale)
            return call.spread(form).keep((value != 0).expand(call.value.shape).reshape(-1).numpy())
    return union([call.spread(one), call.spread(other)])


@rule("where")
def choice(call: OperatorCall) -> Found:
    """Choose: by a known condition each element is that of one branch."""
    condition, yes, no = call.args
    if condition.reads is not None or not condition.known:
        return pointwise(call)
    mask = condition.value.expand(call.value.shape).reshape(-1).numpy()
    return union([call.spread(yes).keep(mask), call.spread(no).keep(~mask)])


@rule("mse_loss", "huber_loss", "smooth_l1_loss")
def loss(call: OperatorCall) -> Found:
    """Compare element by element, then add up unless asked not to."""
    one, other = call.args[0], call.args[1]
    shape = torch.broadcast_shapes(one.value.shape, other.value.shape)  # type: ignore[no-untyped-call]
    sets = union([call.spread(one, shape), call.spread(other, shape)])
    return sets if call.value.shape == shape else sets.group(np.zeros(sets.size, np.int64), np.arange(sets.size), 1)


@rule("view_as_real", "view_as_complex")
def complex_parts(call: OperatorCall) -> Found:
    """Split complex numbers into two real ones, or join them."""
    sets = call.reads(call.args[0])
    if call.value.is_complex():
        size = call.value.numel()
        return sets.group(np.repeat(np.arange(size), 2), np.arange(2 * size), size)
    return sets.gather(np.repeat(np.arange(sets.size), 2))
