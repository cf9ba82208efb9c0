"""An Oracle on batches: rows, Jacobian and Hessian from the user's functions, sample by sample, on fixed patterns.

Stands in CompiledLaws where a traced law and its opaque derivatives stand. What the functions return is checked at every call: an
entry outside its pattern raises LawError, a function that raises yields NaN for its sample. Must not import compile.compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import torch
from scipy.sparse import coo_array, issparse
from torch import Tensor

from snapfm.arrays import Index, Mask, Values
from snapfm.compile.program import PAIR_LIMIT
from snapfm.compile.sparsity.differences import check_slopes
from snapfm.compile.sparsity.pattern import Pattern
from snapfm.compile.sparsity.reads import RowKind, bounded_kinds
from snapfm.errors import LawError, SnapfmError, UnsupportedLaw
from snapfm.laws import Oracle, Params
from snapfm.laws.oracle import as_array


class OracleLaw:
    """One Oracle, prepared at an example field and params of one sample, float64."""

    reason = "derivatives of its own"  # why it has no scalar form

    def __init__(self, oracle: Oracle, u: Tensor, params: Params) -> None:
        self.oracle, self.name, self.shape = oracle, oracle.name, tuple(u.shape)
        self._example = (_example(oracle, u), dict(params))
        value = self._first("value", lambda: oracle.values(*self._example))
        self._value_shape, self._split = value.shape, oracle.split(value.shape)
        self._finite("value", value)
        self._jacobian = _Entries(self._call("jacobian"), oracle.pattern, (value.shape, u.shape), "pattern")
        self._own = self._jacobian.pattern.entries(self._split.source)
        self.pattern: Pattern = self._jacobian.pattern.take(self._split.source)
        self._sign = self._split.sign[self.pattern.row_of()]
        self._hessian = self._triangle()
        self.hessian_pattern: Pattern | None = None
        if self._hessian is not None:
            self.hessian_pattern, self._mirrored = self._hessian.pattern.mirrored()
        # First calls, so that wrong shapes are told where the law is made.
        self._finite("jacobian", self._first("jacobian", lambda: self._slopes(*self._example)))
        if oracle.hessian is not None and self.hessian_pattern is not None:
            weight = np.ones(self.rows)
            self._finite("hessian", self._first("hessian", lambda: self._curvature(*self._example, weight)))

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self._split.source)

    @property
    def equality(self) -> Mask:
        """Which rows must vanish."""
        return self._split.equality

    @property
    def kind(self) -> Literal["equality", "inequality", "mixed"]:
        """What its rows are."""
        equality = self.equality
        return "equality" if equality.all() else "mixed" if equality.any() else "inequality"

    @property
    def curved(self) -> bool:
        """Whether the curvature is known: a Hessian is given, or the value is stated to be affine."""
        return self.oracle.hessian is not None or self.oracle.hessian_pattern is not None

    def may_read(self, names: Sequence[str]) -> bool:
        """Whether the functions may read one of these params."""
        return self.oracle.reads is None or not set(names).isdisjoint(self.oracle.reads)

    @property
    def kinds(self) -> Index:
        """Kind of every row (RowKind); slopes of affine rows may depend on params."""
        if self.oracle.hessian is None and self.curved:
            return np.where(self.pattern.counts > 0, RowKind.PARAMETRIC, RowKind.AFFINE).astype(np.int64)
        return bounded_kinds(self.pattern)

    def residual(self, u: Tensor, params: Params) -> Tensor:
        """Evaluate on a batch: (b, *shape) to (b, m); differentiable in u."""
        rows: Tensor = _Rows.apply(u, self, dict(params))  # type: ignore[no-untyped-call]
        return rows

    def jacobian(self, u: Tensor, params: Params) -> Tensor:
        """Evaluate the Jacobian's values on a batch: (b, nnz)."""
        return self.each(self._slopes, self.pattern.nnz, u, params)

    def hessian(self, u: Tensor, params: Params, multipliers: Tensor) -> Tensor:
        """Evaluate Σλ∇²h on a batch: (b, entries of hessian_pattern), with multipliers (b, m). Zero if it is not known."""
        assert self.hessian_pattern is not None
        return self.each(self._curvature, self.hessian_pattern.nnz, u, params, multipliers.detach().numpy())

    def check(self) -> None:
        """Compare the derivatives with differences along one random direction, at the example; raises LawError."""
        u, params = self._example
        field, batch = u.ravel(), {name: value[None] for name, value in params.items()}

        def at(x: Values) -> Tensor:
            return torch.from_numpy(x).reshape(1, *self.shape)

        def rows(x: Values) -> Values:
            found: Values = self.residual(at(x), batch)[0].numpy()
            return found

        slopes = self.pattern.csr(self._slopes(u, params))
        check_slopes(self._call("jacobian"), "pattern", rows, slopes, field)
        if self.oracle.hessian is None or self.hessian_pattern is None:
            return
        weight = np.random.default_rng(0).standard_normal(self.rows)
        curvature = self.hessian_pattern.csr(self._curvature(u, params, weight))

        def pulled(x: Values) -> Values:
            found: Values = self.pattern.csr(self.jacobian(at(x), batch)[0].numpy()).T @ weight
            return found

        check_slopes(self._call("hessian"), "hessian_pattern", pulled, curvature, field)

    def rows_of(self, u: Values, params: Params) -> Values:
        """Evaluate the rows of one sample."""
        value = self.oracle.values(u, params)
        if value.shape != self._value_shape:
            raise LawError(
                f"{self._call('value')} expects the same shape at every call, {self._value_shape}; got {value.shape}. Return an "
                "entry for every row, also where it vanishes."
            )
        return self._split.of(value.ravel())

    def _slopes(self, u: Values, params: Params) -> Values:
        given = self.oracle.jacobian(self.oracle.given(u), self.oracle.given_params(params))
        values: Values = self._sign * self._jacobian.values(given)[self._own]
        return values

    def _curvature(self, u: Values, params: Params, multipliers: Values) -> Values:
        oracle, both = self.oracle, self.hessian_pattern
        assert both is not None
        if oracle.hessian is None or self._hessian is None:
            return np.zeros(both.nnz)
        weight = np.bincount(self._split.source, self._split.sign * multipliers, int(np.prod(self._value_shape)))
        own = oracle.given(weight.astype(np.float64).reshape(self._value_shape))
        given = oracle.hessian(oracle.given(u), oracle.given_params(params), own)
        return self._hessian.values(given)[self._mirrored]

    def each(self, function: Callable[..., Values], size: int, fields: Tensor, params: Params, *more: Values) -> Tensor:
        """Evaluate a function of one sample on a batch: (b, size). NaN for a sample whose function raises."""
        out = np.full((len(fields), size), np.nan)
        for i, u in enumerate(_array(fields)):
            own = {name: value[i] for name, value in params.items()}
            try:
                out[i] = function(u.reshape(self.shape), own, *(one[i] for one in more))
            except SnapfmError:  # the law is wrong, not the sample
                raise
            except Exception:  # whatever a simulator raises where it cannot go on
                out[i] = np.nan
        return torch.from_numpy(out)

    def _triangle(self) -> _Entries | None:
        """Return where the Hessian is read: its lower triangle. None if it is too much to write out."""
        given: tuple[Any, Any] | None = self.oracle.hessian_pattern
        if self.oracle.hessian is None:
            given = (), ()
        if given is None:
            pairs = self.pattern.pairs(PAIR_LIMIT)
            if pairs is None:
                return None
            given = pairs.row_of(), pairs.indices
        return _Entries(self._call("hessian"), given, (self.shape, self.shape), "hessian_pattern", True)

    def _first(self, what: str, call: Callable[[], Values]) -> Values:
        """Call a function for the first time: what it raises is the caller's mistake."""
        try:
            return call()
        except SnapfmError:
            raise
        except Exception as cause:
            first = (str(cause).strip().splitlines() or [""])[0]
            missing = isinstance(cause, KeyError)
            cure = (
                f"Params given are {sorted(self._example[1])}." if missing else "Give a field of its domain: example=…."
            )
            raise LawError(
                f"{self._call(what)} expects to run on one field of shape {self.shape}; it raised {type(cause).__name__}: "
                f"{first}. Try it by hand. {cure}"
            ) from cause

    def _finite(self, what: str, values: Values) -> None:
        wrong = int((~np.isfinite(values)).sum())
        if wrong:
            raise LawError(
                f"{self._call(what)} expects to return finite numbers at the example field; got {wrong} others of {values.size}. "
                "Give a field of its domain: example=…."
            )

    def _call(self, what: str) -> str:
        return f"Oracle '{self.name}': {what}"


class _Entries:
    """What a function may return for a sparse matrix, brought to the order of a Pattern.

    `given` are coordinates in the caller's order, or None for a dense matrix. A symmetric matrix is read in its lower triangle.
    """

    def __init__(
        self, call: str, given: tuple[Any, Any] | None, sides: tuple[Sequence[int], Sequence[int]], argument: str,
        symmetric: bool = False,
    ) -> None:  # fmt: skip
        shape = (int(np.prod(sides[0])), int(np.prod(sides[1])))
        self._call, self._shape, self._argument, self._symmetric = call, shape, argument, symmetric
        self._shapes = (shape, (*sides[0], *sides[1]))  # of a dense matrix: flat, or as the arrays are
        if given is None:
            row, column = np.divmod(np.arange(shape[0] * shape[1]), max(1, shape[1]))
        else:
            row, column = (np.asarray(side, np.int64).ravel() for side in given)
            Pattern.from_coordinates(row, column, shape)  # refuses indices out of range
        self._count = None if given is None else len(row)
        self._read = np.ones(len(row), bool)
        if symmetric:
            keys = row * shape[1] + column
            mirror = (row < column) & np.isin(column * shape[1] + row, keys)  # its other half is listed too
            self._read = ~mirror
            row, column = np.maximum(row, column), np.minimum(row, column)
        self.pattern = Pattern.from_coordinates(row[self._read], column[self._read], shape)
        self._keys = self.pattern.keys()
        self._place = np.searchsorted(self._keys, row[self._read] * shape[1] + column[self._read])

    def values(self, given: Any) -> Values:
        """Return the values of the pattern's entries; raises LawError for another shape or an entry outside."""
        if issparse(given):
            return self._from_matrix(coo_array(given))
        try:
            values = as_array(given)
        except (TypeError, ValueError) as cause:
            raise LawError(
                f"{self._call} expects real numbers; got {type(given).__name__}: {cause}. {self._cure()}"
            ) from cause
        if self._count is not None and values.shape == (self._count,):
            return np.bincount(self._place, values[self._read], self.pattern.nnz).astype(np.float64)
        if values.shape in self._shapes:
            return self._from_matrix(coo_array(values.reshape(self._shape)))
        expected = (
            f"a matrix {self._shape}" if self._count is None else f"({self._count},) values, or a matrix {self._shape}"
        )
        raise LawError(f"{self._call} expects {expected}; got shape {values.shape}. {self._cure()}")

    def _from_matrix(self, matrix: coo_array) -> Values:
        if matrix.shape != self._shape:
            raise LawError(f"{self._call} expects a matrix {self._shape}; got {matrix.shape}. {self._cure()}")
        row, column, data = matrix.row.astype(np.int64), matrix.col.astype(np.int64), matrix.data.astype(np.float64)
        kept = data != 0.0
        row, column, data = row[kept], column[kept], data[kept]
        if self._symmetric:
            if (row > column).any():  # both triangles, or the lower one
                lower = row >= column
                row, column, data = row[lower], column[lower], data[lower]
            else:
                row, column = column, row
        keys = row * self._shape[1] + column
        place = np.minimum(np.searchsorted(self._keys, keys), max(0, len(self._keys) - 1))
        outside = self._keys[place] != keys if len(self._keys) else np.ones(len(keys), bool)
        if outside.any():
            raise LawError(
                f"{self._call} expects a {self._argument} with every entry that can be non-zero; ({row[outside][0]}, "
                f"{column[outside][0]}) is not in it. Add it, or leave {self._argument} out."
            )
        return np.bincount(place, data, self.pattern.nnz).astype(np.float64)

    def _cure(self) -> str:
        return f"Return the values in the order of {self._argument}=…, or a dense or SciPy sparse matrix."


def _array(u: Tensor) -> Values:
    """Return a tensor as a float64 array."""
    found: Values = u.detach().to("cpu", torch.float64).numpy()
    return found


def _example(oracle: Oracle, u: Tensor) -> Values:
    if oracle.example is None:
        return _array(u)
    try:
        found = as_array(oracle.example)
    except (TypeError, ValueError) as cause:
        raise LawError(
            f"Oracle('{oracle.name}', …, example=…) expects a field of numbers; got {type(oracle.example).__name__}. Give an "
            f"array of shape {tuple(u.shape)}."
        ) from cause
    if tuple(found.shape) != tuple(u.shape):
        raise LawError(
            f"Oracle('{oracle.name}', …, example=…) expects ONE field of shape {tuple(u.shape)}; got {tuple(found.shape)}. Leave "
            "the batch axis out."
        )
    return found


class _Rows(torch.autograd.Function):
    """The rows on a batch, differentiable in u: for penalties and guidance."""

    @staticmethod
    def forward(ctx: Any, u: Tensor, law: OracleLaw, params: dict[str, Tensor]) -> Tensor:
        ctx.law, ctx.params = law, params
        ctx.save_for_backward(u)
        return law.each(law.rows_of, law.rows, u, params).to(u)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        pulled: Tensor = _Pull.apply(ctx.saved_tensors[0], gradients[0], ctx.law, ctx.params)  # type: ignore[no-untyped-call]
        return pulled, None, None


class _Pull(torch.autograd.Function):
    """Jᵀy on a batch, differentiable in u, by the Hessian, and in y."""

    @staticmethod
    def forward(ctx: Any, u: Tensor, y: Tensor, law: OracleLaw, params: dict[str, Tensor]) -> Tensor:
        ctx.law, ctx.params = law, params
        ctx.save_for_backward(u, y)
        return _products(law.pattern, law.jacobian(u, params), y, transpose=True).reshape(u.shape).to(u)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        law, params, (u, y) = ctx.law, ctx.params, ctx.saved_tensors
        direction = gradients[0].reshape(len(u), -1)
        in_u = in_y = None
        if ctx.needs_input_grad[1]:
            in_y = _products(law.pattern, law.jacobian(u, params), direction).reshape(y.shape).to(y)
        if ctx.needs_input_grad[0]:
            if not law.curved or law.hessian_pattern is None:
                raise UnsupportedLaw(no_hessian([law.name]))
            values = law.hessian(u, params, torch.from_numpy(_array(y)))
            in_u = _products(law.hessian_pattern, values, direction).reshape(u.shape).to(u)
        return in_u, in_y, None, None


def _products(pattern: Pattern, values: Tensor, vectors: Tensor, transpose: bool = False) -> Tensor:
    """Multiply a sparse matrix per sample, or its transpose, by a vector per sample."""
    found = torch.zeros(len(values), pattern.columns if transpose else pattern.rows, dtype=torch.float64)
    for i, (entries, vector) in enumerate(zip(values.numpy(), _array(vectors))):
        matrix = pattern.csr(entries)
        found[i] = torch.from_numpy((matrix.T if transpose else matrix) @ vector)
    return found


def no_hessian(names: list[str]) -> str:
    """Return the message for a derivative that needs a Hessian that is not given."""
    return (
        f"a gradient through a projection expects second derivatives of all laws; Oracle {', '.join(map(repr, names))} has none. "
        "Give hessian=…, or hessian_pattern=([], []) if the value is affine in the field."
    )
