"""Rewrite recorded graphs into operators that rules, vmap and derivatives all handle.

Two lists of known trouble live here: operators that torch itself can write in simpler ones (SIMPLER, used while a law is
recorded), and what functionalization leaves behind (`rewrite`, run on the recorded graph). Torch only; no law.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node
from torch.overrides import TorchFunctionMode

from snapfm.torch_internals import OpOverload, decompositions, schema

aten = torch.ops.aten


def _covariance(rows: Tensor, *, correction: int = 1) -> Tensor:
    rows = torch.atleast_2d(rows)  # type: ignore[no-untyped-call]
    off = rows - rows.mean(-1, keepdim=True)
    return (off @ off.mT / max(rows.shape[-1] - correction, 0)).squeeze()


def _correlation(rows: Tensor) -> Tensor:
    found = torch.atleast_2d(_covariance(rows))  # type: ignore[no-untyped-call]
    scale = found.diagonal().sqrt()
    shares: Tensor = (found / scale[:, None] / scale[None, :]).squeeze()
    return shares


# Functions that read values out of tensors to check them, and the same without that check.
_UNCHECKED = {
    torch.cov: _covariance, Tensor.cov: _covariance, torch.corrcoef: _correlation, Tensor.corrcoef: _correlation,
}  # fmt: skip


class TensorIndices(TorchFunctionMode):
    """Call what torch would read values out of tensors for, which no recording can follow, in another way.

    An integer tensor without axes is an index as any other. Covariances are not weighed by frequencies that vary.
    """

    def __torch_function__(
        self, function: Any, kinds: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Intercept u[i] and u[..., i, j] where i or j is such a tensor, and covariances."""
        if function in _UNCHECKED and set(kwargs or {}) <= {"correction"} and len(args) == 1:
            return _UNCHECKED[function](*args, **(kwargs or {}))
        if function is not Tensor.__getitem__:
            return function(*args, **(kwargs or {}))
        source, index = args[0], args[1] if isinstance(args[1], tuple) else (args[1],)
        lone = [_is_lone(part) for part in index]
        if not any(lone):
            return function(*args)
        if any(isinstance(part, Tensor) and part.dim() for part in index):  # broadcast with the others
            return source[tuple(part.reshape(1) if alone else part for part, alone in zip(index, lone))]
        kept = source[tuple(slice(None) if alone else part for part, alone in zip(index, lone))]
        places: list[tuple[int, Tensor]] = []
        front = 0
        for part, alone in zip(index, lone):
            if part is Ellipsis:
                front = kept.dim() - sum(
                    one is None or alone or isinstance(one, slice) for one, alone in _behind(index, lone)
                )
            elif alone:
                places.append((front, part))
                front += 1
            elif part is None or isinstance(part, slice):
                front += 1
        for axis, part in reversed(places):
            kept = kept[(slice(None),) * axis + (part.reshape(1),)].squeeze(axis)
        return kept


def _is_lone(part: Any) -> bool:
    return isinstance(part, Tensor) and part.dim() == 0 and part.dtype in (torch.int64, torch.int32)


def _behind(index: tuple[Any, ...], lone: list[bool]) -> list[tuple[Any, bool]]:
    """List what follows the ellipsis."""
    place = next(i for i, part in enumerate(index) if part is Ellipsis)
    return list(zip(index[place + 1 :], lone[place + 1 :]))


def _complex(real: Tensor, imag: Tensor) -> Tensor:
    return torch.view_as_complex(torch.stack(torch.broadcast_tensors(real, imag), -1))  # type: ignore[no-untyped-call]


def _polar(size: Tensor, angle: Tensor) -> Tensor:
    return _complex(size * torch.cos(angle), size * torch.sin(angle))


def _log_sigmoid(x: Tensor) -> tuple[Tensor, Tensor]:
    return -torch.logaddexp(torch.zeros_like(x), -x), torch.zeros_like(x)  # the second is a buffer for its backward


def _take(source: Tensor, index: Tensor) -> Tensor:
    return source.reshape(-1).index_select(0, index.reshape(-1)).reshape(index.shape)


def _distances(one: Tensor, other: Tensor, order: float, mode: int | None) -> Tensor:
    distances: Tensor = torch.linalg.vector_norm(one.unsqueeze(-2) - other.unsqueeze(-3), order, -1)
    return distances


def _pair_distances(rows: Tensor, order: float = 2.0) -> Tensor:
    one, other = torch.triu_indices(len(rows), len(rows), 1)
    distances: Tensor = torch.linalg.vector_norm(rows[one] - rows[other], order, -1)
    return distances


def _trilinear(
    one: Tensor, two: Tensor, three: Tensor, first: list[int], second: list[int], third: list[int], summed: list[int],
    unroll_dim: int = 1,
) -> Tensor:  # fmt: skip
    for axes, place in ((first, 0), (second, 1), (third, 2)):
        for axis in axes:
            one, two, three = (t.unsqueeze(axis) if i == place else t for i, t in enumerate((one, two, three)))
    return (one * two * three).sum(summed)


# Recorded as the operators they consist of, each for one of three reasons: torch 2.13 returns wrong derivatives under
# nested vmap (_prelu_kernel, log_sigmoid), has none (heaviside, floor_divide) or no second one under vmap (complex,
# polar), or the parts have a scalar form and the whole has none.
SIMPLER: dict[Any, Any] = {
    aten._cdist_forward.default: _distances,
    aten.complex.default: _complex,
    aten.log_sigmoid_forward.default: _log_sigmoid,
    aten.polar.default: _polar,
    aten.take.default: _take,
    aten._pdist_forward.default: _pair_distances,
    aten._trilinear.default: _trilinear,
    **decompositions(
        [
            aten._prelu_kernel, aten._safe_softmax, aten._scaled_dot_product_flash_attention_for_cpu,
            aten.addcdiv, aten.addcmul, aten.addr, aten.aminmax, aten.binary_cross_entropy, aten.embedding, aten.fill,
            aten.floor_divide, aten.glu, aten.heaviside, aten.lerp, aten.linalg_cross, aten.mvlgamma, aten.native_batch_norm,
            aten.native_group_norm, aten.native_layer_norm, aten.nll_loss2d_forward, aten.nll_loss_forward, aten.norm,
            aten.special_xlog1py, aten.unsafe_split,
        ]
    ),
}  # fmt: skip

# Copies of views that are not called after their view, and the plain operator with the same values.
_COPIES = {
    aten._neg_view_copy.default: aten.neg.default,
    aten._unsafe_view.default: aten.reshape.default,
    aten.view_copy.default: aten.reshape.default,  # a batch axis may make the strides unfit for a view
}
_NOT_VIEWS = ("_to_copy", "index_copy")  # end in "copy" without being copies of a view


def lift(graph: GraphModule) -> None:
    """Copy every constant at its entry: functionalization follows writes only into tensors that it has seen made.

    Weights of a network inside a law are constants too. Their gradients end here: derivatives of a projection are those by
    the field and by params, and a weight that is to be trained has to be passed as a param.
    """
    for node in list(graph.graph.nodes):
        if node.op == "get_attr":
            constant = getattr(graph, node.target)
            if constant.requires_grad:
                delattr(graph, node.target)
                graph.register_buffer(node.target, constant.detach())
            with graph.graph.inserting_after(node):
                copied = graph.graph.call_function(aten.lift_fresh_copy.default, (node,))
            node.replace_all_uses_with(copied, delete_user_cb=lambda user, copied=copied: user is not copied)
    graph.recompile()


def rewrite(graph: GraphModule) -> None:
    """Turn the copies that functionalization made of views back into views: nothing writes to them any more."""
    for node in graph.graph.nodes:
        if not isinstance(node.target, OpOverload):
            continue
        name = schema(node.target).name.removeprefix("aten::")
        if name == "copy":
            _replace_copy(graph, node)
        elif name == "_conj_copy":
            _replace_conjugate(graph, node)
        elif name == "lift_fresh_copy":
            _replace(graph, node, node.args[0])
        elif node.target is aten.pow.Tensor_Tensor:
            _cast_exponent(graph, node)
        elif name == "slice_scatter":
            _bound_slice(node)
        elif name in ("as_strided", "as_strided_copy"):
            _reshape_whole(node)
        elif node.target is aten.index_put.default:
            _replace_masked_write(graph, node)
        elif node.target in _COPIES:
            node.target = _COPIES[node.target]
        elif name.endswith("_copy") and name not in _NOT_VIEWS and hasattr(aten, name.removesuffix("_copy")):
            node.target = getattr(getattr(aten, name.removesuffix("_copy")), node.target._overloadname)
    graph.graph.eliminate_dead_code()
    graph.recompile()


def _replace_copy(graph: GraphModule, node: Node) -> None:
    """Spread the source, cast to what it overwrites: a copy has no derivative, its source has."""
    written, source = node.meta["val"], node.args[1]
    assert isinstance(source, Node)
    with graph.graph.inserting_before(node):
        if source.meta["val"].dtype != written.dtype:
            source = graph.graph.call_function(aten._to_copy.default, (source,), {"dtype": written.dtype})
        _replace(graph, node, graph.graph.call_function(aten.expand.default, (source, list(written.shape))))


def _replace_conjugate(graph: GraphModule, node: Node) -> None:
    """Join the real and the negated imaginary part: vmap refuses a lazy conjugate that is split into parts again."""
    with graph.graph.inserting_before(node):
        parts = graph.graph.call_function(aten.view_as_real.default, (node.args[0],))
        real = graph.graph.call_function(aten.select.int, (parts, -1, 0))
        imaginary = graph.graph.call_function(aten.select.int, (parts, -1, 1))
        negated = graph.graph.call_function(aten.neg.default, (imaginary,))
        joined = graph.graph.call_function(aten.stack.default, ([real, negated], -1))
        _replace(graph, node, graph.graph.call_function(aten.view_as_complex.default, (joined,)))


def _replace_masked_write(graph: GraphModule, node: Node) -> None:
    """Replace a write of one number at a mask by torch.where: as an index, the mask would have to be known beforehand."""
    arguments: tuple[Any, ...] = node.args
    base, indices, source, adds = arguments + (False,)[len(arguments) - 3 :]
    mask = indices[0]
    if len(indices) != 1 or mask.meta["val"].dtype != torch.bool or source.meta["val"].numel() != 1:
        return
    shape = base.meta["val"].shape
    if mask.meta["val"].shape != shape:
        return
    with graph.graph.inserting_before(node):
        number = graph.graph.call_function(aten.reshape.default, (source, []))
        written = graph.graph.call_function(aten.add.Tensor, (base, number)) if adds else number
        _replace(graph, node, graph.graph.call_function(aten.where.self, (mask, written, base)))


def _cast_exponent(graph: GraphModule, node: Node) -> None:
    """Cast the exponent to the dtype of the result: if torch casts it later, a JVP under vmap of a negative base is NaN."""
    base, exponent, wanted = node.args[0], node.args[1], node.meta["val"].dtype
    assert isinstance(exponent, Node)
    if exponent.meta["val"].dtype != wanted:
        with graph.graph.inserting_before(node):
            cast = graph.graph.call_function(aten._to_copy.default, (exponent,), {"dtype": wanted})
        cast.meta["val"] = exponent.meta["val"].to(wanted)
        node.args = (base, cast)


def _replace(graph: GraphModule, node: Node, stand_in: Any) -> None:
    stand_in.meta["val"] = node.meta["val"]
    node.replace_all_uses_with(stand_in)
    graph.graph.erase_node(node)


def _reshape_whole(node: Node) -> None:
    """Reshape where strides say no more than that: torch writes views of whole tensors so below functionalization."""
    source, shape, strides, *start = node.args
    assert isinstance(source, Node)
    held: Tensor = source.meta["val"]
    whole: Tensor = torch.empty(tuple(shape), device="meta")  # type: ignore[arg-type]
    if held.is_contiguous() and held.numel() == whole.numel() and tuple(strides) == whole.stride() and not any(start):  # type: ignore[arg-type]
        node.target, node.args = aten.reshape.default, (source, list(shape))  # type: ignore[arg-type]


def _bound_slice(node: Node) -> None:
    """Count both ends of a slice from the front: vmap adds to an open or negative end, and overflows or points elsewhere."""
    arguments: tuple[Any, ...] = node.args
    base, source, axis, start, end, step = arguments + (0, None, None, 1)[len(arguments) - 2 :]
    first, last, _ = slice(start, end).indices(base.meta["val"].shape[axis])
    node.args = (base, source, axis, first, max(first, last), step)
