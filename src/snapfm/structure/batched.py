"""A law over a whole batch without the overhead of `vmap` at every call.

The graph under `vmap` is traced once per batch size into a graph of operators that carry the batch axis themselves;
a batch size is traced when it comes for the second time, so that odd last batches cost nothing extra.
"""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import Tensor
from torch.func import vmap
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

from snapfm.laws import Params

_KEPT = 4  # batch sizes remembered; a run has one or two


class Batched:
    """Evaluate `graph(u, params)` of one sample on batches: (b, *shape) to (b, m)."""

    def __init__(self, graph: GraphModule) -> None:
        self.graph = graph
        self._met: set[int] = set()
        self._traced: OrderedDict[int, GraphModule] = OrderedDict()

    def __call__(self, u: Tensor, params: Params) -> Tensor:
        """Evaluate; with gradients wanted the graph runs under `vmap`, which knows how to differentiate it."""
        count = len(u)
        if torch.is_grad_enabled() or count == 0:
            return self._mapped(u, params)
        traced = self._traced.get(count)
        if traced is None:
            if count not in self._met:
                self._met.add(count)
                return self._mapped(u, params)
            traced = self._trace(u, params)
        value: Tensor = traced(u, dict(params))
        return value

    def _mapped(self, u: Tensor, params: Params) -> Tensor:
        value: Tensor = vmap(self.graph)(u, dict(params))
        return value

    def _trace(self, u: Tensor, params: Params) -> GraphModule:
        with torch.inference_mode(False), torch.no_grad():
            # Copies, because tensors made in inference mode cannot be traced.
            sample = {
                name: torch.empty_strided(v.shape, v.stride(), dtype=v.dtype).copy_(v) for name, v in params.items()
            }
            traced = make_fx(vmap(self.graph), tracing_mode="real")(u.clone(), sample)
        self._traced[len(u)] = traced
        while len(self._traced) > _KEPT:
            self._traced.popitem(last=False)
        return traced
