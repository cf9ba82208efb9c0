"""Evaluate a law on a whole batch at once. A sample that fails does not affect the others.

The graph under `vmap` is recorded per batch size as operators that carry the batch axis themselves, which saves the overhead of
`vmap` at every call. A batch size is recorded when it comes for the second time, so that an odd last batch costs nothing extra
(compile.trace.recording, which changes nothing global: many threads may call). A long sum or a product may round differently in
another batch.

Operators such as torch.linalg.inv raise for a whole batch when one sample is singular. That sample gets NaN, which the judge
reports as NONFINITE.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.func import vmap

from snapfm.compile.trace.recording import Unrecordable, record
from snapfm.laws import Params

# What an operator raises because of the values it is given: torch.linalg.LinAlgError is a RuntimeError; overflow and division
# by zero are ArithmeticErrors; an index computed from the field may be out of range.
RAISED = (RuntimeError, ArithmeticError, IndexError, ValueError)


def each(run: Callable[[int], Tensor], count: int) -> Tensor:
    """Stack run(0), run(1), … with NaN for those that raise; if all do, raise what they raise. An empty stack is empty."""
    if count == 0:
        return torch.zeros(0)
    values: list[Tensor | None] = []
    cause: Exception | None = None
    for number in range(count):
        try:
            values.append(run(number))
        except RAISED as error:
            values.append(None)
            cause = error
    like = next((value for value in values if value is not None), None)
    if like is None:
        assert cause is not None
        raise cause
    numbers = like if like.is_floating_point() or like.is_complex() else like.double()
    return torch.stack([torch.full_like(numbers, torch.nan) if value is None else value for value in values])


def isolated(run: Callable[[slice], Tensor], count: int) -> Tensor:
    """Return run(slice(0, count)), a batch; where that raises, its samples one by one, with NaN for those that raise."""
    try:
        return run(slice(0, count))
    except RAISED:
        if count == 1:
            raise
    return each(lambda number: run(slice(number, number + 1))[0], count)


def chosen(params: Params, some: int | slice | Tensor) -> dict[str, Tensor]:
    """Return the params of some samples, or of one."""
    return {name: value[some] for name, value in params.items()}


_KEPT = 12  # batch sizes remembered: those of a tile's lanes, and one or two of a run

Whole = Callable[[Tensor, Params], Tensor]


class Batched:
    """Evaluate `graph(u, params)` of one sample on batches: (b, *shape) to (b, m)."""

    def __init__(self, graph: Callable[[Tensor, Params], Tensor], rows: int) -> None:
        self.graph, self.rows = graph, rows
        # How to evaluate a batch size that has come before, None if it came once. Never written to: threads that read it
        # while another adds a size see the mapping as it was, or the new one.
        self._known: Mapping[int, Whole | None] = {}

    def __call__(self, u: Tensor, params: Params) -> Tensor:
        """Evaluate all at once; with gradients wanted the graph runs under `vmap`, which knows how to differentiate it."""
        count = u.shape[0]  # len(u) takes a microsecond
        if count == 0:
            return u.new_zeros(0, self.rows)
        try:
            return self._vmapped(u, params) if torch.is_grad_enabled() else self.at_once(u, params)
        except RAISED:
            pass
        try:
            return each(lambda i: self._vmapped(u[i : i + 1], chosen(params, slice(i, i + 1)))[0], count)
        except RAISED:  # for every sample; the gradient, if one is wanted, is NaN too
            return (u.flatten(1).sum(dim=1, keepdim=True) * torch.nan).expand(count, self.rows)

    def at_once(self, u: Tensor, params: Params) -> Tensor:
        """Evaluate a batch without gradients; raises what an operator raises because of one sample."""
        return self._whole(u, params)(u, params)

    def _vmapped(self, u: Tensor, params: Params) -> Tensor:
        value: Tensor = vmap(self.graph)(u, dict(params))
        return value

    def _whole(self, u: Tensor, params: Params) -> Whole:
        """Return how to evaluate a batch of this size; record it if it has come before."""
        known = self._known
        count = u.shape[0]
        found = known.get(count)
        if found is not None:
            return found
        whole = self._recorded(u, params) if count in known else None
        others = [(size, kept) for size, kept in known.items() if size != count]
        self._known = dict([*others, (count, whole)][-_KEPT:])
        return self._vmapped if whole is None else whole

    def _recorded(self, u: Tensor, params: Params) -> Whole | None:
        """Record the graph for batches of this size, unless that changes the values; None if this batch does not show it."""
        names = sorted(params)  # one by one, whatever order a caller's dict has: unpacking a dict costs at every call

        def positional(u: Tensor, *values: Tensor) -> Tensor:
            return self._vmapped(u, dict(zip(names, values)))

        with torch.inference_mode(False), torch.no_grad():
            # Copies, because tensors made in inference mode cannot be recorded.
            inputs = [u.clone(), *(params[name].clone() for name in names)]
            try:
                made = record(positional, *inputs)
                other = inputs[0] + 0.25 * inputs[0].abs()  # anywhere else: what was frozen into the record would show
                expected, found = positional(other, *inputs[1:]), made.forward(other, *inputs[1:])
            except Unrecordable:
                return self._vmapped
            except RAISED:
                return None
        if not torch.allclose(found, expected, rtol=0.0, atol=0.0, equal_nan=True):
            return self._vmapped

        def whole(u: Tensor, params: Params) -> Tensor:
            value: Tensor = made.forward(u, *(params[name] for name in names))
            return value

        return whole


def pullback(function: Callable[[Tensor], Tensor], at: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """Return the value of a function at a point, and a function y ↦ Jᵀy there, which may be called many times."""
    with torch.inference_mode(False), torch.enable_grad():
        start = at.detach().clone().requires_grad_()
        value = function(start)

    def pull(weight: Tensor) -> Tensor:
        if not value.requires_grad:
            return torch.zeros_like(start, requires_grad=False)
        with torch.inference_mode(False), torch.enable_grad():
            total = (weight * value).sum()
        (found,) = torch.autograd.grad(total, start, retain_graph=True, materialize_grads=True)
        return found

    return value.detach(), pull
