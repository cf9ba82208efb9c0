"""Steps that move, copy, join or overwrite elements."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from hypothesis import strategies as st
from tests.compile.random_laws.chain import Chain, Params, axes, full, operand, operator, plain, plane
from torch import Tensor


@operator("movement", "slice", axes)
def _slice(c: Chain) -> bool:
    axis, start, stop, step = c.axis(), c.pick(0, 1, -2, None), c.pick(None, -1, 3), c.pick(1, 2)
    index = [slice(None)] * c.dim
    index[axis] = slice(start, stop, step)
    return c.add(f"x[{index}]", lambda x, p: x[tuple(index)])


@operator("movement", "select", full)
def _select(c: Chain) -> bool:
    axis, place = c.axis(), c.pick(0, -1)
    return c.add(f"x.select({axis}, {place})", lambda x, p: x.select(axis, place))


@operator("movement", "index", full)
def _index(c: Chain) -> bool:
    rows = c.index(c.value.shape[0], 3)
    columns = c.index(c.last, 3)
    both = c.dim >= 2 and c.pick(True, False)
    if both:
        return c.add(f"x[{rows.tolist()}, ..., {columns.tolist()}]", lambda x, p: x[rows, ..., columns])
    return c.add(f"x[..., {columns.tolist()}]", lambda x, p: x[..., columns])


@operator("movement", "mask", axes)
def _mask(c: Chain) -> bool:
    mask = torch.rand(tuple(c.value.shape), generator=c.generator) < 0.6
    return c.add(f"x[{mask.tolist()}]", lambda x, p: x[mask])


@operator("movement", "index select", full)
def _index_select(c: Chain) -> bool:
    axis = c.axis()
    index = c.index(c.value.shape[axis], 4)
    return c.add(f"x.index_select({axis}, {index.tolist()})", lambda x, p: x.index_select(axis, index))


@operator("movement", "gather", full)
def _gather(c: Chain) -> bool:
    axis = c.axis()
    index = torch.randint(0, c.value.shape[axis], tuple(c.value.shape), generator=c.generator)
    return c.add(f"x.gather({axis}, {index.tolist()})", lambda x, p: x.gather(axis, index))


@operator("movement", "index by a param", full)
def _index_param(c: Chain) -> bool:
    name, extent = c.param(2), c.last
    return c.add(f"x[..., params['{name}'] as index]", lambda x, p: x[..., (10 * p[name]).long().remainder(extent)])


@operator("movement", "roll", axes)
def _roll(c: Chain) -> bool:
    axis, shift = c.axis(), c.pick(1, -1, 2)
    return c.add(f"x - x.roll({shift}, {axis})", lambda x, p: x - x.roll(shift, axis))


@operator("movement", "flip", axes)
def _flip(c: Chain) -> bool:
    axis = c.axis()
    return c.add(f"x.flip({axis})", lambda x, p: x.flip(axis))


@operator("movement", "pad", full)
def _pad(c: Chain) -> bool:
    mode = c.pick("constant", "reflect", "replicate", "circular")
    before, after = c.pick(0, 1, 2), c.pick(0, 1)
    if mode == "constant":
        value = c.pick(0.0, 1.5)
        return c.add(f"pad(x, ({before}, {after}), {value})", lambda x, p: F.pad(x, (before, after), value=value))
    if max(before, after) >= c.last:
        return False
    shape = (1, -1, c.last)

    def padded(x: Tensor, p: Params) -> Tensor:
        return F.pad(x.reshape(shape), (before, after), mode=mode)[0]

    return c.add(f"pad(x, ({before}, {after}), '{mode}')", padded)


@operator("movement", "pad a plane", plane)
def _pad_plane(c: Chain) -> bool:
    mode = c.pick("reflect", "replicate", "circular")
    high = c.value.shape[-2]
    if c.last < 2 or high < 2:
        return False
    shape = (1, -1, high, c.last)
    return c.add(f"pad(x, (1, 1, 1, 0), '{mode}')", lambda x, p: F.pad(x.reshape(shape), (1, 1, 1, 0), mode=mode)[0])


@operator("movement", "join", axes)
def _join(c: Chain) -> bool:
    axis, join = c.axis(), c.pick(torch.cat, torch.stack)
    constant = c.constant(*c.value.shape)
    return c.add(
        f"{join.__name__}([x, constant, 2x], {axis})", lambda x, p: join([x, constant.to(x.dtype), 2 * x], axis)
    )


@operator("movement", "join a param", full)
def _join_param(c: Chain) -> bool:
    name, axis = c.param(*c.value.shape), c.axis()
    return c.add(f"cat([params['{name}'], x], {axis})", lambda x, p: torch.cat([p[name].to(x.dtype), x], axis))


@operator("movement", "permute")
def _permute(c: Chain) -> bool:
    order = c.draw(st.permutations(range(c.dim)))
    return c.add(f"x.permute({order})", lambda x, p: x.permute(*order) if order else x)


@operator("movement", "expand")
def _expand(c: Chain) -> bool:
    shape = (2, *c.value.shape)
    return c.add(f"x.expand{shape}", lambda x, p: x.expand(shape))


@operator("movement", "unfold", full)
def _unfold(c: Chain) -> bool:
    size, step = min(2, c.last), c.pick(1, 2)
    return c.add(f"x.unfold(-1, {size}, {step})", lambda x, p: x.unfold(-1, size, step))


@operator("movement", "repeat", axes)
def _repeat(c: Chain) -> bool:
    axis = c.axis()
    return c.add(f"x.repeat_interleave(2, {axis})", lambda x, p: x.repeat_interleave(2, axis))


plain("movement", "reshape", lambda x, p: x.reshape(-1))
plain("movement", "unsqueeze and squeeze", lambda x, p: x.unsqueeze(-1).squeeze())
plain("movement", "transpose", lambda x, p: x.transpose(0, -1), axes)
plain("movement", "diagonal", lambda x, p: x.diagonal(0, -2, -1), plane)
plain("movement", "tril", lambda x, p: x.tril(), lambda c: c.dim >= 2)
plain("movement", "diag embed", lambda x, p: torch.diag_embed(x), axes)
plain("movement", "chunk", lambda x, p: x.chunk(2, -1)[0], full)
plain("movement", "unbind", lambda x, p: x.unbind(0)[-1], full)
plain("movement", "diff", lambda x, p: x.diff(dim=-1), full)
plain("movement", "second difference", lambda x, p: x[..., 2:] - 2 * x[..., 1:-1] + x[..., :-2], full)
plain("movement", "take", lambda x, p: x.take(torch.tensor([0, 0])), full)


@operator("writes", "write a slice", full)
def _write_slice(c: Chain) -> bool:
    text, other = operand(c)

    def write(x: Tensor, p: Params) -> Tensor:
        out = x.clone()
        out[..., 0] = other(x, p).to(x.dtype).expand_as(x)[..., -1]
        return out

    return c.add(f"x.clone() with [..., 0] = ({text})[..., -1]", write)


@operator("writes", "write by index", full)
def _write_index(c: Chain) -> bool:
    index, adds = c.index(c.last, 2), c.pick(True, False)
    if not adds:
        index = index[:1]  # repeated targets leave open which one wins

    def write(x: Tensor, p: Params) -> Tensor:
        rows = x.reshape(-1, x.shape[-1])
        where = (torch.zeros_like(index), index)
        return torch.index_put(rows, where, rows[-1, : len(index)].mean() * torch.ones_like(index), accumulate=adds)

    return c.add(f"index_put([0, {index.tolist()}], mean, accumulate={adds})", write)


@operator("writes", "write a mask", axes)
def _write_mask(c: Chain) -> bool:
    mask = torch.rand(tuple(c.value.shape), generator=c.generator) < 0.4

    def write(x: Tensor, p: Params) -> Tensor:
        out = x.clone()
        out[mask] = 0.25
        out *= 2
        return out

    return c.add(f"x.clone() with [{mask.tolist()}] = 0.25, then *= 2", write)


@operator("writes", "write where large", axes)
def _write_large(c: Chain) -> bool:
    how = c.pick("a number", "the mean")

    def write(x: Tensor, p: Params) -> Tensor:
        out = x.clone()
        out[x > 0.4] = 0.3 if how == "a number" else x.mean()
        return out

    return c.add(f"x.clone() with [x > 0.4] set to {how}", write)


@operator("writes", "write into zeros", full)
def _write_zeros(c: Chain) -> bool:
    def write(x: Tensor, p: Params) -> Tensor:
        out = torch.zeros_like(x)
        out[..., 1:] = x[..., :-1]
        out[..., :-1] += 3 * x[..., 1:]
        out[..., 0].fill_(1.0)
        return out

    return c.add("zeros_like(x) filled from neighbours", write)


@operator("writes", "write into a constant", full)
def _write_constant(c: Chain) -> bool:
    constant = c.constant(*c.value.shape)

    def write(x: Tensor, p: Params) -> Tensor:
        out = constant.to(x.dtype).clone()
        out[..., -1] = x[..., 0]
        out *= x
        return out

    return c.add("constant.clone() with [..., -1] = x[..., 0], then *= x", write)


@operator("writes", "write into a param", full)
def _write_param(c: Chain) -> bool:
    name = c.param(*c.value.shape)

    def write(x: Tensor, p: Params) -> Tensor:
        out = p[name].to(x.dtype).clone()
        out[..., 0] = x[..., -1]
        return out

    return c.add(f"params['{name}'].clone() with [..., 0] = x[..., -1]", write)


@operator("writes", "write in place twice", full)
def _write_twice(c: Chain) -> bool:
    def write(x: Tensor, p: Params) -> Tensor:
        out = x.clone()
        out.mul_(x)
        out.select(0, 0).copy_(x.select(0, -1)).add_(1)
        return out

    return c.add("x.clone() multiplied and copied in place", write)


@operator("writes", "scatter", full)
def _scatter(c: Chain) -> bool:
    axis = c.axis()
    index = torch.randint(0, c.value.shape[axis], tuple(c.value.shape), generator=c.generator)
    how = c.pick("add", "sum", "mean", "amax")

    def write(x: Tensor, p: Params) -> Tensor:
        if how == "add":
            return torch.scatter_add(x, axis, index, 2 * x.flip(0))
        return torch.scatter_reduce(x, axis, index, 0.7 * x.flip(0), how)

    return c.add(f"scatter {how}(x, {axis}, {index.tolist()}, x.flip(0))", write)


@operator("writes", "index add", full)
def _index_add(c: Chain) -> bool:
    axis = c.axis()
    index = c.index(c.value.shape[axis], c.value.shape[axis])
    return c.add(f"x.index_add({axis}, {index.tolist()}, x²)", lambda x, p: x.index_add(axis, index, x * x))


@operator("writes", "index copy", full)
def _index_copy(c: Chain) -> bool:
    axis = c.axis()
    order = torch.randperm(c.value.shape[axis], generator=c.generator)
    return c.add(f"x.index_copy({axis}, {order.tolist()}, 3x)", lambda x, p: x.index_copy(axis, order, 3 * x))


@operator("writes", "masked fill")
def _masked_fill(c: Chain) -> bool:
    mask = torch.rand(tuple(c.value.shape), generator=c.generator) < 0.4
    return c.add(f"x.masked_fill({mask.tolist()}, 0.5)", lambda x, p: x.masked_fill(mask, 0.5))


plain("writes", "masked fill by value", lambda x, p: x.masked_fill(x > 0.4, 0.5))


def _wide(c: Chain) -> bool:
    return c.dim == 2 and 1 <= c.value.shape[0] <= c.value.shape[1]


plain("writes", "diagonal scatter", lambda x, p: torch.diagonal_scatter(x, x[0, : len(x)], 0), _wide)
