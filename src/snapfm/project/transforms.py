"""Projections under torch.func (vmap, grad, vjp, jvp, jacrev, jacfwd) and under forward-mode differentiation.

Tensors inside a transform have no memory that kernels could read. `ProjectionFunction` is called with them, and torch hands its
forward pass plain tensors: these are projected as always, with the graph of the ordinary backward pass. Every derivative is one
of that graph. The map from û to u is the same in both directions, du = P dû with a symmetric P (math.md, eq. adjoint); in a
metric D with gradients Bg it is du = DBD⁻¹dû. So the forward derivative in û is a backward pass too; in params it is not, and
is refused.

A vmapped batch is one larger batch: `rows` remembers which row of it a sample is, and tells a derivative of a vmapped projection
from a vmapped derivative of one. Must not import project.projector.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from snapfm.errors import UnsupportedLaw
from snapfm.laws import Params
from snapfm.solve.projection import Projection, tensors, with_tensors
from snapfm.torch_internals import wrapped

Call = Callable[[Tensor, dict[str, Tensor]], Projection]


def transformed(u: Any, params: Any) -> bool:
    """Whether any tensor belongs to a transform of torch.func, or carries a forward derivative."""
    return any(wrapped(one) or _dual(one) for one in _tensors(u, params))


def _tensors(u: Any, params: Any) -> list[Tensor]:
    """List the tensors of a call; whether its arguments are what they should be is checked elsewhere."""
    given = [u, *params.values()] if isinstance(params, Mapping) else [u]
    return [one for one in given if isinstance(one, Tensor)]


def refuse_transformed(call: str, u: Any, params: Any) -> None:
    """Refuse tensors inside torch.func for a method that reads their memory."""
    if any(wrapped(one) for one in _tensors(u, params)):
        raise UnsupportedLaw(
            f"{call} expects plain tensors; got one inside torch.func (vmap, grad, jvp). Call it on the whole batch outside of "
            "the transform: samples are independent. The projector itself may be called inside."
        )


def project_transformed(
    call: Call, u_hat: Tensor, params: Params, differentiable: bool, variances: Callable[[], Tensor | None]
) -> Projection:
    """Project inside transforms; `call(u_hat, params)` projects plain tensors, in a metric of `variances` (*shape), if any.

    The result has no warm start.
    """
    names = tuple(params)
    # Own params for every sample: the gradient in shared ones is then a sum that torch makes.
    rows = [value.expand(len(u_hat), *value.shape[1:]) for value in params.values()]
    tracked = [wrapped(value) or _dual(value) or value.requires_grad for value in params.values()]
    ask = _Asked(call, names, tuple(name for name, one in zip(names, tracked) if one), differentiable, variances)
    out = ProjectionFunction.apply(u_hat, ask, *rows)  # type: ignore[no-untyped-call]
    assert ask.made is not None
    return with_tensors(ask.made, dict(zip(tensors(ask.made), out[1:])))


class _Asked:
    """One call: how to project, and afterwards its result with the graph that derivatives are taken of."""

    def __init__(
        self, call: Call, names: tuple[str, ...], tracked: tuple[str, ...], differentiable: bool,
        variances: Callable[[], Tensor | None],
    ) -> None:  # fmt: skip
        self.call, self.names, self.tracked, self.differentiable = call, names, tracked, differentiable
        self._variances_of = variances
        self.variances: Tensor | None = None
        self.made: Projection | None = None
        self._inputs: dict[str, Tensor] = {}

    def run(self, u_hat: Tensor, values: tuple[Tensor, ...]) -> list[Tensor]:
        """Project plain tensors, keeping the graph; return the tensors of the result."""
        # Copies: a tensor that carries a forward derivative would be seen as transformed again.
        params = {name: value.detach().clone() for name, value in zip(self.names, values)}
        start = u_hat.detach().clone()
        variances = self._variances_of()
        self.variances = None if variances is None else variances.to(start)
        if self.differentiable:
            for one in (start, *(params[name] for name in self.tracked if params[name].is_floating_point())):
                one.requires_grad_()
        with torch.set_grad_enabled(self.differentiable):
            found = self.call(start, params)
        self._inputs, self.made = {"": start, **params}, replace(found, warm=None)
        return [value.detach() for value in tensors(found).values()]

    def pull(self, gradient: Tensor, rows: Tensor, wanted: tuple[str, ...]) -> list[Tensor]:
        """Return the gradients in û ("") and in params for gradients (k, *shape) of the rows (k,) of the batch."""
        assert self.made is not None
        u = self.made.u
        if not self.differentiable:
            raise UnsupportedLaw(
                "a projection in a metric with directions expects not to be differentiated; got a derivative of one. Give the "
                "metric variances alone."
            )
        inputs = [self._inputs[name] for name in wanted]
        found = [value.new_zeros(len(rows), *value.shape[1:]) for value in inputs]
        for place in _rounds(rows):
            weight = torch.zeros_like(u).index_copy(0, rows[place], gradient[place].to(u))
            with torch.enable_grad():
                slopes = torch.autograd.grad(u, inputs, weight, retain_graph=True, allow_unused=True)
            for out, slope in zip(found, slopes):
                if slope is not None:
                    out[place] = slope[rows[place]]
        return found


def _rounds(rows: Tensor) -> list[Tensor]:
    """Divide rows, of which each may be named several times, into rounds that name each once at most."""
    order = torch.argsort(rows, stable=True)
    ranked = rows[order]
    fresh = torch.ones_like(ranked, dtype=torch.bool)
    fresh[1:] = ranked[1:] != ranked[:-1]
    place = torch.arange(len(rows), device=rows.device)
    turn = place - torch.cummax(torch.where(fresh, place, 0), dim=0).values if len(rows) else place
    return [order[turn == k] for k in range(int(turn.max()) + 1 if len(rows) else 0)]


class ProjectionFunction(torch.autograd.Function):
    """The projection of a batch: its rows (b,) first, then the tensors of the result."""

    @staticmethod
    def forward(u_hat: Tensor, ask: _Asked, *values: Tensor) -> tuple[Tensor, ...]:
        """Project plain tensors."""
        return torch.arange(len(u_hat), device=u_hat.device), *ask.run(u_hat, values)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        """Keep which rows these are; the rest is in the call."""
        ctx.ask, ctx.results = inputs[1], len(output)
        ctx.save_for_backward(output[0])
        ctx.save_for_forward(output[0])
        ctx.mark_non_differentiable(output[0], *output[2:])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        """Pull the gradient in u back to û and params."""
        if gradients[1] is None:  # only certificates were used, which have no slopes
            return (None,) * len(ctx.needs_input_grad)
        (rows,) = ctx.saved_tensors
        ask: _Asked = ctx.ask
        needed = [name for name, one in zip(ask.names, ctx.needs_input_grad[2:]) if one and name in ask.tracked]
        wanted = ("", *needed)
        found = dict(zip(wanted, Pull.apply(gradients[1], rows, ask, wanted)))  # type: ignore[no-untyped-call]
        return found[""], None, *(found.get(name) for name in ask.names)

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor | None) -> tuple[Tensor | None, ...]:
        """Push a tangent in û forward."""
        (rows,) = ctx.saved_tensors
        moved, others = tangents[0], tangents[2:]
        if any(one is not None for one in others):
            raise UnsupportedLaw(
                "a forward derivative of a projection expects tangents in u_hat alone; got one in params. Use reverse mode for "
                "these: torch.func.vjp or grad, or tensor.requires_grad_() and backward()."
            )
        along = None
        if moved is not None:
            own = 1.0 if ctx.ask.variances is None else ctx.ask.variances  # of du = D·P·D⁻¹·dû
            along = own * Pull.apply(moved / own, rows, ctx.ask, ("",))[0]  # type: ignore[no-untyped-call]
        return None, along, *[None] * (ctx.results - 2)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], u_hat: Tensor, ask: _Asked, *values: Tensor) -> tuple[Any, Any]:
        """Project the batches of all instances as one."""
        folded = [_folded(one, dim, info.batch_size) for one, dim in zip((u_hat, *values), (in_dims[0], *in_dims[2:]))]
        out = ProjectionFunction.apply(folded[0], ask, *folded[1:])  # type: ignore[no-untyped-call]
        return tuple(_unfolded(one, info.batch_size) for one in out), (0,) * len(out)


class Pull(torch.autograd.Function):
    """The derivative of a projection applied to gradients (k, *shape) of some rows; itself not differentiable."""

    @staticmethod
    def forward(gradient: Tensor, rows: Tensor, ask: _Asked, wanted: tuple[str, ...]) -> tuple[Tensor, ...]:
        """Apply it to plain tensors."""
        return tuple(ask.pull(gradient.detach(), rows, wanted))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        """Keep nothing."""

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Refuse."""
        raise UnsupportedLaw(_SECOND)

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor | None) -> tuple[Tensor | None, ...]:
        """Refuse."""
        raise UnsupportedLaw(_SECOND)

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[Any, ...], gradient: Tensor, rows: Tensor, ask: _Asked, wanted: tuple[str, ...]
    ) -> tuple[Any, Any]:  # fmt: skip
        """Apply it to the gradients of all instances at once; rows may be named by several of them."""
        folded = (_folded(one, dim, info.batch_size) for one, dim in zip((gradient, rows), in_dims[:2]))
        out = Pull.apply(*folded, ask, wanted)  # type: ignore[no-untyped-call]
        return tuple(_unfolded(one, info.batch_size) for one in out), (0,) * len(out)


_SECOND = (
    "a projection expects to be differentiated once; got a second derivative (hessian, grad of grad, or forward over reverse). "
    "Take differences of first ones: (g(u + h·d) − g(u − h·d)) / 2h with g = torch.func.grad(loss)."
)


def _folded(value: Tensor, dim: int | None, size: int) -> Tensor:
    """Make one batch of `size` batches (b, …), stacked along `dim`, or the same for all."""
    stacked = value.expand(size, *value.shape) if dim is None else value.movedim(dim, 0)
    return stacked.flatten(0, 1)


def _unfolded(value: Tensor, size: int) -> Tensor:
    return value.reshape(size, len(value) // size, *value.shape[1:])


def _dual(value: Tensor) -> bool:
    return value.is_floating_point() and forward_ad.unpack_dual(value).tangent is not None  # type: ignore[no-untyped-call]
