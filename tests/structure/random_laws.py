"""Laws composed at random: a hypothesis strategy over every family of supported operators.

A law is a chain of steps, each a small torch function of the value so far. While a chain is drawn it is run at the
points where it will be checked, so a step is offered only where it is defined (a logarithm where all values are
positive) and stays small (growing axes and growing values stop it). Its text is what a failing example prints.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from hypothesis import strategies as st
from torch import Tensor

Params = Mapping[str, Tensor]
Apply = Callable[[Tensor, Params], Tensor]
Draw = Callable[[st.SearchStrategy[Any]], Any]

SHAPES = [(), (0,), (1,), (4,), (7,), (1, 1), (3, 5), (5, 2), (1, 6), (4, 1), (0, 3), (2, 3, 4), (3, 1, 2), (2, 0, 3)]
LARGEST = 48  # elements of any value of a chain: dense references are computed row by row
STEEPEST = 30.0  # values beyond this end a chain: a tolerance derived from the dtype would mean nothing


@dataclass
class Chain:
    """A law being drawn: its steps, its params, and its value at every point where it will be looked at."""

    shape: tuple[int, ...]
    fields: Tensor  # (points, *shape)
    generator: torch.Generator
    draw: Draw
    steps: list[tuple[str, Apply]] = field(default_factory=list)
    params: dict[str, Tensor] = field(default_factory=dict)  # (points, *shape of the param)
    values: list[Tensor] = field(default_factory=list)
    coarse: bool = False  # a float32 was on the way

    def residual(self, u: Tensor, params: Params) -> Tensor:
        """Evaluate the law."""
        for _, apply in self.steps:
            u = apply(u, params)
        return u

    def param(self, *shape: int) -> str:
        """Ask for a new param of that shape; values in (0.6, 1.6)."""
        name = f"p{len(self.params)}"
        points = len(self.fields)
        self.params[name] = 0.6 + torch.rand(points, *shape, generator=self.generator, dtype=torch.float64)
        # Points 0 and 1 stand for one sample: same params, two fields.
        self.params[name][1] = self.params[name][0]
        return name

    def constant(self, *shape: int, zeros: bool = True) -> Tensor:
        """Make a constant that the law closes over; about a third of its entries are zero if asked for."""
        values = torch.rand(shape, generator=self.generator, dtype=torch.float64) + 0.3
        sign = torch.rand(shape, generator=self.generator, dtype=torch.float64)
        values = torch.where(sign < 0.5, -values, values)
        return torch.where(torch.rand(shape, generator=self.generator) < 0.3, 0.0, values) if zeros else values

    def pick(self, *options: Any) -> Any:
        """Draw one of the options."""
        return self.draw(st.sampled_from(options))

    def axis(self) -> int:
        """Draw an axis of the present value, counted from either end."""
        return self.draw(st.integers(-self.dim, self.dim - 1))

    def index(self, extent: int, count: int) -> Tensor:
        """Draw `count` indices below `extent`, repeated or not."""
        return torch.randint(0, extent, (count,), generator=self.generator)

    @property
    def value(self) -> Tensor:
        """The present value at the first point."""
        return self.values[0]

    @property
    def dim(self) -> int:
        """Number of axes of the present value."""
        return self.value.dim()

    @property
    def last(self) -> int:
        """Extent of the last axis."""
        return self.value.shape[-1] if self.dim else 0

    def below(self, limit: float) -> bool:
        """Whether all values are smaller than the limit in size."""
        return all(float(v.abs().max()) < limit for v in self.values if v.numel())

    def above(self, limit: float) -> bool:
        """Whether all values are greater than the limit."""
        return all(float(v.min()) > limit for v in self.values if v.numel())

    def add(self, text: str, apply: Apply) -> bool:
        """Append a step, unless its result is too large, too steep or undefined at some point."""
        results = []
        for i, value in enumerate(self.values):
            result = apply(value, {name: param[i] for name, param in self.params.items()})
            if result.numel() > LARGEST or not bool((result.abs() < STEEPEST).all()):
                return False
            results.append(result)
        self.steps.append((text, apply))
        self.values = results
        self.coarse |= text.startswith("float32")
        return True

    def __repr__(self) -> str:
        lines = [f"field {self.shape}, params { {k: tuple(v.shape[1:]) for k, v in self.params.items()} }"]
        return "\n  ".join([*lines, *(f"x = {text}" for text, _ in self.steps)])


@dataclass(frozen=True)
class Operator:
    """One kind of step: where it can be taken, and how it is drawn and appended."""

    fits: Callable[[Chain], bool]
    append: Callable[[Chain], bool]


FAMILIES: dict[str, dict[str, Operator]] = {}


def _operator(family: str, name: str, fits: Callable[[Chain], bool] = lambda c: True) -> Callable[[Any], Any]:
    def register(append: Callable[[Chain], bool]) -> Callable[[Chain], bool]:
        FAMILIES.setdefault(family, {})[name] = Operator(fits, append)
        return append

    return register


def _plain(family: str, name: str, apply: Apply, fits: Callable[[Chain], bool] = lambda c: True) -> None:
    """Register an operator that has nothing to draw."""
    _operator(family, name, fits)(lambda c: c.add(name, apply))


@st.composite
def laws(draw: Draw, family: str) -> Chain:
    """Compose a law whose first step is of the given family and up to four more of any."""
    shape = draw(st.sampled_from(SHAPES))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
    low = draw(st.sampled_from([0.2, -1.2]))
    fields = low + 1.3 * torch.rand(3, *shape, generator=generator, dtype=torch.float64)
    example = 0.1 + 0.8 * torch.rand(1, *shape, generator=generator, dtype=torch.float64)  # where analyze() looks
    chain = Chain(shape, torch.cat([fields, example]), generator, draw)
    chain.values = list(chain.fields.unbind())
    everything = [(name, operator) for table in FAMILIES.values() for name, operator in table.items()]
    for step in range(draw(st.integers(1, 5))):
        table = list(FAMILIES[family].items()) if step == 0 else everything
        fitting = [entry for entry in table if entry[1].fits(chain)]
        if fitting:
            draw(st.sampled_from(fitting))[1].append(chain)
    return chain


# ---------------------------------------------------------------------------------------------- arithmetic
def _small(limit: float) -> Callable[[Chain], bool]:
    return lambda c: c.below(limit)


def _large(limit: float) -> Callable[[Chain], bool]:
    return lambda c: c.above(limit)


def _away(c: Chain) -> bool:
    return all(float(v.abs().min()) > 0.1 for v in c.values if v.numel())


def _between(low: float, high: float) -> Callable[[Chain], bool]:
    return lambda c: c.above(low) and c.below(high)


def _operand(c: Chain) -> tuple[str, Apply]:
    """Draw a second operand that broadcasts: a number, a constant with zeros, a param, or the value itself, moved."""
    kind = c.pick("number", "constant", "row", "param", "param-row", "param-scalar", "flipped", "first", "same")
    shape = tuple(c.value.shape)
    row = shape[-1:]
    if kind == "number":
        number = c.pick(2.0, -0.5, 3, 0.0)
        return str(number), lambda x, p: torch.full((), float(number), dtype=x.dtype)
    if kind in ("constant", "row"):
        constant = c.constant(*(shape if kind == "constant" else row))
        return f"constant{tuple(constant.shape)}", lambda x, p: constant
    if kind.startswith("param"):
        name = c.param(*{"param": shape, "param-row": row, "param-scalar": ()}[kind])
        return f"params['{name}']", lambda x, p: p[name]
    if kind == "flipped":
        axes = list(range(c.dim))
        return "x.flip", lambda x, p: x.flip(axes)
    if kind == "first" and c.dim and c.last:
        return "x[..., :1]", lambda x, p: x[..., :1]
    return "x", lambda x, p: x


for _name, _apply in {
    "x + y": lambda x, y: x + y, "y - x": lambda x, y: y - x, "x * y": lambda x, y: x * y, "lerp": lambda x, y: torch.lerp(x, y.to(x.dtype).expand_as(x), 0.3),
    "atan2": lambda x, y: torch.atan2(x, y + 7), "hypot": lambda x, y: torch.hypot(x, (y + 7).to(x.dtype)),
    "logaddexp": torch.logaddexp, "addcmul": lambda x, y: torch.addcmul(x, x, y, value=0.5),
    "addcdiv": lambda x, y: torch.addcdiv(x, x, y * y + 1), "x / (1 + y²)": lambda x, y: x / (1 + y * y),
}.items():  # fmt: skip

    def _binary(c: Chain, name: str = _name, apply: Callable[[Tensor, Tensor], Tensor] = _apply) -> bool:
        text, other = _operand(c)
        return c.add(f"{name} with y = {text}", lambda x, p: apply(x, other(x, p).to(x.dtype)))

    _operator("arithmetic", _name)(_binary)


@_operator("arithmetic", "y / x", _away)
def _quotient(c: Chain) -> bool:
    text, other = _operand(c)
    return c.add(f"({text}) / x", lambda x, p: other(x, p) / x)


@_operator("arithmetic", "power")
def _power(c: Chain) -> bool:
    exponents = [0, 1, 2, 3] + [-1, -2] * _away(c) + [0.5, 1.5, -0.5, 2.5] * c.above(0.1)
    exponent = c.pick(*exponents)
    return c.add(f"x**{exponent}", lambda x, p: x**exponent)


@_operator("arithmetic", "powers")
def _powers(c: Chain) -> bool:
    exponents = torch.randint(0, 4, tuple(c.value.shape), generator=c.generator)
    return c.add(f"x**{exponents.tolist()}", lambda x, p: x**exponents)


@_operator("arithmetic", "power of a param", _large(0.1))
def _param_power(c: Chain) -> bool:
    name = c.param()
    return c.add(f"x**params['{name}']", lambda x, p: x ** p[name])


_plain("arithmetic", "2.0**x", lambda x, p: 2.0**x, _small(4))
for _function, _fits in {
    torch.exp: _small(3), torch.exp2: _small(4), torch.expm1: _small(3), torch.sin: _small(9), torch.cos: _small(9),
    torch.tan: _small(1.3), torch.tanh: _small(9), torch.sigmoid: _small(9), torch.atan: _small(9),
    torch.sinh: _small(3), torch.cosh: _small(3), torch.asinh: _small(9), torch.erf: _small(3), F.softplus: _small(9),
    F.silu: _small(9), F.gelu: _small(5), F.logsigmoid: _small(9), torch.asin: _small(0.9), torch.acos: _small(0.9),
    torch.atanh: _small(0.9), torch.erfinv: _small(0.8), torch.sqrt: _large(0.1), torch.log: _large(0.1),
    torch.rsqrt: _large(0.2), torch.log2: _large(0.1), torch.log10: _large(0.1), torch.log1p: _large(-0.8),
    torch.acosh: _large(1.1), torch.reciprocal: _away, torch.lgamma: _large(0.3), torch.logit: _between(0.05, 0.95),
    torch.square: _small(5), F.mish: _small(9), F.elu: _small(9),
}.items():  # fmt: skip
    _plain("arithmetic", _function.__name__, lambda x, p, f=_function: f(x), _fits)


# ---------------------------------------------------------------------------------------------- branches, casts
for _name, _branch in {
    "abs": torch.abs, "relu": F.relu, "leaky relu": F.leaky_relu, "clamp": lambda x: x.clamp(-0.4, 0.6),
    "clamp min": lambda x: x.clamp(min=0.3), "hardtanh": F.hardtanh, "threshold": lambda x: F.threshold(x, 0.4, 0.1),
    "softshrink": F.softshrink, "where x > 0.5": lambda x: torch.where(x > 0.5, x * x, 2 * x),
    "where else number": lambda x: torch.where(x > 0.5, x, -1.0), "mask times x": lambda x: (x > 0.5).to(x.dtype) * x,
    "sign times x": lambda x: torch.sign(x) * x, "floor": lambda x: x + torch.floor(3 * x),
    "remainder": lambda x: torch.remainder(x, 0.7), "fmod": lambda x: torch.fmod(x, 0.7), "frac": torch.frac,
    "through integers": lambda x: (5 * x).long().to(x.dtype) + x, "through bool": lambda x: x.bool().to(x.dtype) - x,
    "nan to num": torch.nan_to_num, "heaviside": lambda x: torch.heaviside(x.detach(), x.new_ones(())) * x,
    "round": lambda x: torch.round(x) * x, "prelu": lambda x: F.prelu(x, x.new_full((1,), 0.3)),
    "huber": lambda x: F.huber_loss(x, torch.zeros_like(x), reduction="none", delta=0.4),
    "relu6": F.relu6,
    "float32": lambda x: x.float(), "float32 and back": lambda x: x.float().double(),
    "complex and back": lambda x: torch.complex(x, 2 * x).conj().imag, "polar": lambda x: torch.polar(torch.ones_like(x), x).real,
}.items():  # fmt: skip
    _plain("branches", _name, lambda x, p, f=_branch: f(x))

_plain("branches", "copysign", lambda x, p: torch.copysign(x, x.flip(list(range(x.dim())))), _away)
for _name, _pair in {"maximum": torch.maximum, "minimum": torch.minimum, "fmax": torch.fmax}.items():

    def _extreme(c: Chain, name: str = _name, apply: Callable[[Tensor, Tensor], Tensor] = _pair) -> bool:
        text, other = _operand(c)
        return c.add(f"{name}(x, {text})", lambda x, p: apply(x, other(x, p).to(x.dtype)))

    _operator("branches", _name)(_extreme)


@_operator("branches", "where by a mask")
def _where_mask(c: Chain) -> bool:
    mask = torch.rand(tuple(c.value.shape), generator=c.generator) < 0.5
    text, other = _operand(c)
    return c.add(f"where({mask.tolist()}, x, {text})", lambda x, p: torch.where(mask, x, other(x, p).to(x.dtype)))


@_operator("branches", "where by a param")
def _where_param(c: Chain) -> bool:
    name = c.param(*c.value.shape[-1:])
    text, other = _operand(c)
    return c.add(f"where({name} > 1, x, {text})", lambda x, p: torch.where(p[name] > 1, x, other(x, p).to(x.dtype)))


# ---------------------------------------------------------------------------------------------- movement
def _axes(c: Chain) -> bool:
    return c.dim >= 1


def _full(c: Chain) -> bool:
    return c.dim >= 1 and c.value.numel() > 0


def _plane(c: Chain) -> bool:
    return c.dim >= 2 and c.value.numel() > 0


@_operator("movement", "slice", _axes)
def _slice(c: Chain) -> bool:
    axis, start, stop, step = c.axis(), c.pick(0, 1, -2, None), c.pick(None, -1, 3), c.pick(1, 2)
    index = [slice(None)] * c.dim
    index[axis] = slice(start, stop, step)
    return c.add(f"x[{index}]", lambda x, p: x[tuple(index)])


@_operator("movement", "select", _full)
def _select(c: Chain) -> bool:
    axis, place = c.axis(), c.pick(0, -1)
    return c.add(f"x.select({axis}, {place})", lambda x, p: x.select(axis, place))


@_operator("movement", "index", _full)
def _index(c: Chain) -> bool:
    rows = c.index(c.value.shape[0], 3)
    columns = c.index(c.last, 3)
    both = c.dim >= 2 and c.pick(True, False)
    if both:
        return c.add(f"x[{rows.tolist()}, ..., {columns.tolist()}]", lambda x, p: x[rows, ..., columns])
    return c.add(f"x[..., {columns.tolist()}]", lambda x, p: x[..., columns])


@_operator("movement", "mask", _axes)
def _mask(c: Chain) -> bool:
    mask = torch.rand(tuple(c.value.shape), generator=c.generator) < 0.6
    return c.add(f"x[{mask.tolist()}]", lambda x, p: x[mask])


@_operator("movement", "index select", _full)
def _index_select(c: Chain) -> bool:
    axis = c.axis()
    index = c.index(c.value.shape[axis], 4)
    return c.add(f"x.index_select({axis}, {index.tolist()})", lambda x, p: x.index_select(axis, index))


@_operator("movement", "gather", _full)
def _gather(c: Chain) -> bool:
    axis = c.axis()
    index = torch.randint(0, c.value.shape[axis], tuple(c.value.shape), generator=c.generator)
    return c.add(f"x.gather({axis}, {index.tolist()})", lambda x, p: x.gather(axis, index))


@_operator("movement", "index by a param", _full)
def _index_param(c: Chain) -> bool:
    name, extent = c.param(2), c.last
    return c.add(
        f"x[..., params['{name}'] as index]", lambda x, p: x[..., (10 * p[name]).long().remainder(extent)]
    )


@_operator("movement", "roll", _axes)
def _roll(c: Chain) -> bool:
    axis, shift = c.axis(), c.pick(1, -1, 2)
    return c.add(f"x - x.roll({shift}, {axis})", lambda x, p: x - x.roll(shift, axis))


@_operator("movement", "flip", _axes)
def _flip(c: Chain) -> bool:
    axis = c.axis()
    return c.add(f"x.flip({axis})", lambda x, p: x.flip(axis))


@_operator("movement", "pad", _full)
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


@_operator("movement", "pad a plane", _plane)
def _pad_plane(c: Chain) -> bool:
    mode = c.pick("reflect", "replicate", "circular")
    high = c.value.shape[-2]
    if c.last < 2 or high < 2:
        return False
    shape = (1, -1, high, c.last)
    return c.add(f"pad(x, (1, 1, 1, 0), '{mode}')", lambda x, p: F.pad(x.reshape(shape), (1, 1, 1, 0), mode=mode)[0])


@_operator("movement", "join", _axes)
def _join(c: Chain) -> bool:
    axis, join = c.axis(), c.pick(torch.cat, torch.stack)
    constant = c.constant(*c.value.shape)
    return c.add(f"{join.__name__}([x, constant, 2x], {axis})", lambda x, p: join([x, constant.to(x.dtype), 2 * x], axis))


@_operator("movement", "permute")
def _permute(c: Chain) -> bool:
    order = c.draw(st.permutations(range(c.dim)))
    return c.add(f"x.permute({order})", lambda x, p: x.permute(*order) if order else x)


@_operator("movement", "expand")
def _expand(c: Chain) -> bool:
    shape = (2, *c.value.shape)
    return c.add(f"x.expand{shape}", lambda x, p: x.expand(shape))


@_operator("movement", "unfold", _full)
def _unfold(c: Chain) -> bool:
    size, step = min(2, c.last), c.pick(1, 2)
    return c.add(f"x.unfold(-1, {size}, {step})", lambda x, p: x.unfold(-1, size, step))


@_operator("movement", "repeat", _axes)
def _repeat(c: Chain) -> bool:
    axis = c.axis()
    return c.add(f"x.repeat_interleave(2, {axis})", lambda x, p: x.repeat_interleave(2, axis))


_plain("movement", "reshape", lambda x, p: x.reshape(-1))
_plain("movement", "unsqueeze and squeeze", lambda x, p: x.unsqueeze(-1).squeeze())
_plain("movement", "transpose", lambda x, p: x.transpose(0, -1), _axes)
_plain("movement", "diagonal", lambda x, p: x.diagonal(0, -2, -1), _plane)
_plain("movement", "tril", lambda x, p: x.tril(), lambda c: c.dim >= 2)
_plain("movement", "diag embed", lambda x, p: torch.diag_embed(x), _axes)
_plain("movement", "chunk", lambda x, p: x.chunk(2, -1)[0], _full)
_plain("movement", "unbind", lambda x, p: x.unbind(0)[-1], _full)
_plain("movement", "diff", lambda x, p: x.diff(dim=-1), _full)
_plain("movement", "second difference", lambda x, p: x[..., 2:] - 2 * x[..., 1:-1] + x[..., :-2], _full)
_plain("movement", "take", lambda x, p: x.take(torch.tensor([0, 0])), _full)


# ---------------------------------------------------------------------------------------------- writes
@_operator("writes", "write a slice", _full)
def _write_slice(c: Chain) -> bool:
    text, other = _operand(c)

    def write(x: Tensor, p: Params) -> Tensor:
        out = x.clone()
        out[..., 0] = other(x, p).to(x.dtype).expand_as(x)[..., -1]
        return out

    return c.add(f"x.clone() with [..., 0] = ({text})[..., -1]", write)


@_operator("writes", "write by index", _full)
def _write_index(c: Chain) -> bool:
    index, adds = c.index(c.last, 2), c.pick(True, False)
    if not adds:
        index = index[:1]  # repeated targets leave open which one wins

    def write(x: Tensor, p: Params) -> Tensor:
        rows = x.reshape(-1, x.shape[-1])
        where = (torch.zeros_like(index), index)
        return torch.index_put(rows, where, rows[-1, : len(index)].mean() * torch.ones_like(index), accumulate=adds)

    return c.add(f"index_put([0, {index.tolist()}], mean, accumulate={adds})", write)


@_operator("writes", "write a mask", _axes)
def _write_mask(c: Chain) -> bool:
    mask = torch.rand(tuple(c.value.shape), generator=c.generator) < 0.4

    def write(x: Tensor, p: Params) -> Tensor:
        out = x.clone()
        out[mask] = 0.25
        out *= 2
        return out

    return c.add(f"x.clone() with [{mask.tolist()}] = 0.25, then *= 2", write)


@_operator("writes", "write where large", _axes)
def _write_large(c: Chain) -> bool:
    how = c.pick("a number", "the mean")

    def write(x: Tensor, p: Params) -> Tensor:
        out = x.clone()
        out[x > 0.4] = 0.3 if how == "a number" else x.mean()
        return out

    return c.add(f"x.clone() with [x > 0.4] set to {how}", write)


@_operator("writes", "write into zeros", _full)
def _write_zeros(c: Chain) -> bool:
    def write(x: Tensor, p: Params) -> Tensor:
        out = torch.zeros_like(x)
        out[..., 1:] = x[..., :-1]
        out[..., :-1] += 3 * x[..., 1:]
        out[..., 0].fill_(1.0)
        return out

    return c.add("zeros_like(x) filled from neighbours", write)


@_operator("writes", "write into a constant", _full)
def _write_constant(c: Chain) -> bool:
    constant = c.constant(*c.value.shape)

    def write(x: Tensor, p: Params) -> Tensor:
        out = constant.to(x.dtype).clone()
        out[..., -1] = x[..., 0]
        out *= x
        return out

    return c.add("constant.clone() with [..., -1] = x[..., 0], then *= x", write)


@_operator("writes", "write into a param", _full)
def _write_param(c: Chain) -> bool:
    name = c.param(*c.value.shape)

    def write(x: Tensor, p: Params) -> Tensor:
        out = p[name].to(x.dtype).clone()
        out[..., 0] = x[..., -1]
        return out

    return c.add(f"params['{name}'].clone() with [..., 0] = x[..., -1]", write)


@_operator("writes", "write in place twice", _full)
def _write_twice(c: Chain) -> bool:
    def write(x: Tensor, p: Params) -> Tensor:
        out = x.clone()
        out.mul_(x)
        out.select(0, 0).copy_(x.select(0, -1)).add_(1)
        return out

    return c.add("x.clone() multiplied and copied in place", write)


@_operator("writes", "scatter", _full)
def _scatter(c: Chain) -> bool:
    axis = c.axis()
    index = torch.randint(0, c.value.shape[axis], tuple(c.value.shape), generator=c.generator)
    how = c.pick("add", "sum", "mean", "amax")

    def write(x: Tensor, p: Params) -> Tensor:
        if how == "add":
            return torch.scatter_add(x, axis, index, 2 * x.flip(0))
        return torch.scatter_reduce(x, axis, index, 0.7 * x.flip(0), how)

    return c.add(f"scatter {how}(x, {axis}, {index.tolist()}, x.flip(0))", write)


@_operator("writes", "index add", _full)
def _index_add(c: Chain) -> bool:
    axis = c.axis()
    index = c.index(c.value.shape[axis], c.value.shape[axis])
    return c.add(f"x.index_add({axis}, {index.tolist()}, x²)", lambda x, p: x.index_add(axis, index, x * x))


@_operator("writes", "index copy", _full)
def _index_copy(c: Chain) -> bool:
    axis = c.axis()
    order = torch.randperm(c.value.shape[axis], generator=c.generator)
    return c.add(f"x.index_copy({axis}, {order.tolist()}, 3x)", lambda x, p: x.index_copy(axis, order, 3 * x))


@_operator("writes", "masked fill")
def _masked_fill(c: Chain) -> bool:
    mask = torch.rand(tuple(c.value.shape), generator=c.generator) < 0.4
    return c.add(f"x.masked_fill({mask.tolist()}, 0.5)", lambda x, p: x.masked_fill(mask, 0.5))


_plain("writes", "masked fill by value", lambda x, p: x.masked_fill(x > 0.4, 0.5))
_plain("writes", "diagonal scatter", lambda x, p: torch.diagonal_scatter(x, x[0, : min(x.shape)], 0), lambda c: c.dim == 2 and 1 <= c.value.shape[0] <= c.value.shape[1])  # fmt: skip


# ---------------------------------------------------------------------------------------------- reductions
for _name, _reduce in {
    "sum": torch.sum, "mean": torch.mean, "amax": torch.amax, "amin": torch.amin, "logsumexp": torch.logsumexp,
    "prod": torch.prod, "max": lambda x, d, keepdim=False: x.max(d, keepdim).values, "nansum": torch.nansum,
    "median": lambda x, d, keepdim=False: x.median(d, keepdim).values,
}.items():  # fmt: skip

    def _reduction(c: Chain, name: str = _name, apply: Callable[..., Tensor] = _reduce) -> bool:
        axis, keepdim = c.axis(), c.pick(True, False)
        return c.add(f"{name}(x, {axis}, keepdim={keepdim})", lambda x, p: apply(x, axis, keepdim=keepdim))

    _operator("reductions", _name, _full)(_reduction)


def _spread(c: Chain) -> bool:
    """Whether every line along the last axis has a standard deviation well above zero."""
    return _full(c) and c.last > 1 and all(float(v.std(-1).min()) > 0.05 for v in c.values)


def _long(c: Chain) -> bool:
    return _full(c) and all(float(v.abs().sum(-1).min()) > 0.05 for v in c.values)


@_operator("reductions", "norm", _long)
def _norm(c: Chain) -> bool:
    order = c.pick(1, 2, 3, math.inf)
    return c.add(f"vector_norm(x, {order}, -1)", lambda x, p: torch.linalg.vector_norm(x, order, -1))


@_operator("reductions", "scan", _full)
def _scan(c: Chain) -> bool:
    axis, scan = c.axis(), c.pick(torch.cumsum, torch.cumprod, torch.logcumsumexp)
    return c.add(f"{scan.__name__}(x, {axis})", lambda x, p: scan(x, axis))


@_operator("reductions", "softmax", _full)
def _softmax(c: Chain) -> bool:
    axis, kind = c.axis(), c.pick(torch.softmax, torch.log_softmax)
    return c.add(f"{kind.__name__}(x, {axis})", lambda x, p: kind(x, axis))


@_operator("reductions", "sort", _full)
def _sort(c: Chain) -> bool:
    axis = c.axis()
    return c.add(f"sort(x, {axis})", lambda x, p: x.sort(axis).values)


_plain("reductions", "sum of all", lambda x, p: x.sum())
_plain("reductions", "mean of all", lambda x, p: x.mean(), _full)
_plain("reductions", "var", lambda x, p: x.var(-1), _spread)
_plain("reductions", "std", lambda x, p: x.std(-1), _spread)
_plain("reductions", "topk", lambda x, p: x.topk(1, -1).values, _full)
_plain("reductions", "kthvalue", lambda x, p: x.kthvalue(1, -1).values, _full)
_plain("reductions", "var mean", lambda x, p: torch.stack(torch.var_mean(x, -1)), _spread)
_plain("reductions", "trapezoid", lambda x, p: torch.trapezoid(x, dx=0.1, dim=-1), _full)
_plain("reductions", "cumulative trapezoid", lambda x, p: torch.cumulative_trapezoid(x, dim=-1), _full)
_plain("reductions", "mse", lambda x, p: F.mse_loss(x, torch.full_like(x, 0.2)), _full)


# ---------------------------------------------------------------------------------------------- contractions
@_operator("contractions", "matrix product", _full)
def _matrix_product(c: Chain) -> bool:
    if c.pick(True, False):
        matrix = c.constant(c.last, 3)
        return c.add("x @ constant", lambda x, p: x @ matrix.to(x.dtype))
    name = c.param(c.last, 2)
    return c.add(f"x @ params['{name}']", lambda x, p: x @ p[name].to(x.dtype))


@_operator("contractions", "product from the left", _plane)
def _left_product(c: Chain) -> bool:
    matrix = c.constant(2, c.value.shape[-2])
    return c.add("constant @ x", lambda x, p: matrix.to(x.dtype) @ x)


@_operator("contractions", "einsum", _full)
def _einsum(c: Chain) -> bool:
    weight = c.constant(c.value.shape[0])
    return c.add("einsum('i,i...->...', constant, x)", lambda x, p: torch.einsum("i,i...->...", weight.to(x.dtype), x))


@_operator("contractions", "matrix vector", _full)
def _matrix_vector(c: Chain) -> bool:
    matrix, shape = c.constant(3, c.value.numel()), (c.value.numel(),)
    return c.add("constant.mv(x.flatten())", lambda x, p: matrix.to(x.dtype).mv(x.reshape(shape)))


@_operator("contractions", "addmm", _plane)
def _addmm(c: Chain) -> bool:
    matrix, shape = c.constant(c.last, c.last), (-1, c.last)

    def apply(x: Tensor, p: Params) -> Tensor:
        rows = x.reshape(shape)
        return torch.addmm(rows, rows, matrix.to(x.dtype), alpha=0.5)

    return c.add("addmm(x, x, constant)", apply)


_plain("contractions", "x @ x.mT", lambda x, p: x @ x.mT, _plane)
_plain("contractions", "dot with its reverse", lambda x, p: x.flatten().dot(x.flatten().flip(0)), _full)
_plain("contractions", "dot with itself", lambda x, p: x.flatten().dot(x.flatten()), _full)
_plain("contractions", "outer", lambda x, p: torch.outer(x.flatten()[:4], x.flatten()), _full)
_plain("contractions", "einsum of x with x", lambda x, p: torch.einsum("i...,j...->ij", x, x), _full)
_plain("contractions", "bmm", lambda x, p: torch.bmm(x.expand(2, *x.shape), x.mT.expand(2, *x.mT.shape)), lambda c: c.dim == 2)  # fmt: skip


@_operator("contractions", "conv1d", _full)
def _conv1d(c: Chain) -> bool:
    stride, padding, dilation = c.pick(1, 2), c.pick(0, 1), c.pick(1, 2)
    channels = math.prod(c.value.shape[:-1])
    transposed, grouped = c.pick(True, False), c.pick(True, False)
    groups = channels if grouped else 1
    outputs = 1 if grouped or transposed else 2
    shape = (channels, outputs, 2) if transposed else (outputs * groups, channels // groups, 2)
    if min(c.last + 2 * padding - dilation, (c.last - 1) * stride - 2 * padding + dilation + 1) < 1:
        return False
    by_param = c.pick(False, False, True)
    name, constant = (c.param(*shape), None) if by_param else ("", c.constant(*shape))
    layout, convolve = (1, channels, c.last), F.conv_transpose1d if transposed else F.conv1d

    def apply(x: Tensor, p: Params) -> Tensor:
        kernel = (p[name] if constant is None else constant).to(x.dtype)
        return convolve(x.reshape(layout), kernel, stride=stride, padding=padding, dilation=dilation, groups=groups)[0]

    text = f"{convolve.__name__}(x{layout}, {'param' if by_param else 'constant'}{shape}"
    return c.add(f"{text}, {stride=}, {padding=}, {dilation=}, {groups=})", apply)


@_operator("contractions", "conv2d", lambda c: _plane(c) and min(c.value.shape[-2:]) >= 2)
def _conv2d(c: Chain) -> bool:
    stride, padding, transposed = c.pick(1, 2), c.pick(0, 1), c.pick(True, False)
    kernel, layout = c.constant(1, 1, 2, 2), (-1, 1, *c.value.shape[-2:])
    convolve = F.conv_transpose2d if transposed else F.conv2d

    def apply(x: Tensor, p: Params) -> Tensor:
        return convolve(x.reshape(layout), kernel.to(x.dtype), stride=stride, padding=padding)[:, 0]

    return c.add(f"{convolve.__name__}(x, constant, {stride=}, {padding=})", apply)


@_operator("contractions", "interpolate a line", _full)
def _interpolate(c: Chain) -> bool:
    mode, size, layout = c.pick("linear", "nearest", "nearest-exact"), c.pick(2, 3, 5), (1, -1, c.last)
    align = c.pick(True, False) if mode == "linear" else None

    def apply(x: Tensor, p: Params) -> Tensor:
        return F.interpolate(x.reshape(layout), size=size, mode=mode, align_corners=align)[0]

    return c.add(f"interpolate(x, {size}, '{mode}', align_corners={align})", apply)


@_operator("contractions", "interpolate a plane", _plane)
def _interpolate_plane(c: Chain) -> bool:
    mode, size, layout = c.pick("bilinear", "bicubic", "nearest"), c.pick((2, 3), (4, 2)), (1, -1, *c.value.shape[-2:])
    align = c.pick(True, False) if mode != "nearest" else None

    def apply(x: Tensor, p: Params) -> Tensor:
        return F.interpolate(x.reshape(layout), size=size, mode=mode, align_corners=align)[0]

    return c.add(f"interpolate(x, {size}, '{mode}', align_corners={align})", apply)


_plain("contractions", "avg pool", lambda x, p: F.avg_pool1d(x.reshape(1, -1, x.shape[-1]), 2, stride=1)[0], lambda c: _full(c) and c.last > 1)  # fmt: skip
_plain("contractions", "adaptive pool", lambda x, p: F.adaptive_avg_pool2d(x.reshape(1, -1, *x.shape[-2:]), (2, 2))[0], _plane)  # fmt: skip


# ---------------------------------------------------------------------------------------------- spectra
@_operator("spectra", "filter", _full)
def _filter(c: Chain) -> bool:
    size = c.last
    constant = torch.complex(c.constant(size // 2 + 1), c.constant(size // 2 + 1))
    name = c.param(size // 2 + 1) if c.pick(True, False) else None

    def apply(x: Tensor, p: Params) -> Tensor:
        spectrum = torch.fft.rfft(x.double(), dim=-1)
        spectrum = spectrum * (constant if name is None else p[name])
        return torch.fft.irfft(spectrum, n=size, dim=-1)

    return c.add(f"irfft(rfft(x) * {'constant' if name is None else name})", apply)


@_operator("spectra", "derivative", _full)
def _derivative(c: Chain) -> bool:
    axis = c.axis()
    extent = c.value.shape[axis]
    shape = [1] * c.dim
    shape[axis] = extent
    waves = (1j * torch.fft.fftfreq(extent, dtype=torch.float64)).reshape(shape)
    return c.add(
        f"ifft(i k fft(x, {axis})).real", lambda x, p: torch.fft.ifft(waves * torch.fft.fft(x, dim=axis), dim=axis).real
    )


_plain("spectra", "fft parts", lambda x, p: torch.view_as_real(torch.fft.fft(x, dim=0)), _full)
_plain("spectra", "rfft imaginary", lambda x, p: torch.fft.rfft(x, dim=-1).imag, _full)
_plain("spectra", "fft2 real", lambda x, p: torch.fft.fft2(x).real, _plane)
_plain("spectra", "irfft", lambda x, p: torch.fft.irfft(torch.complex(x, 0.5 * x), n=4, dim=-1), _full)


@_operator("spectra", "power spectrum", _full)
def _spectrum(c: Chain) -> bool:
    def apply(x: Tensor, p: Params) -> Tensor:
        spectrum = torch.fft.rfft(x, dim=-1)
        return (spectrum * spectrum.conj()).real

    return c.add("|rfft(x)|²", apply)
