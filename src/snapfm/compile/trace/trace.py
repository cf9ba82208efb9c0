"""Trace a law, as the user wrote it, to a graph of functional torch operators that is evaluated on batches.

The graph has no in-place writes or views. Everything later reads it (lowering, patterns) or runs it (residuals, derivatives by
torch). A law whose value cannot be replayed from its graph is refused here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from snapfm.arrays import Mask
from snapfm.compile.sparsity.propagate import dependents, reads_shape_only
from snapfm.compile.trace.batched import Batched
from snapfm.compile.trace.promote import promoted
from snapfm.compile.trace.recording import recorded
from snapfm.compile.trace.rewrite import SIMPLER, TensorIndices, lift, rewrite
from snapfm.errors import LawError
from snapfm.laws import Equality, Inequality, Params
from snapfm.torch_internals import OpOverload, is_mutable, mixes_dtypes

_PROBE_SEED = 20240229  # any fixed seed: the probe must only differ from the field that was traced
# Agreement asked of two ways to one number, relative to the largest: far above the rounding of long float64 sums, and for laws
# that pass through a coarser dtype this many of its roundings.
_AGREE = 1e-9
_ROUNDINGS = 1e3

Function = Callable[[Tensor, Params], Tensor]


def trace(law: Equality | Inequality, u: Tensor, params: Params) -> GraphModule:
    """Return the graph of `law.residual`, flattened to (m,); float64 example inputs, one sample.

    Raises LawError for control flow on values, results that are not real tensors, and laws that leave torch.
    """
    with torch.no_grad():
        traced = _record(law, _flattened(law), u, params)
        lift(traced)
        # Some composite operators write in place below the level at which a first pass could remove it, so the
        # removal is a second pass over the recorded graph.
        graph = _record(law, torch.func.functionalize(traced, remove="mutations_and_views"), u, params)
        rewrite(graph)
        _refuse_writes(law, graph)
        _refuse_varying_counts(law, graph)
        _check_replay(law, graph, u, params)
    return graph


def _flattened(law: Equality | Inequality) -> Function:
    def residual(u: Tensor, params: Params) -> Tensor:
        with TensorIndices():
            value = law.residual(u, params)
        if not isinstance(value, Tensor):
            raise LawError(
                f"law '{law.name}' expects a tensor from its function; got {type(value).__name__}. Return the residual "
                "as one tensor (torch.stack or torch.cat join several)."
            )
        if not value.dtype.is_floating_point:
            raise LawError(
                f"law '{law.name}' expects a real floating-point residual; got {value.dtype}. Return numbers that vanish "
                "when the law holds; split complex ones with torch.view_as_real."
            )
        return value.reshape(-1)

    return residual


def _record(law: Equality | Inequality, function: Function, u: Tensor, params: Params) -> GraphModule:
    try:
        return recorded(function, u, dict(params), decompositions=SIMPLER)
    except LawError:
        raise
    except Exception as cause:
        reason = str(cause)
        if "tracing tensor" in reason or "data-dependent" in reason:
            raise LawError(
                f"law '{law.name}' expects the same operators for every field; it reads a value out of a tensor (if, "
                "float(), .item(), .tolist()). Use torch.where for a choice, and keep params as tensors."
            ) from cause
        if isinstance(cause, KeyError):
            raise LawError(
                f"law '{law.name}' reads params[{cause.args[0]!r}]; given are {sorted(params)}. Pass it in "
                "Projector(..., params={...})."
            ) from cause
        raise LawError(_refused(law, cause, u)) from cause


def _refused(law: Equality | Inequality, cause: Exception, u: Tensor) -> str:
    """Return the message for a law that cannot be run: what it raised, and the cure for what users meet most."""
    reason = str(cause).strip() or type(cause).__name__
    field = f"one float64 field of shape {tuple(u.shape)}"
    raised = f"it raised {type(cause).__name__}: {reason.splitlines()[0].rstrip('.')}"
    if mixes_dtypes(cause):
        return (
            f"law '{law.name}' expects to run on {field}; {raised}. Convert the tensors it closes over, with tensor.to(u.dtype) "
            "or dtype=u.dtype, and a network with network.double(), or call it with u.float()."
        )
    if "does not require grad" in reason:
        return (
            f"law '{law.name}' expects to run on {field}, without autograd; {raised}. Take derivatives inside a law with "
            "torch.func.grad, vjp or jvp."
        )
    by_hand = f"law.residual(torch.zeros({tuple(u.shape)}, dtype=torch.float64), params)"
    return f"law '{law.name}' expects to run on {field}; {raised}. Try it by hand: {by_hand}."


def _refuse_writes(law: Equality | Inequality, graph: GraphModule) -> None:
    """Refuse a law that changes its own inputs: a batch evaluated through it would come back changed."""
    for node in graph.graph.nodes:
        if isinstance(node.target, OpOverload) and is_mutable(node.target):
            raise LawError(
                f"law '{law.name}' expects to leave u and params as they are; it writes into one of them. Write into a "
                "copy: u = u.clone()."
            )


def _refuse_varying_counts(law: Equality | Inequality, graph: GraphModule) -> None:
    """Refuse a law in which the field or the params decide how many elements a tensor has."""
    inputs = [node for node in graph.graph.nodes if node.op == "placeholder"]
    varying = dependents(graph, inputs, reads_shape_only)
    if any(not varying.isdisjoint(_deciding(node)) for node in graph.graph.nodes):
        raise LawError(
            f"law '{law.name}': u[mask], nonzero and unique expect a mask that is the same at every call; this one is computed "
            "from the field or the params, so the number of rows would change. Use torch.where(mask, u, 0.0), which keeps the "
            "shape."
        )


def _deciding(node: Node) -> list[Node]:
    """List the operands whose values decide how many elements an operator returns."""
    fixed = node.kwargs.get("output_size") is not None  # of repeat_interleave
    if fixed or torch.Tag.dynamic_output_shape not in getattr(node.target, "tags", ()):
        return []
    operands: Any = node.args
    if node.target is torch.ops.aten.index.Tensor:
        masks = (torch.bool, torch.uint8)
        return [index for index in operands[1] if index is not None and index.meta["val"].dtype in masks]
    return [operands[1] if node.target is torch.ops.aten.masked_select.default else operands[0]]


def _check_replay(law: Equality | Inequality, graph: GraphModule, u: Tensor, params: Params) -> None:
    """Refuse a law whose graph, at another field, does not return the law's own value there."""
    generator = torch.Generator().manual_seed(_PROBE_SEED)
    probe = u + torch.rand(u.shape, generator=generator, dtype=u.dtype)
    constants = [getattr(graph, node.target) for node in graph.graph.nodes if node.op == "get_attr"]
    versions = [constant._version for constant in constants]
    try:
        expected = law.residual(probe, params).reshape(-1)
    except Exception as cause:  # recorded operators are decomposed, and may accept what the law itself does not
        raise LawError(_refused(law, cause, u)) from cause
    replayed = graph(probe, dict(params))
    if versions != [constant._version for constant in constants]:
        raise LawError(
            f"law '{law.name}' expects to leave the tensors it closes over as they are; it writes into one of them. Write "
            "into a copy: constant.clone()."
        )
    scale = float(expected.abs().nan_to_num().max()) if expected.numel() else 0.0
    close = agreement(graph)
    if not torch.allclose(expected, replayed, rtol=close, atol=close * scale, equal_nan=True):
        raise LawError(
            f"law '{law.name}' expects a pure torch function of (u, params); its traced graph gives other values than the "
            "function itself. It leaves torch (numpy, u.data), draws random numbers or keeps state: rewrite it in torch."
        )


def agreement(graph: GraphModule) -> float:
    """Return the relative difference that rounding may cause; a law may pass through float32."""
    values = [node.meta.get("val") for node in graph.graph.nodes]
    kinds = {value.dtype for value in values if isinstance(value, Tensor) and value.dtype.is_floating_point}
    return max([_AGREE, *(_ROUNDINGS * torch.finfo(kind).eps for kind in kinds)])


@dataclass(frozen=True)
class TracedLaw:
    """The graph of one law's rows in float64, and how to evaluate it on a batch."""

    name: str
    kind: Literal["equality", "inequality"]
    graph: GraphModule
    batched: Batched
    written: Batched | None = None  # as it is written, in float32, where `graph` is its promotion to float64

    @property
    def rows(self) -> int:
        """Number of rows of the law."""
        return self.batched.rows

    @property
    def equality(self) -> Mask:
        """Which rows must vanish (the others must not be positive)."""
        return np.full(self.rows, self.kind == "equality")

    def residual(self, u: Tensor, params: Params) -> Tensor:
        """Evaluate on a batch: (b, *shape) to (b, m)."""
        return self.batched(u, params)


def trace_law(law: Equality | Inequality, u: Tensor, params: Params) -> TracedLaw:
    """Trace a law at an example field and params of one sample, float64."""
    graph = trace(law, u, params)
    with torch.no_grad():
        rows = int(graph(u.clone(), {name: value.clone() for name, value in params.items()}).numel())
    if rows and u.numel() and not _slope_reaches(graph):
        raise LawError(no_dependence_message(law.name))
    kind: Literal["equality", "inequality"] = "equality" if isinstance(law, Equality) else "inequality"
    finer = promoted(graph, u, params)
    if finer is None:
        return TracedLaw(law.name, kind, graph, Batched(graph, rows))
    return TracedLaw(law.name, kind, finer, Batched(finer, rows), Batched(graph, rows))


def no_dependence_message(name: str) -> str:
    """Return the message for a law without any slope."""
    return (
        f"law '{name}' expects a residual that changes with u; got one whose slopes all vanish, so that no move of the field "
        "could make it hold. Look for .detach() or .data in it, for steps without a slope (round, sign, u > 0), and for a "
        "residual of params or constants alone. A pattern=… without entries says the same."
    )


def _slope_reaches(graph: GraphModule) -> bool:
    """Whether any path from the field to the residual carries a slope; detach, which u.data is recorded as too, ends one."""
    nodes = list(graph.graph.nodes)
    field = next(node for node in nodes if node.op == "placeholder")  # the first input
    return nodes[-1] in dependents(graph, [field], lambda node: node.target is torch.ops.aten.detach.default)


def example_of(shape: tuple[int, ...], params: Params | None) -> tuple[Tensor, dict[str, Tensor]]:
    """Draw a field, and take the first of the example params, which have a leading batch axis."""
    sample = {name: value[0].detach().to("cpu", copy=True) for name, value in (params or {}).items()}
    sample = {name: value.double() if value.is_floating_point() else value for name, value in sample.items()}
    generator = torch.Generator().manual_seed(0)
    # Uniform in (0.1, 0.9): inside the domain of roots and logarithms, away from the kinks at 0 and 1.
    return 0.1 + 0.8 * torch.rand(tuple(shape), generator=generator, dtype=torch.float64), sample
