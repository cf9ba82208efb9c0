"""Evaluate a law on a whole batch: all samples at once, or each alone. A sample that fails does not affect the others.

At once: the graph under `vmap` is recorded per batch size as operators that carry the batch axis themselves, which saves
the overhead of `vmap` at every call. A batch size is recorded when it comes for the second time, so that an odd last
batch costs nothing extra (compile.trace.recording, which changes nothing global: many threads may call).
Alone: a long sum or a product may round differently in a batch than by itself, so whatever enters an answer (not only its
judgement) is evaluated sample by sample.

Operators such as torch.linalg.inv raise for a whole batch when one sample is singular. That sample gets NaN, which the judge
reports as NONFINITE. The others keep the bits they would have had without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.func import vmap

from snapfm.compile.trace.recording import Unrecordable, record_flat
from snapfm.laws import Params

# What an operator raises because of the values it is given: torch.linalg.LinAlgError is a RuntimeError; overflow and division
# by zero are ArithmeticErrors; an index computed from the field may be out of range.
RAISED = (RuntimeError, ArithmeticError, IndexError, ValueError)


def isolated(run: Callable[[Tensor | None], Tensor], count: int) -> Tensor:
    """Return run(None), a batch of `count`; where that raises, with NaN for the samples that raise by themselves.

    `run` takes the numbers of the samples to work on, None for all of them. A sample that raises is replaced by one that
    does not, so that the others are worked on in a batch of the same size and keep their bits. If there is none, raises what
    the samples raise.
    """
    try:
        return run(None)
    except RAISED:
        if count == 1:
            raise
    good, cause = [], None
    for number in range(count):
        try:
            run(torch.tensor([number]))
            good.append(number)
        except RAISED as error:
            cause = error
    if not good:
        assert cause is not None
        raise cause
    bad = torch.ones(count, dtype=torch.bool)
    bad[good] = False
    chosen = torch.where(bad, good[0], torch.arange(count))
    try:
        value = run(chosen)
    except RAISED:  # it is the batch that cannot be worked on, not a sample
        value = torch.cat([run(chosen[number : number + 1]) for number in range(count)])
    return torch.where(bad.reshape(-1, *[1] * (value.dim() - 1)).to(value.device), torch.nan, value)


_KEPT = 4  # batch sizes remembered; a run has one or two

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
        if len(u) == 0:
            return u.new_zeros(0, self.rows)
        whole = self._vmapped if torch.is_grad_enabled() else self._whole(u, params)

        def run(some: Tensor | None) -> Tensor:
            if some is None:
                return whole(u, params)
            chosen = {name: value[some] for name, value in params.items()}
            return (whole if len(some) == len(u) else self._vmapped)(u[some], chosen)

        try:
            return isolated(run, len(u))
        except RAISED:  # for every sample; the gradient, if one is wanted, is NaN too
            return (u.flatten(1).sum(dim=1, keepdim=True) * torch.nan).expand(len(u), self.rows)

    def alone(self, u: Tensor, params: Params) -> Tensor:
        """Evaluate sample by sample, each from memory of its own, so that its bits do not depend on the batch."""
        return each(self.graph, u, params, self.rows).reshape(len(u), self.rows)

    def _vmapped(self, u: Tensor, params: Params) -> Tensor:
        value: Tensor = vmap(self.graph)(u, dict(params))
        return value

    def _whole(self, u: Tensor, params: Params) -> Whole:
        """Return how to evaluate a batch of this size; record it if it has come before."""
        known = self._known
        found = known.get(len(u))
        if found is not None:
            return found
        whole = self._recorded(u, params) if len(u) in known else None
        others = [(size, kept) for size, kept in known.items() if size != len(u)]
        self._known = dict([*others, (len(u), whole)][-_KEPT:])
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
                record = record_flat(positional, *inputs)
                other = inputs[0] + 0.25 * inputs[0].abs()  # anywhere else: what was frozen into the record would show
                expected, found = positional(other, *inputs[1:]), record.forward(other, *inputs[1:])
            except Unrecordable:
                return self._vmapped
            except RAISED:
                return None
        if not torch.allclose(found, expected, rtol=0.0, atol=0.0, equal_nan=True):
            return self._vmapped

        def whole(u: Tensor, params: Params) -> Tensor:
            value: Tensor = record.forward(u, *(params[name] for name in names))
            return value

        return whole


def each(graph: Callable[[Tensor, Params], Tensor], u: Tensor, params: Params, size: int | None = None) -> Tensor:
    """Evaluate a graph sample by sample and stack the results; the stack of an empty batch is empty.

    A sample for which it raises gets NaN; `size` is the number of elements that has if it raises for all of them.
    """
    if len(u) == 0:
        return u.new_zeros(0)
    values: list[Tensor | None] = []
    cause: Exception | None = None
    for i in range(len(u)):
        try:
            values.append(graph(u[i].clone(), {name: value[i].clone() for name, value in params.items()}))
        except RAISED as error:
            values.append(None)
            cause = error
    like = next((value for value in values if value is not None), None)
    if like is None:
        if size is None:
            assert cause is not None
            raise cause
        like = u.new_empty(size)
    numbers = like if like.is_floating_point() or like.is_complex() else like.double()
    return torch.stack([torch.full_like(numbers, torch.nan) if value is None else value for value in values])


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
