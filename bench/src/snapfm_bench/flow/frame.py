"""FrameVelocity: a velocity network that works on the coefficients of a field in a frame of principal fields.

Fields of one equation that depend on few random numbers lie near a space of some dozens of dimensions, boundary layers and
jumps included. The frame spans that space. A network of dense layers predicts the clean field's coefficients from those of
the noisy one and from its first slices (`anchors`), which laws may have imposed and which determine most of the rest.
Called as velocity(u, tau) with fields (b, *shape). Knows no law, problem or projector.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from snapfm.errors import ShapeError
from snapfm_bench.flow.path import check, embed, velocity_to
from snapfm_bench.flow.waves import principal_profiles, real_waves

_MOST_FIELDS = 1024  # used to compute the frame: more hardly change its span, and the cost grows with their square


@dataclass(frozen=True)
class FrameSettings:
    """Everything that determines the shape of a network's weights: `size` principal fields, `layers` blocks of `width`.

    `anchors` names the axes whose first slice is read point by point in addition to the coefficients. A network reads the noisy
    coefficients scaled to variance one or, if `filtered`, their linear estimates, in which coefficients that are still noise
    vanish. If most coefficients are noise, training with independent pairs of noise and field learns nothing from unfiltered ones
    in thousands of steps. The members of a `separable` frame are waves in space times profiles in time, the last axis (waves.py).
    """

    shape: tuple[int, ...]
    size: int
    width: int
    layers: int
    anchors: tuple[int, ...] = (-1,)
    embedding: int = 32
    filtered: bool = False
    separable: bool = False

    def __post_init__(self) -> None:
        axes, points = len(self.shape), math.prod(self.shape)
        if not (
            0 < self.size < points and min(self.width, self.layers) > 0 and all(-axes <= a < axes for a in self.anchors)
        ):
            raise ShapeError(
                f"FrameSettings expects a size from 1 to {points - 1}, positive width and layers, and anchors among the "
                f"{axes} axes of shape; got {self}. Start from a preset: snapfm_bench.flow.preset('frame', shape)."
            )
        if self.embedding < 2 or self.embedding % 2:
            raise ShapeError(f"FrameSettings(embedding) expects a positive even number; got {self.embedding}. Try 32.")


@dataclass(frozen=True, eq=False)
class Principal:
    """How a network's fields vary: orthonormal `directions` (size, *shape) with `variances` (size,), and `rest` in all others."""

    directions: Tensor
    variances: Tensor
    rest: float


class FrameVelocity(nn.Module):
    """The linear estimate of the coefficients, corrected by residual blocks; first weights depend on `seed` alone.

    Call `fit` before training: a frame of zeros predicts zero. A sample's answer does not depend on the other samples of
    its batch; another batch size may change its last bits.
    """

    mean: Tensor  # (points,)
    frame: Tensor  # (size, points), orthonormal rows; if separable, the members' profiles (size, times)
    waves: Tensor  # (size,), if separable: the members' waves, whole numbers
    basis: Tensor  # all waves of space, if separable
    scale: Tensor  # (size,), standard deviations of the coefficients
    anchor_scale: Tensor  # (1,), root mean square of the anchors' standard deviations
    places: Tensor  # indices of the anchors' points in a flat field

    def __init__(self, settings: FrameSettings, seed: int = 0) -> None:
        super().__init__()
        self.settings = settings
        self.error: float | None = None  # mean square per point of its answer minus the field (quality.answer_error)
        points = math.prod(settings.shape)
        index = torch.arange(points).view(settings.shape)
        slices = [index.select(axis, 0).flatten() for axis in settings.anchors]
        places = torch.cat(slices) if slices else index.new_zeros(0)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.first = nn.Linear(settings.size + len(places) + settings.embedding, settings.width)
            self.blocks = nn.ModuleList(_Block(settings.width) for _ in range(settings.layers))
            self.last = nn.Linear(settings.width, settings.size)
        nn.init.zeros_(self.last.weight)  # so that training starts from the linear estimate
        nn.init.zeros_(self.last.bias)
        self.register_buffer("mean", torch.zeros(points))
        self.register_buffer("frame", torch.zeros(settings.size, settings.shape[-1] if settings.separable else points))
        if settings.separable:
            self.register_buffer("waves", torch.zeros(settings.size))
            self.register_buffer("basis", real_waves(settings.shape[:-1]).float(), persistent=False)
        self.register_buffer("scale", torch.ones(settings.size))
        self.register_buffer("anchor_scale", torch.ones(1))
        self.register_buffer("places", places, persistent=False)

    def fit(self, data: Tensor) -> None:
        """Set the network's frame to the mean and principal fields of training fields (count, *shape)."""
        size = self.settings.size
        if len(data) <= size or tuple(data.shape[1:]) != self.settings.shape:
            raise ShapeError(
                f"fit(data) expects more than {size} fields of shape {self.settings.shape}; got {tuple(data.shape)}. "
                "Simulate more fields, or ask for a smaller frame."
            )
        flat = data.detach().flatten(1).to(self.mean.device, self.mean.dtype)
        # An odd stride visits all rows and columns of a table with an even number of columns.
        some = flat[:: len(flat) // _MOST_FIELDS | 1] if len(flat) > _MOST_FIELDS else flat
        centered = (some - flat.mean(0)).double()
        if self.settings.separable:
            series = centered.view(len(centered), -1, self.settings.shape[-1])
            waves, frame = principal_profiles(series, self.basis.double(), size)
            self.waves.copy_(waves)
        else:
            _, vectors = torch.linalg.eigh(centered @ centered.T)
            frame = torch.linalg.qr((vectors[:, -size:].flip(1).T @ centered).T)[0].T
        self.mean.copy_(flat.mean(0))
        self.frame.copy_(frame)
        self.scale.copy_(self.coefficients(flat).std(0))
        if len(self.places):
            self.anchor_scale.copy_(flat[:, self.places].std(0).square().mean().sqrt())

    def forward(self, u: Tensor, tau: float | Tensor) -> Tensor:
        """Predict the velocity of fields u (b, *shape) at flow time tau, a number or one per sample (b,).

        Computed in the dtype of the weights, float32 unless converted; the answer has that of the fields.
        """
        times = check(u, tau, self.settings.shape, self.mean.dtype)
        x = u.to(self.mean.dtype)
        data = self.fields(self._coefficients(x.flatten(1), times[:, None]))
        return velocity_to(data, x, times).to(u.dtype)

    def coefficients(self, fields: Tensor) -> Tensor:
        """Return the coefficients (b, size) of clean fields (b, *shape) about the mean."""
        flat = fields.flatten(1).to(self.mean)
        return torch.cat([self._read(part - self.mean) for part in torch.split(flat, _MOST_FIELDS)])

    def fields(self, coefficients: Tensor) -> Tensor:
        """Return the fields (b, *shape) of coefficients (b, size) about the mean."""
        return (self.mean + self._field(coefficients)).view(-1, *self.settings.shape)

    @property
    def spread(self) -> Principal | None:
        """How its fields vary, for samplers that need it; None until the network's error has been measured.

        Frame and scale are those of the training fields. The error is part of it: the network's fields slightly break laws that
        all true fields obey, and a sampler that took them as exact would compensate by changing something else.
        """
        if self.error is None:
            return None
        scale = self.scale.double()
        directions = self._field(torch.eye(self.settings.size, dtype=self.mean.dtype, device=self.mean.device))
        return Principal(directions.double().view(-1, *self.settings.shape), scale.square(), self.error)

    def _read(self, flat: Tensor) -> Tensor:
        """Return the coefficients (b, size) of flat fields (b, points)."""
        if not self.settings.separable:
            return flat @ self.frame.T
        series = self.basis[self.waves.long()] @ flat.view(len(flat), -1, self.settings.shape[-1])
        return (series * self.frame).sum(-1)

    def _field(self, coefficients: Tensor) -> Tensor:
        """Return the flat fields (b, points) of coefficients (b, size)."""
        if not self.settings.separable:
            return coefficients @ self.frame
        return (self.basis[self.waves.long()].T @ (coefficients[..., None] * self.frame)).flatten(1)

    def _coefficients(self, x: Tensor, tau: Tensor) -> Tensor:
        """Predict the clean field's coefficients about the mean from flat noisy fields (b, points) at tau (b, 1)."""
        shifted = x - tau * self.mean
        return self.estimate(self._read(shifted), shifted[:, self.places], tau)

    def estimate(self, noisy: Tensor, anchors: Tensor, tau: Tensor) -> Tensor:
        """Predict the clean coefficients from noisy ones (b, size) and the noisy anchors' points, at tau (b, 1)."""
        # Variance of a noisy coefficient; the linear estimate is its covariance with the clean one over that.
        power = (tau * self.scale).square() + (1 - tau).square()
        linear = tau * self.scale.square() / power * noisy
        anchor_power = (tau * self.anchor_scale).square() + (1 - tau).square()
        read = tau * self.scale / power * noisy if self.settings.filtered else noisy / power.sqrt()
        inputs = [read, anchors / anchor_power.sqrt(), embed(tau[:, 0], self.settings.embedding)]
        hidden = self.first(torch.cat(inputs, dim=1))
        for block in self.blocks:
            hidden = block(hidden)
        answer: Tensor = linear + self.scale * self.last(_normalize(hidden))
        return answer


class Latent(nn.Module):
    """The flow of a frame network's coefficients alone, called as velocity(c, tau) with coefficients (b, size).

    Rows of the frame are orthonormal, so white noise has white coefficients, and outside the frame's span the flow is that
    of the mean. Training on coefficients is therefore training on fields, at a small part of the cost. The weights are those
    of the network it was made from, which must not read anchors.
    """

    def __init__(self, network: FrameVelocity) -> None:
        super().__init__()
        if network.settings.anchors:
            raise ShapeError(
                f"Latent(network) expects a network without anchors; got one with anchors {network.settings.anchors}, whose "
                "points coefficients do not tell. Use the preset 'latent', or train on fields."
            )
        self.network = network
        self.settings = network.settings

    def forward(self, c: Tensor, tau: float | Tensor) -> Tensor:
        """Predict the velocity of coefficients (b, size) at flow time tau, a number or one per sample (b,)."""
        times = check(c, tau, (self.settings.size,), self.network.mean.dtype)
        return velocity_to(self.network.estimate(c, c[:, :0], times[:, None]), c, times)

    def noise(self, noise: Tensor) -> Tensor:
        """Return the coefficients (b, size) of noise (b, *shape), which is about zero."""
        return self.network.coefficients(noise + self.network.mean.view(self.settings.shape))


class _Block(nn.Module):
    """A residual block: two dense layers with a GELU between, twice as wide inside."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, hidden: Tensor) -> Tensor:
        answer: Tensor = hidden + self.down(F.gelu(self.up(_normalize(hidden))))
        return answer


def _normalize(hidden: Tensor) -> Tensor:
    """Scale every sample's channels to mean zero and variance one."""
    return F.layer_norm(hidden, hidden.shape[-1:])
