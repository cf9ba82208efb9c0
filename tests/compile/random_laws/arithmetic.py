"""Steps element by element: arithmetic, powers, smooth functions, branches and casts."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from tests.compile.random_laws.chain import Chain, away, between, large, operand, operator, plain, small
from torch import Tensor

for _name, _apply in {
    "x + y": lambda x, y: x + y, "y - x": lambda x, y: y - x, "x * y": lambda x, y: x * y,
    "lerp": lambda x, y: torch.lerp(x, y.expand_as(x), 0.3), "atan2": lambda x, y: torch.atan2(x, y + 7),
    "hypot": lambda x, y: torch.hypot(x, y + 7),
    "logaddexp": torch.logaddexp, "addcmul": lambda x, y: torch.addcmul(x, x, y, value=0.5),
    "addcdiv": lambda x, y: torch.addcdiv(x, x, y * y + 1), "x / (1 + y²)": lambda x, y: x / (1 + y * y),
}.items():  # fmt: skip

    def _binary(c: Chain, name: str = _name, apply: Callable[[Tensor, Tensor], Tensor] = _apply) -> bool:
        text, other = operand(c)
        return c.add(f"{name} with y = {text}", lambda x, p: apply(x, other(x, p).to(x.dtype)))

    operator("arithmetic", _name)(_binary)


@operator("arithmetic", "y / x", away)
def _quotient(c: Chain) -> bool:
    text, other = operand(c)
    return c.add(f"({text}) / x", lambda x, p: other(x, p) / x)


@operator("arithmetic", "power")
def _power(c: Chain) -> bool:
    exponents = [0, 1, 2, 3] + [-1, -2] * away(c) + [0.5, 1.5, -0.5, 2.5] * c.above(0.1)
    exponent = c.pick(*exponents)
    return c.add(f"x**{exponent}", lambda x, p: x**exponent)


@operator("arithmetic", "powers")
def _powers(c: Chain) -> bool:
    exponents = torch.randint(0, 4, tuple(c.value.shape), generator=c.generator)
    return c.add(f"x**{exponents.tolist()}", lambda x, p: x**exponents)


@operator("arithmetic", "power of a param", large(0.1))
def _param_power(c: Chain) -> bool:
    name = c.param()
    return c.add(f"x**params['{name}']", lambda x, p: x ** p[name])


plain("arithmetic", "2.0**x", lambda x, p: 2.0**x, small(4))
for _function, _fits in {
    torch.exp: small(3), torch.exp2: small(4), torch.expm1: small(3), torch.sin: small(9), torch.cos: small(9),
    torch.tan: small(1.3), torch.tanh: small(9), torch.sigmoid: small(9), torch.atan: small(9),
    torch.sinh: small(3), torch.cosh: small(3), torch.asinh: small(9), torch.erf: small(3), F.softplus: small(9),
    F.silu: small(9), F.gelu: small(5), F.logsigmoid: small(9), torch.asin: small(0.9), torch.acos: small(0.9),
    torch.atanh: small(0.9), torch.erfinv: small(0.8), torch.sqrt: large(0.1), torch.log: large(0.1),
    torch.rsqrt: large(0.2), torch.log2: large(0.1), torch.log10: large(0.1), torch.log1p: large(-0.8),
    torch.acosh: large(1.1), torch.reciprocal: away, torch.lgamma: large(0.3), torch.logit: between(0.05, 0.95),
    torch.square: small(5), F.mish: small(9), F.elu: small(9),
}.items():  # fmt: skip
    plain("arithmetic", _function.__name__, lambda x, p, f=_function: f(x), _fits)


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
    "complex and back": lambda x: torch.complex(x, 2 * x).conj().imag,
    "polar": lambda x: torch.polar(torch.ones_like(x), x).real,
}.items():  # fmt: skip
    plain("branches", _name, lambda x, p, f=_branch: f(x))

plain("branches", "copysign", lambda x, p: torch.copysign(x, x.flip(list(range(x.dim())))), away)
for _name, _pair in {"maximum": torch.maximum, "minimum": torch.minimum, "fmax": torch.fmax}.items():

    def _extreme(c: Chain, name: str = _name, apply: Callable[[Tensor, Tensor], Tensor] = _pair) -> bool:
        text, other = operand(c)
        return c.add(f"{name}(x, {text})", lambda x, p: apply(x, other(x, p).to(x.dtype)))

    operator("branches", _name)(_extreme)


@operator("branches", "where by a mask")
def _where_mask(c: Chain) -> bool:
    mask = torch.rand(tuple(c.value.shape), generator=c.generator) < 0.5
    text, other = operand(c)
    return c.add(f"where({mask.tolist()}, x, {text})", lambda x, p: torch.where(mask, x, other(x, p).to(x.dtype)))


@operator("branches", "where by a param")
def _where_param(c: Chain) -> bool:
    name = c.param(*c.value.shape[-1:])
    text, other = operand(c)
    return c.add(f"where({name} > 1, x, {text})", lambda x, p: torch.where(p[name] > 1, x, other(x, p).to(x.dtype)))
