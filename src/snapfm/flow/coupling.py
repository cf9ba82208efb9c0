"""Which noise is trained towards which field, and what a sampler has done to that field before the network sees it.

Pulling back to the original noise u₀ (math.md, eq. pcfm) only leads back onto the path if that noise belongs to the
field. With noise and fields paired at random it does not: the part of u₀ that looks like a change of field is read as
evidence again at every flow step, and drives fields to the ends of their range and, in a network, beyond. Pairs of
optimal transport have straight paths, which shooting and pulling back do not leave. Knows tensors, not laws.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from snapfm.seeds import stream

_POOL_STREAM = 2**40  # keeps the pools' random numbers apart from those of the training steps, which count from 0


@dataclass(frozen=True)
class Pool:
    """Noise (size, *shape) and, for each, the index of the field it is paired with."""

    number: int
    noise: Tensor
    index: Tensor


def couple(data: Tensor, seed: int, number: int, size: int) -> Pool:
    """Draw pool `number` of a run: `size` noises and fields, paired so that the sum of their products is largest.

    That is optimal transport for the squared distance.
    """
    random = stream(seed, _POOL_STREAM + number)
    index = torch.randint(len(data), (size,), generator=random)
    noise = torch.randn((size, *data.shape[1:]), generator=random, dtype=data.dtype)
    products = noise.flatten(1) @ data[index].flatten(1).T
    # A field that is not finite must reach the loss, which names it; the assignment would only refuse its products.
    _, partner = linear_sum_assignment(products.nan_to_num().numpy(), maximize=True)
    return Pool(number, noise, index[torch.from_numpy(partner)])


def disturb(
    data: Tensor,
    index: Tensor,
    tau: Tensor,
    random: torch.Generator,
    axes: tuple[int, ...] = (),
    rows: int = 1,
    stray: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Play what sampling does to the fields at `index` (b,): return what the network is shown and what is wanted of it.

    A sampler's own error: a shown field strays by a random multiple of the difference of two others, `stray` in size,
    and has to come back. White noise alone says little about such smooth errors once it is small, and a network left
    free there may enlarge them from step to step.

    A projection: with `axes`, `data` is a table of `rows` rows. A row shares its first slice along axes[0], a column
    whatever that slice leaves open, and with it the first slice along axes[1] if there is one. With chance τ a field
    meets a sibling, of its column or its row: one of the two is shown with such a slice of the other, which is wanted.
    So a network learns to follow the slice and to keep the rest. Later steps have followed already, so a random part
    of the way is gone; and the further it is, the likelier the field that noise is paired with is the wanted one, as
    it should be at the end.
    """
    dims = [1] * (data.ndim - 1)
    count, columns = len(data), len(data) // rows
    other, one, two = torch.randint(count, (3, len(index)), generator=random)
    chance, gone, order = torch.rand((3, len(index)), generator=random, dtype=data.dtype)
    size = stray * torch.randn(len(index), generator=random, dtype=data.dtype)
    which = torch.randint(max(1, len(axes)), index.shape, generator=random)
    met = (chance < tau) & bool(axes)
    sibling = torch.where(
        which == 0, other // columns * columns + index % columns, index // columns * columns + other % columns
    )
    sibling = torch.where(met, sibling, index)
    swapped = order < gone
    before, wanted = data[torch.where(swapped, sibling, index)], data[torch.where(swapped, index, sibling)]
    shown = torch.lerp(before, wanted, gone.view(-1, *dims)) + size.view(-1, *dims) * (data[one] - data[two])
    for place, axis in enumerate(axes):
        dim = 1 + axis % (data.ndim - 1)  # after the batch
        here = met & (which == place)
        shown.movedim(dim, 1)[here, 0] = wanted.movedim(dim, 1)[here, 0]
    return shown, wanted
