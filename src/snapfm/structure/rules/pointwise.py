"""Rules for operators that work element by element, where more is known than that, or torch's mark is missing."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from snapfm.structure.rules.registry import Call, Found, Operand, pointwise, rule
from snapfm.structure.sets import Sets, union

rule("_to_copy", "rsub")(pointwise)  # torch has no mark on them


@rule("sign", "floor", "ceil", "round", "trunc", "detach")
def flat_steps(call: Call) -> Found:
    """Give steps, which have no slope, and values that the law itself takes no slope of."""
    return Sets.empty(call.value.numel(), call.width)


@rule("div")
def quotient(call: Call) -> Found:
    """Divide; a quotient that is rounded has no slope."""
    return pointwise(call) if call.kwargs.get("rounding_mode") is None else flat_steps(call)


@rule("pow")
def power(call: Call) -> Found:
    """Raise to a power; known exponents of zero leave nothing of the base."""
    base, exponent = call.args[0], call.args[1]
    if isinstance(exponent, Operand) and (exponent.reads is not None or not exponent.known):
        return pointwise(call)
    value = exponent.value if isinstance(exponent, Operand) else torch.tensor(exponent)
    return call.spread(base).keep((value != 0).expand(call.value.shape).reshape(-1).numpy())


@rule("mul")
def product(call: Call) -> Found:
    """Multiply: where a factor is a known zero nothing is read."""
    return _without_zeros(call, call.args[0], call.args[1])


@rule("where")
def choice(call: Call) -> Found:
    """Choose: by a known condition each element is that of one branch."""
    condition, yes, no = call.args
    if condition.reads is not None or not condition.known:
        return pointwise(call)
    mask = condition.value.expand(call.value.shape).reshape(-1).numpy()
    return union([call.spread(yes).keep(mask), call.spread(no).keep(~mask)])


@rule("mse_loss", "huber_loss", "smooth_l1_loss")
def loss(call: Call) -> Found:
    """Compare element by element, then add up unless asked not to."""
    one, other = call.args[0], call.args[1]
    shape = torch.broadcast_shapes(one.value.shape, other.value.shape)  # type: ignore[no-untyped-call]
    sets = union([call.spread(one, shape), call.spread(other, shape)])
    return sets if call.value.shape == shape else sets.group(np.zeros(sets.size, np.int64), np.arange(sets.size), 1)


@rule("view_as_real", "view_as_complex")
def complex_parts(call: Call) -> Found:
    """Split complex numbers into two real ones, or join them."""
    sets = call.reads(call.args[0])
    if call.value.is_complex():
        size = call.value.numel()
        return sets.group(np.repeat(np.arange(size), 2), np.arange(2 * size), size)
    return sets.gather(np.repeat(np.arange(sets.size), 2))


def _without_zeros(call: Call, one: Any, other: Any) -> Sets:
    for scale, form in ((one, other), (other, one)):
        if not isinstance(scale, Operand) or (scale.known and scale.reads is None):
            value = scale.value if isinstance(scale, Operand) else torch.tensor(scale)
            return call.spread(form).keep((value != 0).expand(call.value.shape).reshape(-1).numpy())
    return union([call.spread(one), call.spread(other)])
