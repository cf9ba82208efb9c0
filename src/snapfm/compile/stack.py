"""LawStack: the rows of a list of laws one below the other, and their residuals. What all forms of compiled laws share.

Residuals are torch's own, so that a judge never depends on how derivatives are found.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import suppress
from functools import cached_property
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from snapfm.arrays import Index, Mask, Values
from snapfm.compile.oracle import OracleLaw
from snapfm.compile.trace.batched import RAISED, Batched
from snapfm.compile.trace.trace import TracedLaw
from snapfm.display import Sheet
from snapfm.laws import Bounds, Params
from snapfm.text import one_field, plural


class LawStack(ABC):
    """All rows of some laws on fields of one shape, in the order the laws were given; a subclass holds the fields below."""

    shape: tuple[int, ...]
    laws: tuple[TracedLaw | OracleLaw, ...]

    @cached_property
    def unknowns(self) -> int:
        """Number of unknowns of one field."""
        return int(np.prod(self.shape))

    @cached_property
    def rows(self) -> int:
        """Number of rows of all laws."""
        return sum(law.rows for law in self.laws)

    @cached_property
    def equality_rows(self) -> Mask:
        """Which rows must vanish (the others must not be positive)."""
        return np.concatenate([np.zeros(0, bool), *(law.equality for law in self.laws)])

    def where(self, row: int) -> tuple[TracedLaw | OracleLaw, int]:
        """Return the law that a stacked row belongs to, and its number among the rows of that law."""
        for law, rows in zip(self.laws, self.stack):
            if row < rows.stop:
                return law, row - rows.start
        raise IndexError(row)

    def slices(self) -> dict[str, slice]:
        """Return the stacked rows of each law by its name."""
        return self._slices

    @cached_property
    def _slices(self) -> dict[str, slice]:
        return {law.name: rows for law, rows in zip(self.laws, self.stack)}

    @cached_property
    def stack(self) -> list[slice]:
        """The stacked rows of each law in their order; names may come twice."""
        starts = np.cumsum([0, *(law.rows for law in self.laws)])
        return [slice(int(a), int(b)) for a, b in pairwise(starts)]

    @cached_property
    def ranges(self) -> tuple[list[str], Index]:
        """Names of the laws that have rows, and where the rows of each begin."""
        some = [(law.name, rows.start) for law, rows in zip(self.laws, self.stack) if law.rows]
        return [name for name, _ in some], np.array([start for _, start in some], np.int64)

    def residual(self, u: Tensor, params: Params) -> Tensor:
        """Evaluate all rows on a batch: (b, *shape) to (b, m)."""
        together = None if torch.is_grad_enabled() or not u.shape[0] else self._together
        if together is not None:
            with suppress(*RAISED):
                return together.at_once(u, params)
        # Law by law: where one fails on a sample, the others still have values.
        return torch.cat([u.new_zeros(len(u), 0), *(law.residual(u, params) for law in self.laws)], dim=1)

    @cached_property
    def _together(self) -> Batched | None:
        """All laws as one graph: each call of a graph costs as much as ten small operations. None if one is not traced."""
        graphs = [law.graph for law in self.laws if isinstance(law, TracedLaw)]
        if not graphs or len(graphs) < len(self.laws):
            return None
        return Batched(lambda u, params: torch.cat([graph(u, params) for graph in graphs]), self.rows)

    @cached_property
    def float32_laws(self) -> list[str]:
        """Names of the laws that compute in float32 as they are written; here they are evaluated in float64."""
        return [law.name for law in self.laws if isinstance(law, TracedLaw) and law.written is not None]

    def written(self, u: Tensor, params: Params) -> Tensor:
        """Evaluate all rows with the laws as they are written, in the precision they have: (b, *shape) to (b, m)."""
        parts = [u.new_zeros(len(u), 0)]
        for law in self.laws:
            own = law.written if isinstance(law, TracedLaw) else None
            parts.append(law.residual(u, params) if own is None else own(u, params).to(u.dtype))
        return torch.cat(parts, dim=1)

    def __repr__(self) -> str:
        of = f"{plural(self.rows, 'row')} of {plural(len(self.laws), 'law')}"
        return f"{type(self).__name__}({one_field(self.shape)}, {of})"

    def __str__(self) -> str:
        return self.sheet().text()

    def _repr_html_(self) -> str:
        return self.sheet().html()

    @abstractmethod
    def sheet(self) -> Sheet:
        """Describe the laws, for terminals and notebooks."""

    @abstractmethod
    def transpose_abs_product(self, u: Tensor, params: Params, sizes: Values) -> Values:
        """Return how large Jᵀλ (n,) may be at a batch of one, with |λ| = sizes (m,): an ε of that is its rounding."""


def limits_text(bounds: Bounds) -> str:
    """Write the limits of a field, such as 0 ≤ u ≤ 1; those that differ from point to point by their range."""
    lower, upper = _limit(bounds.lower), _limit(bounds.upper)
    return f"bounds '{bounds.name}': " + f"{lower} ≤ " * bool(lower) + "u" + f" ≤ {upper}" * bool(upper)


def _limit(limit: float | Tensor | None) -> str:
    values = torch.as_tensor([] if limit is None else limit, dtype=torch.float64)
    held = values[torch.isfinite(values)]
    if not held.numel():
        return ""
    least, most = float(held.min()), float(held.max())
    everywhere = "" if held.numel() == values.numel() else f" at {plural(held.numel(), 'point')}"
    return f"{least:g}{everywhere}" if least == most else f"({least:g} to {most:g}{everywhere})"
