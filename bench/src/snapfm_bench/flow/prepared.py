"""What the evaluator computes with: a network's weights as matrices, its Fourier transforms, and a seal on both.

Reads an FNOVelocity and never writes it. The copies take as much memory as the weights.

A Fourier transform to the kept modes, or back, is one stage per axis over a channels-last grid. A stage multiplies slabs of
adjacent numbers by one real matrix, so that nothing is moved between stages: real and imaginary part are next to the axis
that is summed over next. For two axes, with channels behind everything, forward goes (x, t) → (x, part, kt) → (part, kx, kt),
inverse the same way back. Time comes first because it is real: 111 operations per point and channel for 32×17 modes of
100×100, compared with 171 with x first. Joining the axes of space, 8×8 points to 6×6 modes, into one matrix took 1.5 times as
long. The matrices are those of `layers`, so that both evaluate the same numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from snapfm_bench.flow.layers import forward, inverse, real_forward, real_inverse
from snapfm_bench.flow.network import FNOVelocity

# The parts of a network that `prepare` knows; a network with any other (a norm, a parametrization) evaluates itself.
_OURS = {"FNOVelocity", "Spectral", "Pointwise"}
_THEIRS = {"FNO", "FNOBlocks", "ChannelMLP", "DenseTensor", "Flattened1dConv", "ModuleList", "SoftGating"}

_PROBED = 16  # numbers of each weight that are compared at every call


@dataclass(frozen=True)
class Dense:
    """A 1×1 convolution: matrix (in, out) and bias (out,)."""

    matrix: Tensor
    bias: Tensor

    def into(self, out: Tensor, x: Tensor) -> None:
        """Map x (points, in). Written: out (points, out)."""
        torch.addmm(self.bias, x, self.matrix, out=out)


@dataclass(frozen=True)
class ChannelMlp:
    """The two products of a block's channel MLP, and the gate of the path around it."""

    first: Dense
    second: Dense
    gate: Tensor


@dataclass(frozen=True)
class Layer:
    """One Fourier layer."""

    mix: Tensor  # (modes, width, 2·width): real parts, then imaginary parts
    bias: Tensor  # (width,)
    skip: Tensor  # (width, width)
    mlp: ChannelMlp | None


@dataclass(frozen=True)
class NetworkStage:
    """One axis: `matrix` (rows, columns) multiplies each of a sample's `slabs` (columns, rest)."""

    matrix: Tensor
    slabs: int


@dataclass(frozen=True)
class Fourier:
    """Both ways between a grid and its kept modes, ordered (part, *modes); `zero` is the place of mode zero."""

    forward: tuple[NetworkStage, ...]
    inverse: tuple[NetworkStage, ...]
    modes: int
    zero: int


@dataclass(frozen=True)
class PreparedNetwork:
    """All weights, matrices as (in, out), and the transform between grid and modes."""

    fourier: Fourier
    coordinates: Tensor  # (cells, axes + 1), the last column ones
    lift: Dense  # of values and coordinates
    lift_embedding: Tensor  # (embedding, lifting)
    lift_second: Dense
    layers: tuple[Layer, ...]
    project: Dense
    project_second: Dense

    @property
    def dtype(self) -> torch.dtype:
        """Precision of all weights."""
        return self.coordinates.dtype

    @property
    def sample_bytes(self) -> int:
        """Memory of one sample's hidden values."""
        return len(self.coordinates) * len(self.layers[0].bias) * self.dtype.itemsize


def known(network: nn.Module) -> bool:
    """Return whether the network consists of the parts that `prepare` knows, in one precision, on the CPU."""
    if type(network) is not FNOVelocity:
        return False
    dtype = network.coordinates.dtype
    if dtype not in (torch.float32, torch.float64):
        return False
    modules = list(network.modules())
    blocks: Any = network.fno.fno_blocks
    activations = [blocks.non_linearity, *(m.non_linearity for m in modules if type(m).__name__ == "ChannelMLP")]
    return (
        all(type(module).__name__ in _OURS | _THEIRS and "forward" not in vars(module) for module in modules)
        and not hooked(modules)
        and all(activation is F.gelu for activation in activations)
        and blocks.stabilizer is None
        and not blocks.preactivation
        and all(
            weight.device.type == "cpu"
            and weight.is_contiguous()
            and not weight.is_inference()  # these have no version
            and weight.dtype == (dtype.to_complex() if weight.is_complex() else dtype)
            for weight in network.parameters()
        )
    )


def prepare(network: FNOVelocity) -> PreparedNetwork:
    """Copy the weights of a known network."""
    blocks, settings = network.fno.fno_blocks, network.settings
    (lift, lift_second), (project, project_second) = network.fno.lifting.fcs, network.fno.projection.fcs
    local = settings.patch ** len(settings.shape) + len(settings.shape)  # inputs that differ from cell to cell
    lifting = _dense(lift)
    return PreparedNetwork(
        fourier=fourier(settings.cells, blocks.convs[0].modes, network.coordinates.dtype),
        coordinates=_copy(network.coordinates.T),
        lift=Dense(lifting.matrix[:local], lifting.bias),
        lift_embedding=lifting.matrix[local:],
        lift_second=_dense(lift_second),
        layers=tuple(_layer(blocks, index) for index in range(settings.layers)),
        project=_dense(project),
        project_second=_dense(project_second),
    )


def _layer(blocks: Any, index: int) -> Layer:
    convolution = blocks.convs[index]
    weight = convolution.weight.to_tensor().detach().flatten(2).permute(2, 0, 1)  # (modes, in, out)
    mlp = None
    if blocks.use_channel_mlp:
        first, second = blocks.channel_mlp[index].fcs
        mlp = ChannelMlp(_dense(first), _dense(second), _copy(blocks.channel_mlp_skips[index].weight.flatten()))
    return Layer(
        mix=torch.cat([weight.real, weight.imag], dim=2),
        bias=_copy(convolution.bias.flatten()),
        skip=_matrix(blocks.fno_skips[index].conv),
        mlp=mlp,
    )


def _dense(pointwise: Any) -> Dense:
    return Dense(_matrix(pointwise), _copy(pointwise.bias))


def _matrix(pointwise: Any) -> Tensor:
    """Return the matrix (in, out) of a 1×1 convolution."""
    return _copy(pointwise.weight[:, :, 0].T)


def _copy(weight: Tensor) -> Tensor:
    return weight.detach().clone(memory_format=torch.contiguous_format)


def fourier(shape: Sequence[int], modes: Sequence[int], dtype: torch.dtype) -> Fourier:
    """Build the stages for a grid; `modes` are those of a Spectral layer, of which the last axis keeps 0, 1, …"""
    *front, size = shape
    *kept, last = modes
    there = [NetworkStage(_real_forward(size, last), math.prod(front))]
    back = [NetworkStage(_real_inverse(size, last), math.prod(front))]
    zero = 0
    for axis in reversed(range(len(front))):
        slabs = math.prod(front[:axis])
        there.append(NetworkStage(_complex_forward(front[axis], kept[axis]), slabs))
        back.insert(0, NetworkStage(_complex_inverse(front[axis], kept[axis]), slabs))
        zero += kept[axis] // 2 * math.prod(modes[axis + 1 :])
    return Fourier(_rounded(there, dtype), _rounded(back, dtype), math.prod(modes), zero)


def _real_forward(size: int, modes: int) -> Tensor:
    """Rows (part, mode), columns (point)."""
    return real_forward(size, modes).view(size, modes, 2).permute(2, 1, 0).flatten(0, 1)


def _real_inverse(size: int, modes: int) -> Tensor:
    """Rows (point), columns (part, mode)."""
    return real_inverse(size, modes).view(modes, 2, size).permute(2, 1, 0).flatten(1)


def _complex_forward(size: int, modes: int) -> Tensor:
    """Rows (part, mode), columns (point, part)."""
    return _parts(forward(size, modes).T).permute(0, 1, 3, 2).flatten(2).flatten(0, 1)


def _complex_inverse(size: int, modes: int) -> Tensor:
    """Rows (point, part), columns (part, mode)."""
    return _parts(inverse(size, modes).T).transpose(0, 1).flatten(2).flatten(0, 1)


def _parts(matrix: Tensor) -> Tensor:
    """Write a complex matrix in real numbers: (part out, row, part in, column)."""
    real, imaginary = matrix.real, matrix.imag
    return torch.stack([torch.stack([real, -imaginary], 1), torch.stack([imaginary, real], 1)])


def _rounded(stages: Sequence[NetworkStage], dtype: torch.dtype) -> tuple[NetworkStage, ...]:
    return tuple(NetworkStage(stage.matrix.to(dtype).contiguous(), stage.slabs) for stage in stages)


class Seal:
    """Tells whether a network is still the one that a copy was made from: same modules, no hooks, unchanged weights.

    torch counts writes to a tensor in its version, except writes through `.data` or NumPy. To detect these, a few numbers
    of every weight are compared: enough for updates of whole weights, as averages and optimizers make them, but not for a
    single element. All of it takes 0.05 ms.
    """

    def __init__(self, network: nn.Module) -> None:
        self._modules = list(network.modules())
        self._children = self._find_children()
        self._weights = self._find_weights()
        self._marks = self._read_marks()
        self._probes = [_probe(weight) for weight in self._weights]
        self._numbers = torch.cat(self._probes)

    def holds(self) -> bool:
        """Return whether a copy made together with the seal can still be used."""
        return (
            self._find_children() == self._children
            and list(map(id, self._find_weights())) == list(map(id, self._weights))
            and self._read_marks() == self._marks
            and not hooked(self._modules)
            and torch.equal(torch.cat(self._probes), self._numbers)
        )

    def _find_children(self) -> list[nn.Module | None]:
        return [child for module in self._modules for child in module._modules.values()]

    def _find_weights(self) -> list[Tensor]:
        weights = [weight for module in self._modules for weight in module._parameters.values() if weight is not None]
        return [*weights, self._modules[0].get_buffer("coordinates")]  # of the network itself

    def _read_marks(self) -> list[tuple[int, int]]:
        return [(weight._version, weight.data_ptr()) for weight in self._weights]


def _probe(weight: Tensor) -> Tensor:
    """View evenly spaced numbers of a weight as integers, in which a NaN equals itself."""
    real = torch.view_as_real(weight.detach()) if weight.is_complex() else weight.detach()
    flat = real.view(-1)
    return flat[:: -(-len(flat) // _PROBED)].view(torch.int32 if flat.dtype == torch.float32 else torch.int64)


def hooked(modules: Iterable[nn.Module]) -> bool:
    """Return whether a module has hooks, which run only if it is called."""
    return any(module._forward_hooks or module._forward_pre_hooks for module in modules)
