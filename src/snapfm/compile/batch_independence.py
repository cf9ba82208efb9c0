"""Whether laws may be evaluated a batch at a time without changing a bit of any sample.

A sample's answer must not depend on its batch-mates, and torch's kernels may round differently in a batch: a matrix product
takes other paths, a vector of cosines uses the slow range reduction if one of them is large. So it is tried: fields of very
different sizes, in batches of several sizes and orders, against each alone. Laws that agree in every bit are evaluated together.
Sample by sample: the others, those that call a library for linear algebra or transforms, which rounds by the place of a matrix in
memory, and large ones, for which a batch saves nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.fx import GraphModule

from snapfm.arrays import Values
from snapfm.compile.opaque import Opaque
from snapfm.compile.sparsity.passes import alone
from snapfm.compile.trace.batched import RAISED
from snapfm.laws import Params
from snapfm.torch_internals import OpOverload

if TYPE_CHECKING:
    from snapfm.compile.compiled import CompiledLaws

# Factors of the example field. The large ones are beyond the range in which trigonometric functions are fast.
_SIZES = (1.0, -1.0, 0.3, 25.0, -4.0, 1e3, 1e-3, 1.7)
_SEED = 7
# Operators of torch that call a library for matrices, transforms or convolutions.
_LIBRARY = (
    "mm",
    "bmm",
    "addmm",
    "addbmm",
    "baddbmm",
    "mv",
    "addmv",
    "dot",
    "vdot",
    "convolution",
    "_fft",
    "fft",
    "linalg",
    "_linalg",
)
# Numbers of one evaluation (unknowns times passes) beyond which arithmetic, not the cost of calling torch, takes the time.
_SMALL = 50_000


@dataclass(frozen=True)
class Together:
    """Which functions of opaque laws give every sample the same bits in any batch."""

    rows: bool = False
    jacobian: bool = False
    hessian: bool = False


def together(laws: CompiledLaws) -> Together:
    """Try all functions of the laws on several batches."""
    opaque = [law for law in laws.opaque.values() if isinstance(law, Opaque)]
    if not opaque:
        return Together(True, True, True)  # kernels and Oracles work sample by sample in any case
    if any(alone(law.graph) or _calls_library(law.graph) for law in opaque):
        return Together()
    if max(laws.unknowns * sum(passes.count for passes in law.passes) for law in opaque) > _SMALL:
        return Together()
    example, params = laws.example
    generator = torch.Generator().manual_seed(_SEED)
    shape = (len(_SIZES), *laws.shape)
    sizes = torch.tensor(_SIZES, dtype=torch.float64).reshape(-1, *[1] * len(laws.shape))
    u = sizes * (example + 0.1 * torch.randn(shape, generator=generator, dtype=torch.float64))
    weight = torch.randn(len(u), laws.rows, generator=generator, dtype=torch.float64)
    batch = {name: value.expand(len(u), *value.shape).contiguous() for name, value in params.items()}

    def hessian(u: Tensor, params: Params, weight: Tensor) -> Values:
        return laws.hessian(u, params, weight)

    with torch.no_grad(), np.errstate(all="ignore"):
        return Together(
            _agrees(lambda u, p, y: laws.residual(u, p).numpy(), u, batch, weight),
            _agrees(lambda u, p, y: laws.jacobian(u, p).numpy(), u, batch, weight),
            laws.hessian_pattern is not None and _agrees(hessian, u, batch, weight),
        )


def _calls_library(graph: GraphModule) -> bool:
    """Whether a law multiplies matrices or transforms: libraries round by the place of numbers in memory, too."""
    names = (node.target.__name__ for node in graph.graph.nodes if isinstance(node.target, OpOverload))
    return any(name.startswith(_LIBRARY) for name in names)


def _agrees(function: Callable[[Tensor, Params, Tensor], Values], u: Tensor, params: Params, weight: Tensor) -> bool:
    """Whether batches of any size and order give the values of each sample alone, bit for bit."""

    def of(some: list[int]) -> Values:
        chosen = torch.tensor(some)
        return function(u[chosen], {name: value[chosen] for name, value in params.items()}, weight[chosen])

    every = list(range(len(u)))
    try:
        alone = np.concatenate([of([i]) for i in every])
        for some in (every, every[::-1], every[3:] + every[:3], every[2:4], every[4:8], [5, 5, 5, 0]):
            for _ in range(2):  # a batch size that comes again is evaluated by a record
                if not np.array_equal(of(some), alone[some], equal_nan=True):
                    return False
    except RAISED:
        return False
    return True
