"""FNOVelocity: the velocity network of the flow, a Fourier neural operator over the space-time grid.

Called as velocity(u, tau) with fields (b, *shape). Knows no law, problem or projector. neuralop is imported when a network
is built, so that snapfm works without it. It imports wandb, which is never started.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from snapfm.errors import ShapeError, require
from snapfm_bench.flow.layers import accelerate
from snapfm_bench.flow.path import check, embed, velocity_to

if TYPE_CHECKING:
    from snapfm_bench.flow.evaluate import NetworkEvaluator


@dataclass(frozen=True)
class NetworkSettings:
    """Everything that determines the shape of a network's weights.

    `predicts` says what the FNO's output is. "velocity": the velocity itself, as in the paper; the white noise that it
    contains then has to pass through the pointwise path. "data": the clean field D = E[data | u_τ], from which the
    velocity follows as (D − u)/(1 − τ); a small network with few modes produces smooth fields this way.

    `patch` is the number of points per axis in one cell of the grid that the FNO works on. With 2, a cell's four (or
    eight) values are channels of a grid half as fine, for a quarter (or an eighth) of the work. Every point still has its
    own input and output value.
    """

    shape: tuple[int, ...]
    modes: tuple[int, ...]
    width: int
    layers: int
    lifting: int
    projection: int
    embedding: int = 32
    channel_mlp: bool = True
    predicts: Literal["velocity", "data"] = "velocity"
    patch: int = 1

    @property
    def cells(self) -> tuple[int, ...]:
        """Shape of the grid the FNO works on; the last cell of an axis may reach past its end."""
        return tuple(-(-n // self.patch) for n in self.shape)

    def __post_init__(self) -> None:
        if self.patch < 1:
            raise ShapeError(
                f"NetworkSettings(patch) expects at least one point per cell; got {self.patch}. Leave it at 1, or try 2."
            )
        if len(self.modes) != len(self.shape) or not all(1 <= m <= n for m, n in zip(self.modes, self.cells)):
            raise ShapeError(
                f"NetworkSettings(modes) expects one count per axis of shape {self.cells}, from 1 to its size; "
                f"got {self.modes}. Keep fewer modes, or one number per axis."
            )
        counts = (self.width, self.layers, self.lifting, self.projection)
        if min(counts) < 1 or self.embedding < 2 or self.embedding % 2:
            raise ShapeError(
                "NetworkSettings(width, layers, lifting, projection, embedding) expects positive numbers, and an even "
                f"embedding; got {(*counts, self.embedding)}. Start from a preset: snapfm_bench.flow.preset('small', shape)."
            )


class FNOVelocity(nn.Module):
    """A Fourier neural operator with τ and the coordinates as extra inputs; its first weights depend on `seed` alone.

    A sample's answer does not depend on the other samples of its batch; another batch size may change its last bits,
    because matrix products of another shape add in another order.
    """

    coordinates: Tensor

    def __init__(self, settings: NetworkSettings, seed: int = 0) -> None:
        super().__init__()
        self.settings = settings
        self.fno = _fno(settings, seed)
        if settings.predicts == "data":
            _raise_gain(self.fno, settings)
        accelerate(self.fno, settings.cells)
        axes = [torch.linspace(0.0, 1.0, n) for n in settings.cells]
        ones = torch.ones(settings.cells)
        channels = torch.stack([*torch.meshgrid(*axes, indexing="ij"), ones])
        self.register_buffer("coordinates", channels.flatten(1), persistent=False)
        self.register_state_dict_post_hook(_drop_metadata)  # type: ignore[no-untyped-call]

    def evaluator(self) -> NetworkEvaluator:
        """Return the same network, evaluated faster: samplers ask for it."""
        from snapfm_bench.flow.evaluate import NetworkEvaluator  # which imports this module

        return NetworkEvaluator(self)

    def forward(self, u: Tensor, tau: float | Tensor) -> Tensor:
        """Predict the velocity of fields u (b, *shape) at flow time tau, a number or one per sample (b,).

        Computed in the dtype of the weights, float32 unless converted; the answer has that of the fields.
        """
        times = check(u, tau, self.settings.shape, self.coordinates.dtype)
        x = u.to(self.coordinates.dtype)
        hidden = self._lift(x, times)
        for layer in range(self.settings.layers):
            hidden = self.fno.fno_blocks(hidden, layer)
        return self._velocity(self.fno.projection(hidden), x, times).to(u.dtype)

    def _lift(self, x: Tensor, times: Tensor) -> Tensor:
        """Lift (patches of the field, coordinates, time embedding) to `width` channels.

        The embedding is constant over the grid, so its 32 channels act as a bias per sample. Expanding them over the grid
        first, as an FNO with 35 input channels would, computes the same numbers with ten times the work.
        """
        first, second = self.fno.lifting.fcs
        patches = self._patch(x).flatten(2)
        varying = patches.shape[1] + x.ndim - 1  # channels that differ from cell to cell
        weight = first.weight[:, :, 0]
        bias = first.bias + embed(times, self.settings.embedding) @ weight[:, varying:].T
        local = weight[:, :varying].expand(len(x), -1, -1)
        inputs = torch.cat([patches, self.coordinates.expand(len(x), -1, -1)], dim=1)
        hidden = torch.bmm(torch.cat([local, bias[:, :, None]], dim=2), inputs)
        lifted: Tensor = second(F.gelu(hidden))
        return lifted.view(len(x), -1, *self.settings.cells)

    def _patch(self, x: Tensor) -> Tensor:
        """Turn the points of each cell into channels: (b, *shape) to (b, patch^axes, *cells).

        Points past the end, where the patch does not divide an axis, repeat the last one.
        """
        patch, cells = self.settings.patch, self.settings.cells
        if patch == 1:
            return x[:, None]
        ends = [pad for n, c in zip(x.shape[:0:-1], cells[::-1]) for pad in (0, c * patch - n)]
        if any(ends):
            x = F.pad(x[:, None], ends, mode="replicate")[:, 0]
        x = x.reshape(len(x), *(size for c in cells for size in (c, patch)))
        axes = range(len(cells))
        return x.permute(0, *(2 * i + 2 for i in axes), *(2 * i + 1 for i in axes)).reshape(len(x), -1, *cells)

    def _unpatch(self, channels: Tensor) -> Tensor:
        """Undo `_patch`, leaving out the points past the end: (b, patch^axes, *cells) to (b, *shape)."""
        patch, cells = self.settings.patch, self.settings.cells
        if patch == 1:
            return channels[:, 0]
        axes = len(cells)
        x = channels.reshape(len(channels), *[patch] * axes, *cells)
        x = x.permute(0, *(i for k in range(1, axes + 1) for i in (axes + k, k)))
        x = x.reshape(len(x), *(c * patch for c in cells))
        return x[(slice(None), *(slice(n) for n in self.settings.shape))]

    def _velocity(self, channels: Tensor, x: Tensor, times: Tensor) -> Tensor:
        """Turn the FNO's output (b, patch^axes, *cells) into the velocity of fields x at their flow times."""
        answer = self._unpatch(channels)
        return answer if self.settings.predicts == "velocity" else velocity_to(answer, x, times)


def _raise_gain(fno: Any, settings: NetworkSettings) -> None:
    """Scale the first spectral weights so that white noise has an amplitude of order one after that layer.

    The kept modes hold √(kept / points) of its amplitude, a seventh for the small network. Exactly these modes distinguish
    a clean field from noise, and training finds them sooner when they are not hidden from the start.
    """
    with torch.no_grad():
        fno.fno_blocks.convs[0].weight.tensor.mul_(math.sqrt(math.prod(settings.cells) / math.prod(settings.modes)))


def _drop_metadata(module: nn.Module, state: dict[str, Any], prefix: str, local: Any) -> None:
    """Remove the entry that neuralop adds to every state_dict: it is not a tensor, and torch's own loader refuses it."""
    state.pop("_metadata", None)


def _fno(settings: NetworkSettings, seed: int) -> Any:
    """Build neuralop's FNO, leaving the caller's random state and warning filters as they were."""
    with warnings.catch_warnings():  # importing neuralop.models installs a filter for every UserWarning
        models = require("neuralop.models", "the FNO velocity network", "", of="snapfm-bench")
    values = settings.patch ** len(settings.shape)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return models.FNO(
            n_modes=settings.modes,
            in_channels=values + len(settings.shape) + settings.embedding,
            out_channels=values,
            hidden_channels=settings.width,
            n_layers=settings.layers,
            # neuralop multiplies these by the width and truncates: the half keeps rounding from losing a channel.
            lifting_channel_ratio=(settings.lifting + 0.5) / settings.width,
            projection_channel_ratio=(settings.projection + 0.5) / settings.width,
            positional_embedding=None,
            use_channel_mlp=settings.channel_mlp,
        )
