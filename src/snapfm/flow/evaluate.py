"""The same network, evaluated faster: `evaluator(network)` is called like the network and gives the same velocity.

For sampling, where no gradient is asked for. Channels stand last, so that every layer is a matrix product without a copy;
weights are arranged once; memory is kept; samples go through in tiles that stay in the cache. Whatever the quick way does
not cover, the network answers itself: training, gradients, other devices, networks that are not ours.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import Lock
from typing import TypeVar

import torch
from torch import Tensor
from torch.autograd import forward_ad

from snapfm.flow.network import FNOVelocity
from snapfm.flow.prepared import ChannelMlp, Layer, Prepared, familiar, prepare
from snapfm.flow.seal import Seal
from snapfm.flow.space import Space, Tile, pieces

_BATCH_BYTES = 128 * 2**20  # hidden values that are kept at once; larger batches are cut into pieces
_SPACES = 2  # kept between calls: for a batch and the rest of it, or for two threads

_gelu_ = torch.ops.aten.gelu_  # F.gelu in place, and into given memory
_gelu_into = torch.ops.aten.gelu.out

Velocity = TypeVar("Velocity")


def evaluator(velocity: Velocity) -> Velocity | Evaluator:
    """Give a quick evaluator of an FNOVelocity; any other velocity comes back as it is.

    Answers equal the network's but for rounding. The network may change afterwards: it is looked at in every call.
    """
    return Evaluator(velocity) if isinstance(velocity, FNOVelocity) else velocity


class Evaluator:
    """Called as velocity(u, tau) like its network; may be called from several threads.

    A sample's answer does not depend on what its batch-mates hold; another size of batch may change its last bits.
    """

    def __init__(self, network: FNOVelocity) -> None:
        self.network = network
        self._copy: _Copy | None = None

    def __reduce__(self) -> tuple[type[Evaluator], tuple[FNOVelocity]]:
        """Copy and pickle the network; its evaluator makes its own arrangements."""
        return Evaluator, (self.network,)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one field."""
        return self.network.settings.shape

    def __call__(self, u: Tensor, tau: float | Tensor) -> Tensor:
        """Predict the velocity of fields u (b, *shape) at flow time tau, a number or one per sample (b,)."""
        copy = self._current() if self._quick(u, tau) else None
        if copy is None:
            answer: Tensor = self.network(u, tau)
            return answer
        with torch.no_grad():
            return self._evaluate(copy, u, tau)

    def _quick(self, u: Tensor, tau: float | Tensor) -> bool:
        """Say whether the quick way may answer: it works on the CPU, on plain tensors, and gives no gradients."""
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
        """Give the copy of the weights, made anew if they changed; none of a network with unknown parts."""
        copy = self._copy  # another thread may replace it
        if copy is not None and copy.seal.holds():
            return copy
        # Normal tensors even inside inference_mode: seals read versions, which the others do not have.
        with torch.inference_mode(False), torch.no_grad():
            # The seal first: of weights that change meanwhile it tells at the next call.
            copy = _Copy(Seal(self.network), prepare(self.network)) if familiar(self.network) else None
        self._copy = copy
        return copy

    def _evaluate(self, copy: _Copy, u: Tensor, tau: float | Tensor) -> Tensor:
        network, prepared = self.network, copy.prepared
        times = network._check(u, tau)
        x = u.to(prepared.dtype)
        patches = network._patch(x).flatten(2).transpose(1, 2)  # (b, cells, values)
        lift = _lifting(prepared, network.embed(times))
        answer = torch.empty(patches.shape, dtype=prepared.dtype)  # the caller's own, no piece of what is kept
        for span in pieces(len(u), max(1, _BATCH_BYTES // prepared.sample_bytes)):
            space = copy.borrow(span.stop - span.start)
            _run(prepared, space, patches[span], lift[span], answer[span])
            copy.give_back(space)
        channels = answer.transpose(1, 2).reshape(len(u), -1, *network.settings.cells)
        return network._velocity(channels, x, times).to(u.dtype)


@dataclass(frozen=True)
class _Copy:
    """What a network's weights were copied from, the copy, and memory that no call is using."""

    seal: Seal
    prepared: Prepared
    _free: list[Space] = field(default_factory=list)
    _lock: Lock = field(default_factory=Lock)

    def borrow(self, count: int) -> Space:
        """Give memory for `count` samples to one call."""
        with self._lock:
            for place, space in enumerate(self._free):
                if space.count == count:
                    return self._free.pop(place)
        with torch.inference_mode(False):  # memory made inside could not be written outside
            return Space(self.prepared, count)

    def give_back(self, space: Space) -> None:
        """Keep memory for the next call; what was used longest ago goes."""
        with self._lock:
            self._free.insert(0, space)
            del self._free[_SPACES:]


def _transformed() -> bool:
    """Say whether torch is tracing, differentiating or converting what runs, and must see the network itself."""
    return (
        torch.is_autocast_enabled("cpu")
        or torch.compiler.is_compiling()
        or torch._C._functorch.maybe_current_level() is not None
        or torch._C._len_torch_dispatch_stack() > 0
    )


def _lifting(prepared: Prepared, embedding: Tensor) -> Tensor:
    """Give each sample its first matrix, whose last row is the bias with the time embedding in it: (b, inputs, lifting)."""
    lift = torch.empty(len(embedding), len(prepared.lift) + 1, prepared.lift.shape[1], dtype=prepared.dtype)
    lift[:, :-1] = prepared.lift
    torch.addmm(prepared.lift_bias, embedding, prepared.lift_embedding, out=lift[:, -1])
    return lift


def _run(prepared: Prepared, space: Space, patches: Tensor, lift: Tensor, answer: Tensor) -> None:
    """Take samples through the network. Written: space, answer (b, cells, values)."""
    for tile in space.tiles:
        tile.values.copy_(patches[tile.span])
        torch.bmm(tile.inputs, lift[tile.span], out=tile.lifted)
        _gelu_(tile.lifted)
        wide = tile.lifted.view(len(tile.hidden), -1)
        torch.addmm(prepared.lift_second_bias, wide, prepared.lift_second, out=tile.hidden)
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
        torch.addmm(prepared.project_bias, hidden, prepared.project, out=tile.projected)
        _gelu_(tile.projected)
        fields = answer[tile.span].view(len(hidden), -1)
        torch.addmm(prepared.project_second_bias, tile.projected, prepared.project_second, out=fields)


def _to_modes(tile: Tile) -> None:
    """Transform a tile's hidden values."""
    for matrices, values, out in tile.forward:
        torch.bmm(matrices, values, out=out)


def _mix(layer: Layer, space: Space) -> None:
    """Multiply both parts of every mode by both parts of its matrix; the bias, a constant, belongs to mode zero.

    One batch of real products: complex ones need their parts side by side, which nothing else here does.
    """
    torch.bmm(space.rows, layer.mix, out=space.mixed)
    space.zero.add_(layer.bias)


def _from_modes(layer: Layer, tile: Tile) -> None:
    """Write the sum of skip connection and spectral convolution to tile.next."""
    real, cross, other_cross, imaginary = tile.products
    torch.sub(real, imaginary, out=tile.real)
    torch.add(cross, other_cross, out=tile.imaginary)
    for matrices, values, out in tile.inverse:
        torch.bmm(matrices, values, out=out)
    torch.mm(tile.hidden, layer.skip, out=tile.next)
    matrices, values, out = tile.add
    out.baddbmm_(matrices, values)


def _channel_mlp(mlp: ChannelMlp, tile: Tile) -> None:
    """Add the MLP of tile.next to the gated hidden values, in place of these."""
    torch.addmm(mlp.first_bias, tile.next, mlp.first, out=tile.narrow)
    _gelu_(tile.narrow)
    torch.addcmul(mlp.second_bias, tile.hidden, mlp.gate, out=tile.hidden)
    tile.hidden.addmm_(tile.narrow, mlp.second)
