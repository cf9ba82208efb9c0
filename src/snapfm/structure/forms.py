"""Linear forms over cells: how a tensor of the graph is written while a law is lowered to a program.

A cell is one number: an unknown, a value that depends on params only, the constant 1, or the result of one nonlinear
operation. Every element of a tensor is a linear combination of cells, kept as a row of a sparse matrix, so linear
operators cost nothing at run time: they are multiplied out here, once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, diags_array, vstack

from snapfm.structure.sets import NONE, Index

Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Form:
    """The elements of one tensor, flattened, as rows over the cells; `shape` is the tensor's."""

    matrix: csr_array
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(self.matrix.shape[0])

    def gather(self, source: Index, shape: tuple[int, ...]) -> Form:
        """Copy elements; NONE gives a zero."""
        rows = np.flatnonzero(source != NONE)
        pick = csr_array((np.ones(len(rows)), (rows, source[rows])), shape=(len(source), self.size))
        return Form(csr_array(pick @ self.matrix), shape)

    def group(self, label: Index, source: Index, weight: Values, size: int, shape: tuple[int, ...]) -> Form:
        """Sum weighted elements: element e is Σ weight[i] · element source[i] over all i with label[i] == e."""
        mix = csr_array((weight, (label, source)), shape=(size, self.size))
        return Form(csr_array(mix @ self.matrix), shape)

    def scaled(self, factor: Values) -> Form:
        """Multiply element by element."""
        return Form(csr_array(diags_array(factor) @ self.matrix), self.shape)

    def widened(self, cells: int) -> Form:
        """See the form over a larger number of cells."""
        if self.matrix.shape[1] == cells:
            return self
        matrix = self.matrix.copy()
        matrix.resize((self.size, cells))
        return Form(matrix, self.shape)


def added(one: Form, other: Form, cells: int) -> Form:
    """Add two forms of one shape."""
    return Form(csr_array(one.widened(cells).matrix + other.widened(cells).matrix), one.shape)


def stacked(forms: list[Form], cells: int) -> Form:
    """Put the elements of several forms one after the other."""
    matrix = csr_array(vstack([form.widened(cells).matrix for form in forms], format="csr"))
    return Form(matrix, (matrix.shape[0],))
