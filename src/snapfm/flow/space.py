"""The memory an evaluation works in, cut into tiles of samples, with every view made once.

Kept from call to call: fresh tensors of this size are mapped anew by the system at every operation, and touching their
pages costs more than the arithmetic (a product and GELU of 10⁴ × 256 numbers: 9.6 ms fresh, 2.8 ms kept).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from snapfm.flow.fourier import Stage
from snapfm.flow.prepared import Prepared

Product = tuple[Tensor, Tensor, Tensor]  # matrices, what they multiply, where the result goes

# Hidden values of the samples that go through an operation together. One sample of the paper's network is a tile by
# itself; of small ones, tiles of 4 to 16 samples measured alike, single samples half as fast, 32 a tenth slower.
_TILE_BYTES = 4 * 2**20


class Tile:
    """Views of some consecutive samples: their own hidden values, and scratch memory that all tiles share."""

    def __init__(
        self, prepared: Prepared, span: slice, hidden: Tensor, spectrum: Tensor, mixed: Tensor, scratch: Scratch
    ) -> None:
        self.span = span
        count = span.stop - span.start
        cells, width = hidden.shape[1:]
        points = count * cells
        values = len(prepared.lift) - prepared.coordinates.shape[1] + 1
        self.inputs = scratch.view("inputs", count, cells, len(prepared.lift) + 1)
        self.inputs[:, :, values:] = prepared.coordinates
        self.values = self.inputs[:, :, :values]
        self.lifted = scratch.view("wide", count, cells, prepared.lift.shape[1])
        self.projected = scratch.view("wide", points, prepared.project.shape[1])
        self.hidden = hidden[span].view(points, width)
        self.next = scratch.view("next", points, width)
        mlp = prepared.layers[0].mlp
        self.narrow = scratch.view("narrow", points, 0 if mlp is None else mlp.first.shape[1])

        sides = ("even", "odd")  # a stage reads one piece of scratch memory and writes the other
        self.forward = _chain(prepared.fourier.forward, self.hidden, scratch, sides, spectrum[span])
        back = scratch.view(sides[0], *spectrum[span].shape)
        after = self.next.view(count, cells, width)
        *self.inverse, self.add = _chain(prepared.fourier.inverse, back, scratch, sides[::-1], after)
        self.real, self.imaginary = back[:, 0].transpose(0, 1), back[:, 1].transpose(0, 1)  # (modes, count, width)
        mixed = mixed[:, span]  # part of the mode, part of the matrix
        self.products = (mixed[:, :, 0, 0], mixed[:, :, 0, 1], mixed[:, :, 1, 0], mixed[:, :, 1, 1])


class Scratch:
    """Memory by name, large enough for every view that was asked for."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self._pieces: dict[str, Tensor] = {}

    def view(self, name: str, *shape: int) -> Tensor:
        """Give the first numbers of a piece; ask for the largest view first, or two views will not share memory."""
        size = math.prod(shape)
        piece = self._pieces.get(name)
        if piece is None or len(piece) < size:
            piece = self._pieces[name] = torch.empty(size, dtype=self.dtype)
        return piece[:size].view(shape)


class Space:
    """Memory for one number of samples."""

    def __init__(self, prepared: Prepared, count: int) -> None:
        self.count = count
        cells, width, modes = len(prepared.coordinates), len(prepared.layers[0].bias), prepared.fourier.modes
        hidden = torch.empty(count, cells, width, dtype=prepared.dtype)
        spectrum = torch.empty(count, 2, modes, width, dtype=prepared.dtype)
        mixed = torch.empty(modes, count, 2, 2, width, dtype=prepared.dtype)
        self.rows = spectrum.view(2 * count, modes, width).transpose(0, 1)
        self.mixed = mixed.view(modes, 2 * count, 2 * width)
        self.zero = mixed[prepared.fourier.zero, :, 0, 0]  # a real part of mode zero
        scratch = Scratch(prepared.dtype)
        most = max(1, _TILE_BYTES // prepared.sample_bytes)
        self.tiles = [Tile(prepared, span, hidden, spectrum, mixed, scratch) for span in pieces(count, most)]


def pieces(count: int, most: int) -> list[slice]:
    """Cut 0 .. count − 1 into pieces of nearly one size, the larger ones first, none above `most`."""
    number = -(-count // most)
    size, left = divmod(count, number)
    edges = [k * size + min(k, left) for k in range(number + 1)]
    return [slice(first, last) for first, last in pairwise(edges)]


def _chain(
    stages: Sequence[Stage], values: Tensor, scratch: Scratch, sides: tuple[str, str], target: Tensor
) -> list[Product]:
    """Line up stages from values (count, …) to target, over one piece of scratch memory and the other in turn."""
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
