"""A law over a whole batch, in two ways: all samples at once, or each alone.

At once: the graph under `vmap` is traced per batch size into operators that carry the batch axis themselves, which spares
the overhead of `vmap` at every call; a batch size is traced when it comes for the second time, so that odd last batches
cost nothing extra. Alone: a long sum or a product may round differently in a batch than by itself, so whatever enters an
answer (not only its judgement) is evaluated sample by sample.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

import torch
from torch import Tensor
from torch.func import vmap
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

from snapfm.laws import Params

_KEPT = 4  # batch sizes remembered; a run has one or two


class Batched:
    """Evaluate `graph(u, params)` of one sample on batches: (b, *shape) to (b, m)."""

    def __init__(self, graph: GraphModule, rows: int) -> None:
        self.graph, self.rows = graph, rows
        self._met: set[int] = set()
        self._traced: OrderedDict[int, GraphModule] = OrderedDict()

    def __call__(self, u: Tensor, params: Params) -> Tensor:
        """Evaluate all at once; with gradients wanted the graph runs under `vmap`, which knows how to differentiate it."""
        count = len(u)
        if count == 0:
            return u.new_zeros(0, self.rows)
        traced = None if torch.is_grad_enabled() else self._traced.get(count)
        if traced is None and count in self._met and not torch.is_grad_enabled():
            traced = self._trace(u, params)
        self._met.add(count)
        value: Tensor = vmap(self.graph)(u, dict(params)) if traced is None else traced.forward(u, *_in_order(params))
        return value

    def alone(self, u: Tensor, params: Params) -> Tensor:
        """Evaluate sample by sample, each from memory of its own, so that its bits do not depend on the batch."""
        return each(self.graph, u, params).reshape(len(u), self.rows)

    def _trace(self, u: Tensor, params: Params) -> GraphModule:
        with torch.inference_mode(False), torch.no_grad():
            # Copies, because tensors made in inference mode cannot be traced.
            values = [value.clone() for value in _in_order(params)]
            traced = make_fx(self._positional(sorted(params)), tracing_mode="real")(u.clone(), *values)
        self._traced[len(u)] = traced
        while len(self._traced) > _KEPT:
            self._traced.popitem(last=False)
        return traced

    def _positional(self, names: list[str]) -> Callable[..., Tensor]:
        """Take params one by one: a traced graph unpacks a dict in slow Python at every call."""

        def whole(u: Tensor, *values: Tensor) -> Tensor:
            result: Tensor = vmap(self.graph)(u, dict(zip(names, values)))
            return result

        return whole


def _in_order(params: Params) -> list[Tensor]:
    """Give params by the order of their names, whatever order the caller's dict has."""
    return [params[name] for name in sorted(params)]


def each(graph: GraphModule, u: Tensor, params: Params) -> Tensor:
    """Evaluate a graph sample by sample and stack the results; an empty batch gives an empty stack."""
    if len(u) == 0:
        return u.new_zeros(0)
    samples = [{name: value[i].clone() for name, value in params.items()} for i in range(len(u))]
    return torch.stack([graph(u[i].clone(), sample) for i, sample in enumerate(samples)])
