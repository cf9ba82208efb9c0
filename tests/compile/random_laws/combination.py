"""Steps that combine elements: reductions, products of matrices, convolutions, interpolation, spectra."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from tests.compile.random_laws.chain import Chain, Params, full, operator, plain, plane
from torch import Tensor

for _name, _reduce in {
    "sum": torch.sum, "mean": torch.mean, "amax": torch.amax, "amin": torch.amin, "logsumexp": torch.logsumexp,
    "prod": torch.prod, "max": lambda x, d, keepdim=False: x.max(d, keepdim).values, "nansum": torch.nansum,
    "median": lambda x, d, keepdim=False: x.median(d, keepdim).values,
}.items():  # fmt: skip

    def _reduction(c: Chain, name: str = _name, apply: Callable[..., Tensor] = _reduce) -> bool:
        axis, keepdim = c.axis(), c.pick(True, False)
        return c.add(f"{name}(x, {axis}, keepdim={keepdim})", lambda x, p: apply(x, axis, keepdim=keepdim))

    operator("reductions", _name, full)(_reduction)


def _spread(c: Chain) -> bool:
    """Whether every line along the last axis has a standard deviation well above zero."""
    return full(c) and c.last > 1 and all(float(v.std(-1).min()) > 0.05 for v in c.values)


def _long(c: Chain) -> bool:
    return full(c) and all(float(v.abs().sum(-1).min()) > 0.05 for v in c.values)


@operator("reductions", "norm", _long)
def _norm(c: Chain) -> bool:
    order = c.pick(1, 2, 3, math.inf)
    return c.add(f"vector_norm(x, {order}, -1)", lambda x, p: torch.linalg.vector_norm(x, order, -1))


@operator("reductions", "scan", full)
def _scan(c: Chain) -> bool:
    axis, scan = c.axis(), c.pick(torch.cumsum, torch.cumprod, torch.logcumsumexp)
    return c.add(f"{scan.__name__}(x, {axis})", lambda x, p: scan(x, axis))


@operator("reductions", "softmax", full)
def _softmax(c: Chain) -> bool:
    axis, kind = c.axis(), c.pick(torch.softmax, torch.log_softmax)
    return c.add(f"{kind.__name__}(x, {axis})", lambda x, p: kind(x, axis))


@operator("reductions", "sort", full)
def _sort(c: Chain) -> bool:
    axis = c.axis()
    return c.add(f"sort(x, {axis})", lambda x, p: x.sort(axis).values)


plain("reductions", "sum of all", lambda x, p: x.sum())
plain("reductions", "mean of all", lambda x, p: x.mean(), full)
plain("reductions", "var", lambda x, p: x.var(-1), _spread)
plain("reductions", "std", lambda x, p: x.std(-1), _spread)
plain("reductions", "topk", lambda x, p: x.topk(1, -1).values, full)
plain("reductions", "kthvalue", lambda x, p: x.kthvalue(1, -1).values, full)
plain("reductions", "var mean", lambda x, p: torch.stack(torch.var_mean(x, -1)), _spread)
plain("reductions", "trapezoid", lambda x, p: torch.trapezoid(x, dx=0.1, dim=-1), full)
plain("reductions", "cumulative trapezoid", lambda x, p: torch.cumulative_trapezoid(x, dim=-1), full)
plain("reductions", "mse", lambda x, p: F.mse_loss(x, torch.full_like(x, 0.2)), full)


@operator("contractions", "matrix product", full)
def _matrix_product(c: Chain) -> bool:
    if c.pick(True, False):
        matrix = c.constant(c.last, 3)
        return c.add("x @ constant", lambda x, p: x @ matrix.to(x.dtype))
    name = c.param(c.last, 2)
    return c.add(f"x @ params['{name}']", lambda x, p: x @ p[name].to(x.dtype))


@operator("contractions", "product from the left", plane)
def _left_product(c: Chain) -> bool:
    matrix = c.constant(2, c.value.shape[-2])
    return c.add("constant @ x", lambda x, p: matrix.to(x.dtype) @ x)


@operator("contractions", "einsum", full)
def _einsum(c: Chain) -> bool:
    weight = c.constant(c.value.shape[0])
    return c.add("einsum('i,i...->...', constant, x)", lambda x, p: torch.einsum("i,i...->...", weight.to(x.dtype), x))


@operator("contractions", "matrix vector", full)
def _matrix_vector(c: Chain) -> bool:
    matrix, shape = c.constant(3, c.value.numel()), (c.value.numel(),)
    return c.add("constant.mv(x.flatten())", lambda x, p: matrix.to(x.dtype).mv(x.reshape(shape)))


@operator("contractions", "addmm", plane)
def _addmm(c: Chain) -> bool:
    matrix, shape = c.constant(c.last, c.last), (-1, c.last)

    def apply(x: Tensor, p: Params) -> Tensor:
        rows = x.reshape(shape)
        return torch.addmm(rows, rows, matrix.to(x.dtype), alpha=0.5)

    return c.add("addmm(x, x, constant)", apply)


plain("contractions", "x @ x.mT", lambda x, p: x @ x.mT, plane)
plain("contractions", "dot with its reverse", lambda x, p: x.flatten().dot(x.flatten().flip(0)), full)
plain("contractions", "dot with itself", lambda x, p: x.flatten().dot(x.flatten()), full)
plain("contractions", "outer", lambda x, p: torch.outer(x.flatten()[:4], x.flatten()), full)
plain("contractions", "einsum of x with x", lambda x, p: torch.einsum("i...,j...->ij", x, x), full)


def _bmm(x: Tensor, p: Params) -> Tensor:
    return torch.bmm(x.expand(2, *x.shape), x.mT.expand(2, *x.mT.shape))


plain("contractions", "bmm", _bmm, lambda c: c.dim == 2)


@operator("contractions", "conv1d", full)
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


@operator("contractions", "conv2d", lambda c: plane(c) and min(c.value.shape[-2:]) >= 2)
def _conv2d(c: Chain) -> bool:
    stride, padding, transposed = c.pick(1, 2), c.pick(0, 1), c.pick(True, False)
    kernel, layout = c.constant(1, 1, 2, 2), (-1, 1, *c.value.shape[-2:])
    convolve = F.conv_transpose2d if transposed else F.conv2d

    def apply(x: Tensor, p: Params) -> Tensor:
        return convolve(x.reshape(layout), kernel.to(x.dtype), stride=stride, padding=padding)[:, 0]

    return c.add(f"{convolve.__name__}(x, constant, {stride=}, {padding=})", apply)


@operator("contractions", "interpolate a line", full)
def _interpolate(c: Chain) -> bool:
    mode, size, layout = c.pick("linear", "nearest", "nearest-exact"), c.pick(2, 3, 5), (1, -1, c.last)
    align = c.pick(True, False) if mode == "linear" else None

    def apply(x: Tensor, p: Params) -> Tensor:
        return F.interpolate(x.reshape(layout), size=size, mode=mode, align_corners=align)[0]

    return c.add(f"interpolate(x, {size}, '{mode}', align_corners={align})", apply)


@operator("contractions", "interpolate a plane", plane)
def _interpolate_plane(c: Chain) -> bool:
    mode, size, layout = c.pick("bilinear", "bicubic", "nearest"), c.pick((2, 3), (4, 2)), (1, -1, *c.value.shape[-2:])
    align = c.pick(True, False) if mode != "nearest" else None

    def apply(x: Tensor, p: Params) -> Tensor:
        return F.interpolate(x.reshape(layout), size=size, mode=mode, align_corners=align)[0]

    return c.add(f"interpolate(x, {size}, '{mode}', align_corners={align})", apply)


def _pool(x: Tensor, p: Params) -> Tensor:
    return F.avg_pool1d(x.reshape(1, -1, x.shape[-1]), 2, stride=1)[0]


def _adaptive_pool(x: Tensor, p: Params) -> Tensor:
    return F.adaptive_avg_pool2d(x.reshape(1, -1, *x.shape[-2:]), (2, 2))[0]


plain("contractions", "avg pool", _pool, lambda c: full(c) and c.last > 1)
plain("contractions", "adaptive pool", _adaptive_pool, plane)


@operator("spectra", "filter", full)
def _filter(c: Chain) -> bool:
    size = c.last
    constant = torch.complex(c.constant(size // 2 + 1), c.constant(size // 2 + 1))
    name = c.param(size // 2 + 1) if c.pick(True, False) else None

    def apply(x: Tensor, p: Params) -> Tensor:
        spectrum = torch.fft.rfft(x.double(), dim=-1)
        spectrum = spectrum * (constant if name is None else p[name])
        return torch.fft.irfft(spectrum, n=size, dim=-1)

    return c.add(f"irfft(rfft(x) * {'constant' if name is None else name})", apply)


@operator("spectra", "derivative", full)
def _derivative(c: Chain) -> bool:
    axis = c.axis()
    extent = c.value.shape[axis]
    shape = [1] * c.dim
    shape[axis] = extent
    waves = (1j * torch.fft.fftfreq(extent, dtype=torch.float64)).reshape(shape)
    return c.add(
        f"ifft(i k fft(x, {axis})).real", lambda x, p: torch.fft.ifft(waves * torch.fft.fft(x, dim=axis), dim=axis).real
    )


plain("spectra", "fft parts", lambda x, p: torch.view_as_real(torch.fft.fft(x, dim=0)), full)
plain("spectra", "rfft imaginary", lambda x, p: torch.fft.rfft(x, dim=-1).imag, full)
plain("spectra", "fft2 real", lambda x, p: torch.fft.fft2(x).real, plane)
plain("spectra", "irfft", lambda x, p: torch.fft.irfft(torch.complex(x, 0.5 * x), n=4, dim=-1), full)


@operator("spectra", "power spectrum", full)
def _spectrum(c: Chain) -> bool:
    def apply(x: Tensor, p: Params) -> Tensor:
        spectrum = torch.fft.rfft(x, dim=-1)
        return (spectrum * spectrum.conj()).real

    return c.add("|rfft(x)|²", apply)
