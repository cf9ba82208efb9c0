"""Which noise is paired with which field in training, and what a sampler has done to a field before the network sees it.

Pulling back to the original noise u₀ (math.md, eq. pcfm) leads back onto the path only if that noise belongs to the field.
With noise and fields paired at random it does not: the part of u₀ that looks like a change of the field is read as evidence
again at every flow step, and drives fields to the ends of their range and, in a network, beyond. Pairs of optimal transport
have straight paths, which shooting and pulling back do not leave. Knows tensors, not laws.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

import scipy  # its modules are imported when they are used: scipy.optimize takes long
import torch
from torch import Tensor

from snapfm.seeds import stream
from snapfm_bench.flow.path import Velocity, interpolate

# The fields among which noise finds its partner: all; those of one row, for laws that fix the rows; or some rows × some
# columns, for laws that fix either. "independent" is plain flow matching: noise and field are drawn independently.
Pairing: TypeAlias = Literal["all", "rows", "crossed", "independent"]

_SHORTEST_STEP, _LONGEST_STEP = 0.01, 0.1  # of the walks that `revisit` simulates: those of 100 to 10 flow steps
_POOL_STREAM = 2**40  # keeps the pools' random numbers apart from those of the training steps, which count from 0


@dataclass(frozen=True)
class Pool:
    """Noise (size, *shape) and, for each, the index of the field it is paired with."""

    number: int
    noise: Tensor
    index: Tensor


def couple(data: Tensor, seed: int, number: int, size: int, rows: int = 1, pairing: Pairing = "all") -> Pool:
    """Draw pool `number` of a run: `size` noises and fields, paired so that the sum of their products is largest.

    That is optimal transport for the squared distance; "independent" leaves the pairs as they were drawn. The data are a
    table of `rows` rows. Where laws fix the row, noise has to determine the column within it: paired among fields of all
    rows it determines the row, and hardly the column.
    """
    random = stream(seed, _POOL_STREAM + number)
    index = _draw(len(data), size, rows, pairing, random)
    noise = torch.randn((size, *data.shape[1:]), generator=random, dtype=data.dtype)
    if pairing == "independent":
        return Pool(number, noise, index)
    block = len(data) // rows if pairing == "rows" else size
    paired = [
        _pair(noise[first : first + block], data, index[first : first + block]) for first in range(0, size, block)
    ]
    order = torch.randperm(size, generator=random) if pairing == "rows" else torch.arange(size)  # batches mix rows
    return Pool(number, noise[order], torch.cat(paired)[order])


def _pair(noise: Tensor, data: Tensor, index: Tensor) -> Tensor:
    """Return the index of the field that each noise is paired with, among those at `index`."""
    products = noise.flatten(1) @ data[index].flatten(1).T
    # A field that is not finite must reach the loss, whose check names the step; the assignment would only refuse it.
    _, partner = scipy.optimize.linear_sum_assignment(products.nan_to_num().numpy(), maximize=True)
    return index[torch.from_numpy(partner)]


def _draw(count: int, size: int, rows: int, pairing: Pairing, random: torch.Generator) -> Tensor:
    """Draw `size` places of a table: anywhere, in whole rows, or in a block of rows and columns that is nearly square."""
    if pairing in ("all", "independent"):
        return torch.randint(count, (size,), generator=random)
    columns = count // rows
    wide = columns if pairing == "rows" else min(columns, math.isqrt(size))
    tall = -(-size // wide)
    down = torch.randperm(rows, generator=random)[torch.arange(tall) % rows]  # rows may repeat
    along = torch.randperm(columns, generator=random)[:wide]
    return (down[:, None] * columns + along).flatten()[:size]


@dataclass(frozen=True)
class Scene:
    """What the network is shown, what it should predict (both (b, *shape)), and which shown values laws have set."""

    shown: Tensor
    wanted: Tensor
    imposed: Tensor

    def to(self, device: torch.device) -> Scene:
        """Move to a device."""
        return Scene(self.shown.to(device), self.wanted.to(device), self.imposed.to(device))


def disturb(
    data: Tensor,
    index: Tensor,
    tau: Tensor,
    random: torch.Generator,
    axes: tuple[int, ...] = (),
    rows: int = 1,
    stray: float = 0.0,
    meeting: float | None = None,
) -> Scene:
    """Reproduce what sampling does to the fields at `index` (b,).

    The sampler's own error: a shown field is off by a random multiple, `stray` in size, of the difference of two others,
    and the network has to correct it. White noise alone says little about such smooth errors once it is small, and a
    network that is not trained on them may enlarge them from step to step.

    A projection: with `axes`, `data` is a table of `rows` rows. The fields of a row share the first slice along axes[0];
    those of a column share what that slice leaves open, and so the first slice along axes[1] if there is one. With
    probability τ, or `meeting`, a field meets another one of its column or row: one of the two is shown with such a slice
    of the other, which is wanted. So a network learns to follow the slice and to keep the rest. Later flow steps have
    followed it already, so a random part of the way is done; the larger that part, the likelier the field that the noise
    is paired with is the wanted one, as it should be at the end.
    """
    dims = [1] * (data.ndim - 1)
    count, columns = len(data), len(data) // rows
    other, one, two = torch.randint(count, (3, len(index)), generator=random)
    chance, gone, order = torch.rand((3, len(index)), generator=random, dtype=data.dtype)
    size = stray * torch.randn(len(index), generator=random, dtype=data.dtype)
    which = torch.randint(max(1, len(axes)), index.shape, generator=random)
    met = (chance < (tau if meeting is None else meeting)) & bool(axes)
    sibling = torch.where(
        which == 0, other // columns * columns + index % columns, index // columns * columns + other % columns
    )
    sibling = torch.where(met, sibling, index)
    swapped = order < gone
    before, wanted = data[torch.where(swapped, sibling, index)], data[torch.where(swapped, index, sibling)]
    shown = torch.lerp(before, wanted, gone.view(-1, *dims)) + size.view(-1, *dims) * (data[one] - data[two])
    imposed = torch.zeros_like(shown, dtype=torch.bool)
    for place, axis in enumerate(axes):
        dim = 1 + axis % (data.ndim - 1)  # after the batch
        imposed.movedim(dim, 1)[met & (which == place), 0] = True
    return Scene(torch.where(imposed, wanted, shown), wanted, imposed)


def revisit(
    velocity: Velocity, noise: Tensor, scene: Scene, tau: Tensor, random: torch.Generator, share: float
) -> Tensor:
    """Simulate the last steps of a sampler up to tau: return what is shown after them.

    A `share` of the batch takes at least one step, half of those two, and so on. In each step the network's answer
    replaces what is shown, except for imposed values. Training then sees the errors that the network makes on its own
    answers, and unlearns those that would grow.
    """
    order = torch.randperm(len(tau), generator=random)
    low, high = math.log(_SHORTEST_STEP), math.log(_LONGEST_STEP)
    length = torch.exp(low + (high - low) * torch.rand(len(tau), generator=random, dtype=tau.dtype)).to(tau.device)
    counts: list[int] = []
    while (count := int(share * len(tau) / 2 ** len(counts))) > 0:
        counts.append(count)
    shown = scene.shown.clone()
    with torch.no_grad():
        for left, count in reversed(list(enumerate(counts, start=1))):
            some = order[:count]
            times = (tau[some] - left * length[some]).clamp(min=0)
            u = interpolate(noise[some], shown[some], times)
            answer = u + (1 - times).view(-1, *[1] * (u.ndim - 1)) * velocity(u, times)
            shown[some] = torch.where(scene.imposed[some], shown[some], answer)
    return shown
