"""A network's weights as its evaluator multiplies with them.

Reads an FNOVelocity and never writes it. The copies take as much memory as the weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from snapfm.flow.fourier import Fourier, fourier
from snapfm.flow.network import FNOVelocity
from snapfm.flow.seal import hooked

# What a network consists of; one with anything else in it (a norm, a parametrization, another layer) is evaluated plainly.
_OURS = {"FNOVelocity", "Spectral", "Pointwise"}
_THEIRS = {"FNO", "FNOBlocks", "ChannelMLP", "DenseTensor", "Flattened1dConv", "ModuleList", "SoftGating"}


@dataclass(frozen=True)
class ChannelMlp:
    """The two products of a block's channel MLP, (in, out) each, and the gate of the path around it."""

    first: Tensor
    first_bias: Tensor
    second: Tensor
    second_bias: Tensor
    gate: Tensor


@dataclass(frozen=True)
class Layer:
    """One Fourier layer."""

    mix: Tensor  # (modes, width, 2·width): real parts, then imaginary parts
    bias: Tensor  # (width,)
    skip: Tensor  # (width, width)
    mlp: ChannelMlp | None


@dataclass(frozen=True)
class Prepared:
    """All weights, matrices as (in, out), and the transform between grid and modes."""

    fourier: Fourier
    coordinates: Tensor  # (cells, axes + 1), the last column ones
    lift: Tensor  # (values + axes, lifting)
    lift_embedding: Tensor  # (embedding, lifting)
    lift_bias: Tensor
    lift_second: Tensor  # (lifting, width)
    lift_second_bias: Tensor
    layers: tuple[Layer, ...]
    project: Tensor  # (width, projection)
    project_bias: Tensor
    project_second: Tensor  # (projection, values)
    project_second_bias: Tensor

    @property
    def dtype(self) -> torch.dtype:
        """Precision of all weights."""
        return self.coordinates.dtype

    @property
    def sample_bytes(self) -> int:
        """Memory of one sample's hidden values."""
        return len(self.coordinates) * len(self.layers[0].bias) * self.dtype.itemsize


def familiar(network: nn.Module) -> bool:
    """Say whether the network is made of the parts that `prepare` knows, in one precision, on the CPU."""
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


def prepare(network: FNOVelocity) -> Prepared:
    """Copy the weights of a familiar network."""
    blocks = network.fno.fno_blocks
    (lift, lift_second), (project, project_second) = network.fno.lifting.fcs, network.fno.projection.fcs
    settings = network.settings
    local = settings.patch ** len(settings.shape) + len(settings.shape)  # inputs that differ from cell to cell
    layers = [_layer(blocks, index) for index in range(settings.layers)]
    return Prepared(
        fourier=fourier(settings.cells, blocks.convs[0].modes, network.coordinates.dtype),
        coordinates=_copy(network.coordinates.T),
        lift=_matrix(lift)[:local],
        lift_embedding=_matrix(lift)[local:],
        lift_bias=_copy(lift.bias),
        lift_second=_matrix(lift_second),
        lift_second_bias=_copy(lift_second.bias),
        layers=tuple(layers),
        project=_matrix(project),
        project_bias=_copy(project.bias),
        project_second=_matrix(project_second),
        project_second_bias=_copy(project_second.bias),
    )


def _layer(blocks: Any, index: int) -> Layer:
    convolution = blocks.convs[index]
    weight = convolution.weight.to_tensor().detach().flatten(2).permute(2, 0, 1)  # (modes, in, out)
    mlp = None
    if blocks.use_channel_mlp:
        first, second = blocks.channel_mlp[index].fcs
        gate = _copy(blocks.channel_mlp_skips[index].weight.flatten())
        mlp = ChannelMlp(_matrix(first), _copy(first.bias), _matrix(second), _copy(second.bias), gate)
    return Layer(
        mix=torch.cat([weight.real, weight.imag], dim=2),
        bias=_copy(convolution.bias.flatten()),
        skip=_matrix(blocks.fno_skips[index].conv),
        mlp=mlp,
    )


def _matrix(pointwise: Any) -> Tensor:
    """Give a 1×1 convolution as (in, out)."""
    return _copy(pointwise.weight[:, :, 0].T)


def _copy(weight: Tensor) -> Tensor:
    return weight.detach().clone(memory_format=torch.contiguous_format)
