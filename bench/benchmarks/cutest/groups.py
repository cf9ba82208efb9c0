"""The constraints of an S2MPJ problem, put together from its element and group functions on fixed patterns.

The package walks through sparse matrices group by group, which takes most of the time of an evaluation; here the linear terms are
one product, and gradients and Hessians of elements are added up where they belong. Every method gets these functions.
Row i is g_i(a_i·x − b_i + Σ w f(x))/s_i.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from snapfm.arrays import Index, Mask, Values


@dataclass(frozen=True)
class Element:
    """One term of a row: its function and number, its unknowns, its weight, and where its derivatives belong."""

    function: Any
    number: int
    unknowns: Index
    weight: float
    entries: Index  # of the row's gradient
    local: Index  # of its flat Hessian: the lower triangle
    pairs: Index  # of the lower triangle of all Hessians


@dataclass(frozen=True)
class Group:
    """A curved row: its elements, the function around them, and its own pairs of unknowns."""

    row: int
    elements: list[Element]
    function: Any  # None for the identity
    number: int
    entries: slice  # of the Jacobian
    pairs: tuple[Index, Index, Index]  # of its gradient's outer product: two places of the gradient, one of the pairs


class Groups:
    """Value, Jacobian at `pattern` and Hessian at `pairs` (lower triangle). `linear` marks the rows without curvature."""

    def __init__(self, problem: Any) -> None:
        problem.getglobs()
        self.problem, n, numbers = problem, int(problem.n), [int(group) for group in problem.congrps]
        given = [_elements(problem, group) for group in numbers]
        shapes = [_shape(problem, group) for group in numbers]
        self.linear: Mask = np.array([not some and shape is None for some, shape in zip(given, shapes)], bool)
        rows = _linear(problem, numbers, n)
        reads = [
            np.unique(np.concatenate([rows[[i]].nonzero()[1], *(one[2] for one in some)])).astype(np.int64)
            for i, some in enumerate(given)
        ]
        first = np.concatenate([[0], np.cumsum([len(one) for one in reads])]).astype(np.int64)
        self.pattern: tuple[Index, Index] = (
            np.repeat(np.arange(len(numbers)), np.diff(first)), np.concatenate([np.zeros(0, np.int64), *reads]),
        )  # fmt: skip
        self.pairs, keys = _pairs([reads[i] for i in np.flatnonzero(~self.linear)], n)
        self._rows, self._constant = rows, _numbers(problem, "gconst", numbers, 0.0)
        self._slopes = np.asarray(rows[self.pattern]).ravel() if len(self.pattern[0]) else np.zeros(0)
        scale = _numbers(problem, "gscale", numbers, 1.0)
        self._scale = np.where(np.abs(scale) > 1e-15, scale, 1.0)
        self._curved = [
            _group(i, given[i], shapes[i], numbers[i], reads[i], int(first[i]), keys, n)
            for i in np.flatnonzero(~self.linear)
        ]

    def value(self, x: Values) -> Values:
        """Evaluate c (m,)."""
        inner, column = self._rows @ x - self._constant, x.reshape(-1, 1)
        for group in self._curved:
            total = inner[group.row] + sum(
                one.weight * _number(one.function(self.problem, 1, column[one.unknowns], one.number))
                for one in group.elements
            )
            shaped = group.function
            inner[group.row] = total if shaped is None else _number(shaped(self.problem, 1, total, group.number))
        found: Values = inner / self._scale
        return found

    def jacobian(self, x: Values) -> Values:
        """Evaluate J at the entries of `pattern`."""
        slopes, inner, column = self._slopes.copy(), self._rows @ x - self._constant, x.reshape(-1, 1)
        for group in self._curved:
            total, own = inner[group.row], slopes[group.entries]
            for one in group.elements:
                value, slope = one.function(self.problem, 2, column[one.unknowns], one.number)
                total += one.weight * _number(value)
                np.add.at(own, one.entries, one.weight * np.asarray(slope, float).ravel())
            if group.function is not None:
                own *= _number(group.function(self.problem, 2, total, group.number)[1])
        found: Values = slopes / self._scale[self.pattern[0]]
        return found

    def hessian(self, x: Values, y: Values) -> Values:
        """Evaluate Σ y ∇²c at the entries of `pairs`."""
        out, inner, column = np.zeros(len(self.pairs[0])), self._rows @ x - self._constant, x.reshape(-1, 1)
        weights = y / self._scale
        for group in self._curved:
            if not weights[group.row]:
                continue
            total, slopes, bends = inner[group.row], self._slopes[group.entries].copy(), []
            for one in group.elements:
                value, slope, bend = one.function(self.problem, 3, column[one.unknowns], one.number)
                total += one.weight * _number(value)
                np.add.at(slopes, one.entries, one.weight * np.asarray(slope, float).ravel())
                bends.append(one.weight * _dense(bend).ravel()[one.local])
            weight = weights[group.row]
            if group.function is not None:
                _, slope, bend = group.function(self.problem, 3, total, group.number)
                high, low, place = group.pairs
                np.add.at(out, place, weight * _number(bend) * slopes[high] * slopes[low])
                weight = weight * _number(slope)
            for one, bend in zip(group.elements, bends):
                np.add.at(out, one.pairs, weight * bend)
        return out


def _linear(problem: Any, numbers: list[int], n: int) -> csr_array:
    """Return the linear terms (m, n); groups beyond the rows that are stored have none."""
    if not hasattr(problem, "A"):
        return csr_array((len(numbers), n))
    stored = csr_array(problem.A)
    stored.resize((max(stored.shape[0], *numbers, 0) + 1, n))
    found: csr_array = stored[numbers]
    found.eliminate_zeros()
    return found


def _elements(problem: Any, group: int) -> list[tuple[Any, int, Index, float]]:
    """List the function, number, unknowns and weight of a group's elements."""
    listed = getattr(problem, "grelt", None)
    if listed is None or group >= len(listed) or listed[group] is None:
        return []
    weights = getattr(problem, "grelw", None)
    weighted = weights is not None and group < len(weights) and weights[group] is not None
    return [
        (
            getattr(problem, problem.elftype[int(element)]), int(element),
            np.array([int(v) for v in problem.elvar[int(element)]], np.int64),
            float(_number(weights[group][k])) if weighted else 1.0,
        )
        for k, element in enumerate(listed[group])
    ]  # fmt: skip


def _shape(problem: Any, group: int) -> Any:
    """Return the function of a group; None for the identity."""
    kinds = getattr(problem, "grftype", [])
    kind = kinds[group] if group < len(kinds) else None
    return None if kind in (None, "", "TRIVIAL") else getattr(problem, kind)


def _group(
    row: int, given: list[tuple[Any, int, Index, float]], function: Any, number: int, reads: Index, first: int, keys: Index,
    n: int,
) -> Group:  # fmt: skip
    elements = []
    for own, element, unknowns, weight in given:
        high, low = np.repeat(unknowns, len(unknowns)), np.tile(unknowns, len(unknowns))
        local = np.flatnonzero(high >= low)
        pairs = np.searchsorted(keys, high[local] * n + low[local])
        elements.append(Element(own, element, unknowns, weight, np.searchsorted(reads, unknowns), local, pairs))
    high, low = np.tril_indices(len(reads))
    place = np.searchsorted(keys, reads[high] * n + reads[low])
    return Group(row, elements, function, number, slice(first, first + len(reads)), (high, low, place))


def _pairs(curved: list[Index], n: int) -> tuple[tuple[Index, Index], Index]:
    """Return the pairs of unknowns that share a curved row, lower triangle, and their sorted keys."""
    keys = np.zeros(0, np.int64)
    for reads in curved:
        high, low = np.tril_indices(len(reads))
        keys = np.union1d(keys, reads[high] * n + reads[low])
    row, column = np.divmod(keys, max(1, n))
    return (row, column), keys


def _numbers(problem: Any, key: str, numbers: list[int], none: float) -> Values:
    """Return one number of each group."""
    values = getattr(problem, key, None)
    values = [] if values is None else values
    return np.array([
        none if group >= len(values) or values[group] is None else _number(values[group]) for group in numbers
    ])  # fmt: skip


def _dense(matrix: Any) -> Values:
    return np.asarray(matrix.toarray() if hasattr(matrix, "toarray") else matrix, float)


def _number(value: Any) -> float:
    return value if isinstance(value, float) else float(np.asarray(value).ravel()[0])
