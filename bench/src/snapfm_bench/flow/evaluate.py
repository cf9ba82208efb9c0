"""The same network, evaluated faster: `evaluator(network)` is called like the network and returns the same velocity.

For sampling, which needs no gradients. Channels are last, so that every layer is a matrix product without a copy; weights
are arranged once; samples are evaluated in tiles that stay in the cache. Memory is kept from call to call: the system maps
fresh tensors of this size anew at every operation, and touching their pages costs more than the arithmetic (a product and
GELU of 10⁴ × 256 numbers: 9.6 ms fresh, 2.8 ms kept). The network itself evaluates whatever the fast path does not cover:
training, gradients, other devices, other networks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from threading import Lock
from typing import TypeVar

import torch
from torch import Tensor
from torch.autograd import forward_ad

from snapfm.torch_internals import transformed
from snapfm_bench.flow.network import FNOVelocity
from snapfm_bench.flow.path import check, embed
from snapfm_bench.flow.prepared import ChannelMlp, Layer, NetworkStage, PreparedNetwork, Seal, known, prepare

# Hidden values of the samples that are evaluated together. One sample of the paper's network is a tile by itself; for small
# networks, tiles of 4 to 16 samples took the same time per sample, single samples twice as long, 32 a tenth longer.
_TILE_BYTES = 4 * 2**20
_BATCH_BYTES = 128 * 2**20  # hidden values that are kept at once; larger batches are cut into pieces
_SPACES = 2  # kept between calls: for a batch and its remainder, or for two threads

_gelu_ = torch.ops.aten.gelu_  # F.gelu in place, and into given memory
_gelu_into = torch.ops.aten.gelu.out

Velocity = TypeVar("Velocity")
Product = tuple[Tensor, Tensor, Tensor]  # matrices, what they multiply, where the result goes


def evaluator(velocity: Velocity) -> Velocity | NetworkEvaluator:
    """Return a fast evaluator of an FNOVelocity, and any other velocity as it is.

    Answers equal those of the network up to rounding. The network may change later: every call checks it.
    """
    return NetworkEvaluator(velocity) if isinstance(velocity, FNOVelocity) else velocity


class NetworkEvaluator:
    """Called as velocity(u, tau) like its network; may be called from several threads.

    A sample's answer does not depend on the other samples of its batch; another batch size may change its last bits.
    """

    def __init__(self, network: FNOVelocity) -> None:
        self.network = network
        self._copy: _Copy | None = None

    def __reduce__(self) -> tuple[type[NetworkEvaluator], tuple[FNOVelocity]]:
        """Copy and pickle only the network; the weights are arranged anew."""
        return NetworkEvaluator, (self.network,)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one field."""
        return self.network.settings.shape

    def __call__(self, u: Tensor, tau: float | Tensor) -> Tensor:
        """Predict the velocity of fields u (b, *shape) at flow time tau, a number or one per sample (b,)."""
        copy = self._current() if self._fast(u, tau) else None
        if copy is None:
            answer: Tensor = self.network(u, tau)
            return answer
        with torch.no_grad():
            return self._evaluate(copy, u, tau)

    def _fast(self, u: Tensor, tau: float | Tensor) -> bool:
        """Return whether the fast path applies: it works on the CPU, on plain tensors, without gradients."""
        given = [u, tau] if isinstance(tau, Tensor) else [u]
        return (
            not self.network.training
            and all(type(x) is Tensor and x.device.type == "cpu" for x in given)
            and len(u) > 0
            and not (torch.is_grad_enabled() and any(x.requires_grad for x in [*given, *self.network.parameters()]))
            and all(forward_ad.unpack_dual(x).tangent is None for x in given)  # type: ignore[no-untyped-call]
            and not _transformed()
        )

    def _current(self) -> _Copy | None:
        """Return the copy of the weights, made anew if they changed; None for a network with unknown parts."""
        copy = self._copy  # another thread may replace it
        if copy is not None and copy.seal.holds():
            return copy
        # Normal tensors even inside inference_mode: seals read versions, which inference tensors do not have.
        with torch.inference_mode(False), torch.no_grad():
            # The seal first: if weights change meanwhile, the next call notices.
            copy = _Copy(Seal(self.network), prepare(self.network)) if known(self.network) else None
        self._copy = copy
        return copy

    def _evaluate(self, copy: _Copy, u: Tensor, tau: float | Tensor) -> Tensor:
        network, prepared = self.network, copy.prepared
        times = check(u, tau, self.shape, prepared.dtype)
        x = u.to(prepared.dtype)
        patches = network._patch(x).flatten(2).transpose(1, 2)  # (b, cells, values)
        lift = _lifting(prepared, embed(times, network.settings.embedding))
        answer = torch.empty(patches.shape, dtype=prepared.dtype)  # the caller's own, not part of the kept memory
        for span in pieces(len(u), max(1, _BATCH_BYTES // prepared.sample_bytes)):
            space = copy.borrow(span.stop - span.start)
            _run(prepared, space, patches[span], lift[span], answer[span])
            copy.give_back(space)
        channels = answer.transpose(1, 2).reshape(len(u), -1, *network.settings.cells)
        return network._velocity(channels, x, times).to(u.dtype)


@dataclass(frozen=True)
class _Copy:
    """A copy of a network's weights, the seal on its source, and memory that no call is using."""

    seal: Seal
    prepared: PreparedNetwork
    _free: list[Space] = field(default_factory=list)
    _lock: Lock = field(default_factory=Lock)

    def borrow(self, count: int) -> Space:
        """Return memory for `count` samples, for one call."""
        with self._lock:
            for place, space in enumerate(self._free):
                if space.count == count:
                    return self._free.pop(place)
        with torch.inference_mode(False):  # memory made inside could not be written outside
            return Space(self.prepared, count)

    def give_back(self, space: Space) -> None:
        """Keep memory for the next call; the least recently used is dropped."""
        with self._lock:
            self._free.insert(0, space)
            del self._free[_SPACES:]


def _transformed() -> bool:
    """Return whether torch is tracing, differentiating or converting, and must see the network itself."""
    return torch.is_autocast_enabled("cpu") or torch.compiler.is_compiling() or transformed()


def _lifting(prepared: PreparedNetwork, embedding: Tensor) -> Tensor:
    """Return each sample's first matrix, whose last row is the bias with the time embedding in it: (b, inputs, lifting)."""
    lift = prepared.lift
    matrices = torch.empty(len(embedding), len(lift.matrix) + 1, len(lift.bias), dtype=prepared.dtype)
    matrices[:, :-1] = lift.matrix
    torch.addmm(lift.bias, embedding, prepared.lift_embedding, out=matrices[:, -1])
    return matrices


def _run(prepared: PreparedNetwork, space: Space, patches: Tensor, lift: Tensor, answer: Tensor) -> None:
    """Evaluate the network on samples. Written: space, answer (b, cells, values)."""
    for tile in space.tiles:
        tile.values.copy_(patches[tile.span])
        torch.bmm(tile.inputs, lift[tile.span], out=tile.lifted)
        _gelu_(tile.lifted)
        prepared.lift_second.into(tile.hidden, tile.lifted.view(len(tile.hidden), -1))
        _to_modes(tile)
    *inner, last = prepared.layers
    for layer in inner:
        _mix(layer, space)
        for tile in space.tiles:
            _from_modes(layer, tile)
            _gelu_(tile.next)
            if layer.mlp is None:
                _gelu_into(tile.next, out=tile.hidden)  # a block without MLP applies it twice
            else:
                _channel_mlp(layer.mlp, tile)
                _gelu_(tile.hidden)
            _to_modes(tile)
    _mix(last, space)
    for tile in space.tiles:
        _from_modes(last, tile)
        hidden = tile.next
        if last.mlp is not None:
            _channel_mlp(last.mlp, tile)
            hidden = tile.hidden
        prepared.project.into(tile.projected, hidden)
        _gelu_(tile.projected)
        prepared.project_second.into(answer[tile.span].view(len(hidden), -1), tile.projected)


def _to_modes(tile: NetworkTile) -> None:
    """Transform a tile's hidden values."""
    for matrices, values, out in tile.forward:
        torch.bmm(matrices, values, out=out)


def _mix(layer: Layer, space: Space) -> None:
    """Multiply both parts of every mode by both parts of its matrix; the bias, a constant, belongs to mode zero.

    One batch of real products: complex ones need their parts side by side, which nothing else here does.
    """
    torch.bmm(space.rows, layer.mix, out=space.mixed)
    space.zero.add_(layer.bias)


def _from_modes(layer: Layer, tile: NetworkTile) -> None:
    """Write the sum of skip connection and spectral convolution to tile.next."""
    real, cross, other_cross, imaginary = tile.products
    torch.sub(real, imaginary, out=tile.real)
    torch.add(cross, other_cross, out=tile.imaginary)
    for matrices, values, out in tile.inverse:
        torch.bmm(matrices, values, out=out)
    torch.mm(tile.hidden, layer.skip, out=tile.next)
    matrices, values, out = tile.add
    out.baddbmm_(matrices, values)


def _channel_mlp(mlp: ChannelMlp, tile: NetworkTile) -> None:
    """Replace the hidden values by their gated selves plus the MLP of tile.next."""
    mlp.first.into(tile.narrow, tile.next)
    _gelu_(tile.narrow)
    torch.addcmul(mlp.second.bias, tile.hidden, mlp.gate, out=tile.hidden)
    tile.hidden.addmm_(tile.narrow, mlp.second.matrix)


class Space:
    """Memory for `count` samples, cut into tiles, with every view made once."""

    def __init__(self, prepared: PreparedNetwork, count: int) -> None:
        self.count = count
        cells, width, modes = len(prepared.coordinates), len(prepared.layers[0].bias), prepared.fourier.modes
        hidden = torch.empty(count, cells, width, dtype=prepared.dtype)
        spectrum = torch.empty(count, 2, modes, width, dtype=prepared.dtype)
        mixed = torch.empty(modes, count, 2, 2, width, dtype=prepared.dtype)
        self.rows = spectrum.view(2 * count, modes, width).transpose(0, 1)
        self.mixed = mixed.view(modes, 2 * count, 2 * width)
        self.zero = mixed[prepared.fourier.zero, :, 0, 0]  # a real part of mode zero
        scratch = NetworkScratch(prepared.dtype)
        most = max(1, _TILE_BYTES // prepared.sample_bytes)
        self.tiles = [NetworkTile(prepared, span, hidden, spectrum, mixed, scratch) for span in pieces(count, most)]


class NetworkTile:
    """Views of some consecutive samples: their own hidden values, and scratch memory that all tiles share."""

    def __init__(
        self,
        prepared: PreparedNetwork,
        span: slice,
        hidden: Tensor,
        spectrum: Tensor,
        mixed: Tensor,
        scratch: NetworkScratch,
    ) -> None:
        self.span = span
        count = span.stop - span.start
        cells, width = hidden.shape[1:]
        points = count * cells
        values = len(prepared.lift.matrix) - prepared.coordinates.shape[1] + 1
        self.inputs = scratch.view("inputs", count, cells, len(prepared.lift.matrix) + 1)
        self.inputs[:, :, values:] = prepared.coordinates
        self.values = self.inputs[:, :, :values]
        self.lifted = scratch.view("wide", count, cells, len(prepared.lift.bias))
        self.projected = scratch.view("wide", points, len(prepared.project.bias))
        self.hidden = hidden[span].view(points, width)
        self.next = scratch.view("next", points, width)
        mlp = prepared.layers[0].mlp
        self.narrow = scratch.view("narrow", points, 0 if mlp is None else len(mlp.first.bias))

        sides = ("even", "odd")  # a stage reads one of these pieces of scratch memory and writes the other
        self.forward = _chain(prepared.fourier.forward, self.hidden, scratch, sides, spectrum[span])
        back = scratch.view(sides[0], *spectrum[span].shape)
        after = self.next.view(count, cells, width)
        *self.inverse, self.add = _chain(prepared.fourier.inverse, back, scratch, sides[::-1], after)
        self.real, self.imaginary = back[:, 0].transpose(0, 1), back[:, 1].transpose(0, 1)  # (modes, count, width)
        mixed = mixed[:, span]  # part of the mode, part of the matrix
        self.products = (mixed[:, :, 0, 0], mixed[:, :, 0, 1], mixed[:, :, 1, 0], mixed[:, :, 1, 1])


class NetworkScratch:
    """Memory by name, large enough for every view of it."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self._pieces: dict[str, Tensor] = {}

    def view(self, name: str, *shape: int) -> Tensor:
        """Return the first numbers of a piece; ask for the largest view first, or two views will not share memory."""
        size = math.prod(shape)
        piece = self._pieces.get(name)
        if piece is None or len(piece) < size:
            piece = self._pieces[name] = torch.empty(size, dtype=self.dtype)
        return piece[:size].view(shape)


def pieces(count: int, most: int) -> list[slice]:
    """Cut 0 .. count − 1 into pieces of nearly equal size, the larger ones first, none above `most`."""
    number = -(-count // most)
    size, left = divmod(count, number)
    edges = [k * size + min(k, left) for k in range(number + 1)]
    return [slice(first, last) for first, last in pairwise(edges)]


def _chain(
    stages: Sequence[NetworkStage], values: Tensor, scratch: NetworkScratch, sides: tuple[str, str], target: Tensor
) -> list[Product]:
    """Return the products of the stages from values (count, …) to target, which use both pieces of scratch memory in turn."""
    products = []
    count = len(target)
    for number, stage in enumerate(stages):
        slabs = count * stage.slabs
        rows, columns = stage.matrix.shape
        given = values.view(slabs, columns, -1)
        shape = (slabs, rows, given.shape[2])
        last = number == len(stages) - 1
        values = target.view(shape) if last else scratch.view(sides[number % 2], *shape)
        products.append((stage.matrix.expand(slabs, -1, -1), given, values))
    return products
