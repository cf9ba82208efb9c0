"""One small law per operator, with the number of Jacobian entries and the kind of its hardest row.

The field is (3, 5) unless said otherwise, so that no axis can be taken for another. `nnz` is the number of entries that
must be found exactly; None stands where only a superset is promised. Functions take the field alone; the few that need
params read `p`, of shape (5,), which is positive.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from snapfm.compile import RowKind

AFFINE, PARAMETRIC, SEPARABLE, GENERAL = RowKind
SHAPE = (3, 5)


def _numbers(*shape: int, zeros: bool = False) -> Tensor:
    """Make fixed numbers of order one without zeros, or with every third one zero."""
    values = torch.sin(torch.arange(1.0, math.prod(shape) + 1, dtype=torch.float64)) + 1.5
    if zeros:
        values[::3] = 0.0
    return values.reshape(shape)


C, CZ = _numbers(3, 5), _numbers(3, 5, zeros=True)  # CZ: 10 of its 15 entries are not zero
M, MZ = _numbers(5, 4), _numbers(5, 4, zeros=True)  # MZ: 13 of its 20 entries are not zero
V = _numbers(5)
MASK = C > 1.5  # 9 of 15
INDEX = torch.tensor([4, 0, 0])
GRID_INDEX = torch.tensor([[0, 4, 4], [1, 1, 0], [2, 3, 3]])


@dataclass(frozen=True)
class Case:
    """A law, the shape of its field, and what its structure must be."""

    name: str
    function: Callable[..., Tensor]
    nnz: int | None
    kind: RowKind
    shape: tuple[int, ...] = SHAPE
    with_params: bool = False

    def residual(self, u: Tensor, params: Mapping[str, Tensor]) -> Tensor:
        """Call the function with the param where it asks for it."""
        return self.function(u, params["p"]) if self.with_params else self.function(u)


def _written(start: Tensor, write: Callable[[Tensor], Any]) -> Tensor:
    out = start.clone()
    write(out)
    return out


def _set(index: Any, value: Callable[[Tensor], Any]) -> Callable[[Tensor], Tensor]:
    def law(u: Tensor) -> Tensor:
        out = u.clone()
        out[index] = value(u)
        return out

    return law


def _set_large(u: Tensor) -> Tensor:
    out = u.clone()
    out[u > 0.5] = 0.5
    return out


LINEAR = {
    "add": lambda u: u + C,
    "add-alpha": lambda u: torch.add(u, u, alpha=2),
    "sub": lambda u: C - u,
    "rsub": lambda u: torch.rsub(u, C),
    "neg": lambda u: -u,
    "positive": lambda u: torch.positive(u),
    "mul-scalar": lambda u: 3.0 * u,
    "mul-tensor": lambda u: C * u,
    "div": lambda u: u / C,
    "true-divide": lambda u: torch.true_divide(u, C),
    "pow-one": lambda u: u**1,
    "deg2rad": torch.deg2rad,
    "rad2deg": torch.rad2deg,
    "cast": lambda u: u.float(),
    "cast-back": lambda u: u.float().double() + C,
    "real": lambda u: torch.real(torch.complex(u, C)),
    "imag": lambda u: torch.imag(torch.complex(C, u).conj()),
    "view-as-real": lambda u: torch.view_as_real(torch.complex(u, C))[..., 0],
    "view-as-complex": lambda u: torch.view_as_complex(torch.stack([u, C], -1)).real,
    "resolve-conj": lambda u: torch.complex(C, u).conj().resolve_conj().imag.resolve_neg(),
    "clone": lambda u: u.clone(),
    "contiguous": lambda u: u.t().contiguous(),
    "power-spectrum-part": lambda u: (torch.complex(u, C) * torch.complex(C, C).conj()).imag,
    "where-known": lambda u: torch.where(MASK, u, 2 * u),
}

CURVED = {
    "exp": torch.exp,
    "exp2": torch.exp2,
    "expm1": torch.expm1,
    "log": torch.log,
    "log2": torch.log2,
    "log10": torch.log10,
    "log1p": torch.log1p,
    "sin": torch.sin,
    "cos": torch.cos,
    "tan": torch.tan,
    "asin": torch.asin,
    "acos": torch.acos,
    "atan": torch.atan,
    "sinh": torch.sinh,
    "cosh": torch.cosh,
    "tanh": torch.tanh,
    "asinh": torch.asinh,
    "acosh": lambda u: torch.acosh(u + 1),
    "atanh": torch.atanh,
    "sigmoid": torch.sigmoid,
    "logit": torch.logit,
    "erf": torch.erf,
    "erfc": torch.erfc,
    "erfinv": torch.erfinv,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "reciprocal": torch.reciprocal,
    "square": torch.square,
    "pow-2": lambda u: u**2,
    "pow-fraction": lambda u: u**1.5,
    "pow-negative": lambda u: u**-2,
    "pow-base": lambda u: 2.0**u,
    "pow-self": lambda u: u**u,
    "mul-self": lambda u: u * u,
    "div-by-field": lambda u: C / u,
    "gelu": F.gelu,
    "silu": F.silu,
    "softplus": F.softplus,
    "logsigmoid": F.logsigmoid,
    "mish": F.mish,
    "elu": lambda u: F.elu(u - 0.5),
    "celu": lambda u: F.celu(u - 0.5),
    "selu": lambda u: F.selu(u - 0.5),
    "sinc": torch.sinc,
    "lgamma": torch.lgamma,
    "digamma": torch.digamma,
    "polygamma": lambda u: torch.polygamma(1, u),
    "i0": torch.i0,
    "i1": torch.special.i1,
    "erfcx": torch.special.erfcx,
    "log-ndtr": torch.special.log_ndtr,
    "ndtri": torch.special.ndtri,
    "entr": torch.special.entr,
    "atan2": lambda u: torch.atan2(u, C),
    "hypot": lambda u: torch.hypot(u, C),
    "logaddexp": lambda u: torch.logaddexp(u, C),
    "logaddexp2": lambda u: torch.logaddexp2(u, C),
    "xlogy": lambda u: torch.xlogy(u, u),
    "addcmul": lambda u: torch.addcmul(C, u, u),
    "addcdiv": lambda u: torch.addcdiv(C, u, 1 + u),
    "lerp": lambda u: torch.lerp(u, C, u),
    "huber-none": lambda u: F.huber_loss(u, C, reduction="none"),
    "polar": lambda u: torch.polar(C, u).real,
    "abs-complex": lambda u: torch.complex(u, C).abs(),
    "angle": lambda u: torch.complex(u, C).angle(),
    "sgn-complex": lambda u: torch.sgn(torch.complex(u, C)).real,
    "exp-complex": lambda u: torch.exp(1j * u).imag,
    "log-complex": lambda u: torch.complex(u, C).log().imag,
    "sqrt-complex": lambda u: torch.complex(u, C * (-1.0) ** torch.arange(5)).sqrt().real,
    "sqrt-complex-left": lambda u: torch.complex(u - 3.0, -C).sqrt().imag,
    "div-complex": lambda u: (torch.complex(C, u) / torch.complex(u, C)).real,
    "reciprocal-complex": lambda u: torch.complex(u, C).reciprocal().imag,
    "cube-complex": lambda u: (torch.complex(u, C) ** 3).imag,
    "power-complex": lambda u: (torch.complex(u, C) ** 1.5).real,
    "sin-complex": lambda u: torch.sin(torch.complex(u, C)).imag,
    "cos-complex": lambda u: torch.cos(torch.complex(u, C)).real,
    "tanh-complex": lambda u: torch.tanh(torch.complex(u, C)).real,
}

KINKED = {
    "abs": torch.abs,
    "relu": lambda u: F.relu(u - 0.5),
    "relu6": lambda u: F.relu6(u - 0.5),
    "leaky-relu": lambda u: F.leaky_relu(u - 0.5),
    "prelu": lambda u: F.prelu(u - 0.5, V[:1]),
    "hardtanh": lambda u: F.hardtanh(2 * u),
    "clamp": lambda u: u.clamp(0.2, 0.8),
    "clamp-tensor": lambda u: torch.clamp(u, max=C),
    "clamp-min": lambda u: torch.clamp_min(u, 0.5),
    "clamp-max": lambda u: torch.clamp_max(u, 0.5),
    "clip": lambda u: torch.clip(u, min=0.5),
    "maximum": lambda u: torch.maximum(u, C - 1),
    "minimum": lambda u: torch.minimum(u, C - 1),
    "fmax": lambda u: torch.fmax(u, C - 1),
    "fmin": lambda u: torch.fmin(u, C - 1),
    "max-other": lambda u: torch.max(u, C - 1),
    "where-field": lambda u: torch.where(u > 0.5, u, 2 * u),
    "threshold": lambda u: F.threshold(u, 0.5, 0.1),
    "softshrink": lambda u: F.softshrink(u, 0.3),
    "hardshrink": lambda u: F.hardshrink(u, 0.3),
    "nan-to-num": torch.nan_to_num,
    "frac": lambda u: torch.frac(3 * u),
    "fmod": lambda u: torch.fmod(3 * u, C),
    "remainder": lambda u: torch.remainder(3 * u, C),
    "copysign": lambda u: torch.copysign(u, C),
}

STEPS = {
    "eq": lambda u: (u == C).double(),
    "ne": lambda u: (u != C).double(),
    "lt": lambda u: (u < C).double(),
    "le": lambda u: (u <= C).double(),
    "gt": lambda u: (u > C).double(),
    "ge": lambda u: (u >= C).double(),
    "sign": torch.sign,
    "floor": torch.floor,
    "ceil": torch.ceil,
    "round": torch.round,
    "trunc": torch.trunc,
    "isnan": lambda u: torch.isnan(u).double(),
    "isinf": lambda u: torch.isinf(u).double(),
    "isfinite": lambda u: torch.isfinite(u).double(),
    "logical-and": lambda u: torch.logical_and(u > 0.5, MASK).double(),
    "logical-or": lambda u: torch.logical_or(u > 0.5, MASK).double(),
    "logical-not": lambda u: torch.logical_not(u > 0.5).double(),
    "logical-xor": lambda u: torch.logical_xor(u > 0.5, MASK).double(),
    "bitwise-and": lambda u: ((u > 0.5) & MASK).double(),
    "bitwise-or": lambda u: ((u > 0.5) | MASK).double(),
    "bitwise-not": lambda u: (~(u > 0.5)).double(),
    "bitwise-xor": lambda u: ((u > 0.5) ^ MASK).double(),
    "signbit": lambda u: torch.signbit(u).double(),
    "heaviside": lambda u: torch.heaviside(u, C),
    "floor-divide": lambda u: torch.floor_divide(3 * u, C),
    "div-rounded": lambda u: torch.div(3 * u, C, rounding_mode="trunc"),
    "cast-integer": lambda u: (10 * u).long().double(),
    "argmax": lambda u: u.argmax(1).double(),
    "argmin": lambda u: u.argmin(1).double(),
    "argsort": lambda u: u.argsort(1).double(),
    "any": lambda u: (u > 0.5).any(1).double(),
    "all": lambda u: (u > 0.5).all(1).double(),
    "any-of-numbers": lambda u: u.any(1).double(),
    "all-of-numbers": lambda u: u.all(0).double(),
    "any-of-all": lambda u: (u > 0.5).any().double(),
    "count-nonzero": lambda u: torch.count_nonzero(u, 1).double(),
}

# name: (law, entries)
MOVED: dict[str, tuple[Callable[..., Tensor], int]] = {
    "slice": (lambda u: u[1:, ::2], 6),
    "select": (lambda u: u[:, -1], 3),
    "narrow": (lambda u: u.narrow(1, 1, 3), 9),
    "reshape": (lambda u: u.reshape(5, 3)[0], 3),
    "view": (lambda u: u.view(15), 15),
    "permute": (lambda u: u.permute(1, 0), 15),
    "transpose": (lambda u: u.transpose(0, 1), 15),
    "t": (lambda u: u.t(), 15),
    "movedim": (lambda u: u.movedim(0, 1), 15),
    "squeeze": (lambda u: u[:1].squeeze(), 5),
    "unsqueeze": (lambda u: u.unsqueeze(1), 15),
    "expand": (lambda u: u[:1].expand(4, 5), 20),
    "repeat": (lambda u: u.repeat(2, 1), 30),
    "repeat-interleave": (lambda u: u.repeat_interleave(2, 0), 30),
    "repeat-interleave-tensor": (lambda u: u.repeat_interleave(torch.tensor([0, 3, 1]), 0), 20),
    "flip": (lambda u: u.flip(1), 15),
    "roll": (lambda u: u.roll((1, 2), (0, 1)), 15),
    "rot90": (lambda u: torch.rot90(u), 15),
    "diagonal": (lambda u: u.diagonal(1), 3),
    "diag": (lambda u: torch.diag(u[0]), 5),
    "diag-embed": (lambda u: torch.diag_embed(u), 15),
    "tril": (lambda u: u.tril(), 6),
    "triu": (lambda u: u.triu(1), 9),
    "unbind": (lambda u: u.unbind(1)[2], 3),
    "split": (lambda u: u.split(2, 1)[2], 3),
    "split-sizes": (lambda u: u.split([1, 4], 1)[1], 12),
    "chunk": (lambda u: u.chunk(2, 1)[0], 9),
    "cat": (lambda u: torch.cat([u, C, u[:1]]), 20),
    "stack": (lambda u: torch.stack([u, C, u], 1), 30),
    "unfold": (lambda u: u.unfold(1, 3, 2), 18),
    "im2col": (lambda u: F.unfold(u[None, None], (2, 2), padding=1), 60),
    "pixel-shuffle": (lambda u: F.pixel_shuffle(u[:2, :4].reshape(1, 4, 1, 2), 2), 8),
    "pixel-unshuffle": (lambda u: F.pixel_unshuffle(u[:2, :4][None, None], 2), 8),
    "channel-shuffle": (lambda u: F.channel_shuffle(u[:, :4].reshape(1, 4, 3, 1), 2), 12),
    "pad-constant": (lambda u: F.pad(u, (2, -1, 1, 0), value=3.0), 12),
    "pad-reflect-1d": (lambda u: F.pad(u, (2, 1), mode="reflect"), 24),
    "pad-reflect-2d": (lambda u: F.pad(u[None], (2, 1, 1, 1), mode="reflect"), 40),
    "pad-reflect-3d": (lambda u: F.pad(u[None, :, None].expand(1, 3, 2, 5)[None], (1, 1, 1, 1, 1, 1), mode="reflect"), 140),
    "pad-replicate-1d": (lambda u: F.pad(u, (2, 1), mode="replicate"), 24),
    "pad-replicate-2d": (lambda u: F.pad(u[None], (2, 1, 1, 1), mode="replicate"), 40),
    "pad-replicate-3d": (lambda u: F.pad(u[None, None, None], (2, 1, 1, 1, 0, 1), mode="replicate"), 80),
    "pad-circular": (lambda u: F.pad(u[None], (2, 1, 1, 1), mode="circular"), 40),
    "index": (lambda u: u[:, INDEX], 9),
    "index-pairs": (lambda u: u[torch.tensor([[0], [2]]), INDEX], 6),
    "index-bool": (lambda u: u[MASK], 9),
    "index-select": (lambda u: u.index_select(1, INDEX), 9),
    "gather": (lambda u: u.gather(1, GRID_INDEX), 9),
    "take": (lambda u: u.take(torch.tensor([14, 0, 0])), 3),
    "take-along-dim": (lambda u: torch.take_along_dim(u, GRID_INDEX, 1), 9),
    "masked-select": (lambda u: u.masked_select(MASK), 9),
    "masked-fill": (lambda u: u.masked_fill(MASK, 7.0), 6),
    "masked-scatter": (lambda u: C.masked_scatter(MASK, u), 9),
    "scatter": (lambda u: torch.scatter(u, 1, torch.tensor([[1, 2]]), 5.0), 13),
    "scatter-source": (lambda u: torch.scatter(C, 1, torch.tensor([[1, 2]]), u[1:2, 3:]), 2),
    "index-fill": (lambda u: u.index_fill(1, torch.tensor([0, 3]), 9.0), 9),
    "index-copy": (lambda u: torch.index_copy(C, 1, torch.tensor([0, 3]), u[:, :2]), 6),
    "index-put": (lambda u: torch.index_put(C, (torch.tensor([0, 2]), torch.tensor([1, 1])), u[0, :2]), 2),
    "index-put-add": (
        lambda u: torch.index_put(u, (torch.tensor([0, 2]), torch.tensor([1, 1])), u[0, 2:4], accumulate=True), 17
    ),
    "index-add": (lambda u: torch.index_add(u, 1, torch.tensor([0, 0]), u[:, 3:]), 21),
    "scatter-add": (lambda u: torch.scatter_add(C, 1, GRID_INDEX, u[:, 2:]), 9),
    "select-scatter": (lambda u: torch.select_scatter(u, C[0], 0, 1), 10),
    "slice-scatter": (lambda u: torch.slice_scatter(C, u[:2], 0, 1), 10),
    "diagonal-scatter": (lambda u: torch.diagonal_scatter(C, u[:, 0]), 3),
    "write-slice": (_set((slice(None), 0), lambda u: u[:, 1] + u[:, 2]), 18),
    "write-number": (_set((1, slice(None)), lambda u: 4.0), 10),
    "write-mask": (_set(MASK, lambda u: 0.0), 6),
    "write-index": (_set((torch.tensor([0, 2]), torch.tensor([1, 1])), lambda u: u[1, :2]), 15),
    "write-add": (lambda u: _written(u, lambda out: out[:, 1:].add_(u[:, :-1])), 27),
    "write-fill": (lambda u: _written(u, lambda out: out[0].fill_(2.0)), 10),
    "write-copy": (lambda u: _written(u, lambda out: out[0].copy_(u[1].float())), 15),
    "write-scale": (lambda u: _written(u, lambda out: out[:2].mul_(2.0)), 15),
    "write-into-zeros": (lambda u: _written(torch.zeros_like(u), lambda out: out[1:].copy_(u[:-1])), 10),
    "write-into-constant": (lambda u: _written(C, lambda out: out[0].copy_(u[1])), 5),
    "block-diag": (lambda u: torch.block_diag(u, u), 30),
    "diff": (lambda u: u.diff(dim=1), 24),
    "trapezoid": (lambda u: torch.trapezoid(u, dx=0.1, dim=1), 15),
    "cumulative-trapezoid": (lambda u: torch.cumulative_trapezoid(u, dim=1), 42),
    "sum": (lambda u: u.sum(1), 15),
    "sum-all": (lambda u: u.sum(), 15),
    "mean": (lambda u: u.mean(0, keepdim=True), 15),
    "nansum": (lambda u: u.nansum((0, 1)), 15),
    "trace": (lambda u: u[:, :3].trace(), 3),
    "cumsum": (lambda u: u.cumsum(1), 45),
    "mm": (lambda u: u @ MZ, 39),
    "mm-left": (lambda u: MZ.t() @ u.t(), 39),
    "bmm": (lambda u: torch.bmm(CZ.reshape(1, 5, 3).expand(2, 5, 3), u.expand(2, 3, 5)), 100),
    "mv": (lambda u: u @ V, 15),
    "mv-constant": (lambda u: CZ @ u[0], 10),
    "dot": (lambda u: u[0].dot(V), 5),
    "vdot": (lambda u: torch.vdot(V, u[0]), 5),
    "inner": (lambda u: torch.inner(u, MZ.t()), 39),
    "addmm": (lambda u: torch.addmm(_numbers(3, 4), u, MZ), 39),
    "addmm-field": (lambda u: torch.addmm(u[:, :4], C, M * 0) + 0 * u[:, :4], 12),
    "addmv": (lambda u: torch.addmv(V[:3], u, CZ[1]), 9),
    "baddbmm": (lambda u: torch.baddbmm(C[None], CZ[None, :, :3], u[None]), 30),
    "addbmm": (lambda u: torch.addbmm(C, CZ[:, :3].expand(2, 3, 3), u.expand(2, 3, 5)), 30),
    "einsum": (lambda u: torch.einsum("x,xt->t", V[:3], u), 15),
    "einsum-trace": (lambda u: torch.einsum("ii->i", u[:, :3]), 3),
    "tensordot": (lambda u: torch.tensordot(u, MZ, 1), 39),
    "kron": (lambda u: torch.kron(torch.eye(2, dtype=u.dtype), u), 30),
    "linear": (lambda u: F.linear(u, MZ.t(), V[:4]), 39),
    "conv1d": (lambda u: F.conv1d(u[:, None], torch.tensor([[[1.0, 0.0, -1.0]]]).double()), 18),
    "conv1d-padded": (lambda u: F.conv1d(u[:, None], _numbers(1, 1, 3), padding=1), 39),
    "conv1d-strided": (lambda u: F.conv1d(u[None], _numbers(3, 1, 2), stride=3, dilation=2, groups=3), 6),
    "conv1d-channels": (lambda u: F.conv1d(u[None], _numbers(2, 3, 2)), 48),
    "conv2d": (lambda u: F.conv2d(u[None, None], torch.tensor([[0, 1.0, 0], [1, -4, 1], [0, 1, 0]]).double()[None, None]), 15),
    "conv2d-same": (lambda u: F.conv2d(u[None, None], _numbers(1, 1, 3, 3), padding="same"), 91),
    "conv2d-circular": (
        lambda u: F.conv2d(F.pad(u[None, None], (1, 1, 1, 1), mode="circular"), _numbers(1, 1, 3, 3)), 135
    ),
    "conv3d": (lambda u: F.conv3d(u[None, None, None], _numbers(1, 1, 1, 2, 2)), 32),
    "conv-transpose1d": (lambda u: F.conv_transpose1d(u[:, None], _numbers(1, 1, 3), stride=2), 45),
    "conv-transpose2d": (lambda u: F.conv_transpose2d(u[None, None], _numbers(1, 1, 2, 2), padding=1), 32),
    "interpolate-linear": (
        lambda u: F.interpolate(u[None], size=9, mode="linear", align_corners=True), 39
    ),
    "interpolate-half": (lambda u: F.interpolate(u[None], scale_factor=2, mode="linear"), 54),
    "interpolate-bilinear": (
        lambda u: F.interpolate(u[None, None], size=(5, 9), mode="bilinear", align_corners=True), 91
    ),
    "interpolate-trilinear": (
        lambda u: F.interpolate(u[None, None, None], size=(2, 5, 9), mode="trilinear", align_corners=True), 182
    ),
    "interpolate-bicubic": (lambda u: F.interpolate(u[None, None], size=(4, 7), mode="bicubic"), 190),
    "interpolate-bilinear-aa": (
        lambda u: F.interpolate(u[None, None], size=(2, 3), mode="bilinear", antialias=True), 28
    ),
    "interpolate-bicubic-aa": (
        lambda u: F.interpolate(u[None, None], size=(2, 3), mode="bicubic", antialias=True), 66
    ),
    "interpolate-nearest-1d": (lambda u: F.interpolate(u[None], size=7), 21),
    "interpolate-nearest-2d": (lambda u: F.interpolate(u[None, None], size=(4, 7)), 28),
    "interpolate-nearest-3d": (lambda u: F.interpolate(u[None, None, None], size=(2, 4, 7)), 56),
    "interpolate-exact-1d": (lambda u: F.interpolate(u[None], size=7, mode="nearest-exact"), 21),
    "interpolate-exact-2d": (lambda u: F.interpolate(u[None, None], size=(4, 7), mode="nearest-exact"), 28),
    "interpolate-exact-3d": (lambda u: F.interpolate(u[None, None, None], size=(2, 4, 7), mode="nearest-exact"), 56),
    "avg-pool1d": (lambda u: F.avg_pool1d(u, 2, stride=2, padding=1), 15),
    "avg-pool2d": (lambda u: F.avg_pool2d(u[None], 2, stride=1), 32),
    "avg-pool3d": (lambda u: F.avg_pool3d(u[None, None], (1, 2, 2), stride=1), 32),
    "adaptive-avg-pool1d": (lambda u: F.adaptive_avg_pool1d(u, 2), 18),
    "adaptive-avg-pool2d": (lambda u: F.adaptive_avg_pool2d(u[None], (2, 2)), 24),
    "adaptive-avg-pool3d": (lambda u: F.adaptive_avg_pool3d(u[None, None], (1, 2, 2)), 24),
    "fft-real-input": (lambda u: torch.fft.rfft(u, dim=1).real, 45),
    "fft-inverse": (lambda u: torch.fft.irfft(torch.complex(u, C), n=6, dim=1), 72),
    "fft": (lambda u: torch.view_as_real(torch.fft.fft(u, dim=0)), 65),
    "fft2": (lambda u: torch.fft.fft2(u).real, 225),
    "fft-derivative": (
        lambda u: torch.fft.irfft(1j * torch.arange(3) * torch.fft.rfft(u, dim=1), n=5, dim=1), 60
    ),
}  # fmt: skip

OTHERS = [
    Case("detach", lambda u: u.detach() + u, 15, SEPARABLE),  # its value moves with the field and its slope does not
    Case("mul-zeros", lambda u: CZ * u, 10, AFFINE),
    Case("pow-param", lambda u, p: u**p, 15, SEPARABLE, with_params=True),
    Case("mul-param", lambda u, p: p * u, 15, PARAMETRIC, with_params=True),
    Case("div-param", lambda u, p: u / p, 15, PARAMETRIC, with_params=True),
    Case("mm-param", lambda u, p: u @ p, 15, PARAMETRIC, with_params=True),
    Case("conv-param", lambda u, p: F.conv1d(u[:, None], p[None, None, :3]), 27, PARAMETRIC, with_params=True),
    Case("where-param", lambda u, p: torch.where(p > 1, u, 2 * u), 15, PARAMETRIC, with_params=True),
    Case("right-hand-side", lambda u, p: u[0] - p, 5, AFFINE, with_params=True),
    Case("index-param", lambda u, p: u[:, (p > 1).long()], None, PARAMETRIC, with_params=True),
    Case("write-param-index", lambda u, p: torch.index_put(u, ((p > 1).long(),), C[0]), None, PARAMETRIC, with_params=True),
    Case("pow-zero", lambda u: u**0 + CZ * u, 10, AFFINE),
    Case("pow-exponents", lambda u: u ** torch.tensor([0, 1, 2, 0, 1]), 9, SEPARABLE),
    Case("mul-neighbours", lambda u: u[:, 1:] * u[:, :-1], 24, GENERAL),
    Case("div-neighbours", lambda u: u[:, 1:] / u[:, :-1], 24, GENERAL),
    Case("where-branches", lambda u: torch.where(u[:, :1] > 0.5, u[:, 1:3], u[:, 3:]), 12, SEPARABLE),
    Case("write-where-large", _set_large, 15, SEPARABLE),
    Case("fmod-fields", lambda u: torch.fmod(3 * u[0], u[1]), 10, GENERAL),
    Case("mm-fields", lambda u: u @ u.t(), 45 + 30, GENERAL),
    Case("bmm-fields", lambda u: torch.bmm(u[None], u.t()[None]), 75, GENERAL),
    Case("dot-fields", lambda u: u[0].dot(u[1]), 10, GENERAL),
    Case("dot-self", lambda u: u[0].dot(u[0]), 5, SEPARABLE),
    Case("conv-fields", lambda u: F.conv1d(u[None, :1], u[None, 1:2, :2]), None, GENERAL),
    Case("prod", lambda u: u.prod(1), 15, GENERAL),
    Case("norm", lambda u: torch.linalg.vector_norm(u, dim=1), 15, GENERAL),
    Case("norm-frobenius", lambda u: u.norm(), 15, GENERAL),
    Case("var", lambda u: u.var(1), 15, GENERAL),
    Case("std", lambda u: u.std(0), 15, GENERAL),
    Case("var-mean", lambda u: torch.stack(torch.var_mean(u, 1)), 30, GENERAL),
    Case("std-mean", lambda u: torch.stack(torch.std_mean(u, 1)), 30, GENERAL),
    Case("logsumexp", lambda u: u.logsumexp(1), 15, GENERAL),
    Case("softmax", lambda u: u.softmax(1), 75, GENERAL),
    Case("log-softmax", lambda u: u.log_softmax(0), 45, GENERAL),
    Case("cumprod", lambda u: u.cumprod(1), 45, GENERAL),
    Case("logcumsumexp", lambda u: u.logcumsumexp(1), 45, GENERAL),
    Case("cummax", lambda u: u.cummax(1).values, 45, SEPARABLE),
    Case("cummin", lambda u: u.cummin(1).values, 45, SEPARABLE),
    Case("amax", lambda u: u.amax(1), 15, SEPARABLE),
    Case("amin", lambda u: u.amin(0), 15, SEPARABLE),
    Case("max", lambda u: u.max(), 15, SEPARABLE),
    Case("max-dim", lambda u: u.max(1).values, 15, SEPARABLE),
    Case("min-dim", lambda u: u.min(0, keepdim=True).values, 15, SEPARABLE),
    Case("median", lambda u: u.median(1).values, 15, SEPARABLE),
    Case("nanmedian", lambda u: u.nanmedian(1).values, 15, SEPARABLE),
    Case("mode", lambda u: u.mode(1).values, 15, SEPARABLE),
    Case("aminmax", lambda u: torch.stack(torch.aminmax(u, dim=1)), 30, SEPARABLE),
    Case("sort", lambda u: u.sort(1).values, 75, SEPARABLE),
    Case("sort-stable", lambda u: torch.sort(u, dim=0, stable=True).values, 45, SEPARABLE),
    Case("topk", lambda u: u.topk(2, 1).values, 30, SEPARABLE),
    Case("kthvalue", lambda u: u.kthvalue(2, 1).values, 15, SEPARABLE),
    Case("quantile", lambda u: torch.quantile(u, 0.3, dim=1), None, SEPARABLE),
    Case("gather-by-field", lambda u: u.gather(1, u.argmax(1, keepdim=True)), None, SEPARABLE),
    Case("scatter-reduce", lambda u: u.scatter_reduce(1, GRID_INDEX, 0.5 * u[:, :3], "amax"), 24 - 2, SEPARABLE),
    Case("mse", lambda u: F.mse_loss(u, C), 15, SEPARABLE),
    Case("smooth-l1", lambda u: F.smooth_l1_loss(u, C, reduction="none"), 15, SEPARABLE),
    Case("huber-mean", lambda u: F.huber_loss(u, C), 15, SEPARABLE),
    Case("scalar-cumsum", lambda u: u.cumsum(0), 1, AFFINE, ()),
    Case("scalar-softmax", lambda u: u.softmax(0), 1, SEPARABLE, ()),
    Case("scalar-sort", lambda u: u.sort().values, 1, SEPARABLE, ()),
    Case("scalar-square", lambda u: u * u, 1, SEPARABLE, ()),
    Case("no-unknowns", lambda u: u.sum(0), 0, AFFINE, (0, 4)),
    Case("no-rows", lambda u: u[:0] ** 2, 0, AFFINE),
    Case("cube-roll", lambda u: u - u.roll(1, 2), 48, AFFINE, (2, 3, 4)),
]  # fmt: skip


# Cases that may be left to torch. A case that is not named here has to be lowered. The kind of their rows is bounded by how
# many unknowns they read.
WITHOUT_SCALAR_FORM = {
    "erfinv", "lgamma", "digamma", "polygamma", "i0", "i1", "erfcx", "log-ndtr", "ndtri",
    "sgn-complex", "cast-integer",
    "argmax", "argmin", "argsort", "median", "nanmedian", "mode", "sort", "sort-stable", "scalar-sort", "topk",
    "kthvalue", "quantile", "gather-by-field", "scatter-reduce", "write-param-index",
}  # fmt: skip
# Probed transforms: torch leaves roundings where the matrix is zero.
NOISY = {
    "fft", "fft2", "fft-real-input", "fft-inverse", "fft-derivative", "interpolate-bilinear-aa", "interpolate-bicubic-aa",
}  # fmt: skip


def _beside(steps: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    return lambda u: torch.cat([steps(u).reshape(-1), u[0, :1]])


def cases() -> Iterator[Case]:
    """List every case."""
    count = 15
    for table, nnz, kind in ((LINEAR, count, AFFINE), (CURVED, count, SEPARABLE), (KINKED, count, SEPARABLE)):
        yield from (Case(name, law, nnz, kind) for name, law in table.items())
    # A law of steps alone is refused: nothing in it moves with the field. One unknown beside them makes it a law.
    yield from (Case(name, _beside(law), 1, SEPARABLE) for name, law in STEPS.items())
    yield from (Case(name, law, nnz, AFFINE) for name, (law, nnz) in MOVED.items())
    yield from OTHERS
