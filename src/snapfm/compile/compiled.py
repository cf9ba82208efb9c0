"""CompiledLaws: all rows of a list of laws, compiled once. The only source of pattern, row kinds, values and derivatives.

Laws are traced, then lowered to scalar operations. A law that has no scalar form is differentiated by torch; an Oracle brings
its derivatives. Residuals are
always torch's own, so that a judge never depends on the lowering. Also of use by itself: sparse Jacobians and Hessians of
plain torch functions.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import numpy as np
import torch
from scipy.sparse import csr_array, vstack
from torch import Tensor

from snapfm.arrays import Index, Values
from snapfm.compile.derivatives import Scalar
from snapfm.compile.kinks import find_kinks
from snapfm.compile.lower import Block, Form, Lowering, Tape, Unlowerable, refuse_dense_maps
from snapfm.compile.lower.lifts import Lift
from snapfm.compile.lower.regions import ENTRY_LIMIT
from snapfm.compile.lower.tape import moved_columns, of_params, ordered, reads
from snapfm.compile.lower.transform import transformed
from snapfm.compile.opaque import Opaque
from snapfm.compile.oracle import OracleLaw
from snapfm.compile.presolve import Presolve, presolve
from snapfm.compile.program import PAIR_LIMIT, count_terms, refuse_terms
from snapfm.compile.sparsity.pattern import Pattern, TooDense, TooLarge
from snapfm.compile.sparsity.propagate import propagate
from snapfm.compile.sparsity.reads import CellReads, RowKind, cell_reads, row_kinds
from snapfm.compile.stack import LawStack
from snapfm.compile.trace.trace import TracedLaw, example_of, no_dependence_message, trace_law
from snapfm.compile.trace.verify import check_law, verify_law
from snapfm.compile.units import Units
from snapfm.display import Sheet
from snapfm.errors import LawError
from snapfm.laws import Bounds, Equality, Inequality, Law, Oracle, Params
from snapfm.progress import Report, silent


@dataclass(frozen=True, repr=False)
class CompiledLaws(LawStack):
    """Compiled laws: all rows of a list of laws on fields of one shape, in the order the laws were given.

    `scalar` holds the rows of all laws; those of laws that could not be lowered are empty there. `opaque` holds
    the derivatives of these laws, by their place.
    """

    shape: tuple[int, ...]
    laws: tuple[TracedLaw | OracleLaw, ...]
    example: tuple[Tensor, dict[str, Tensor]]  # the float64 sample it was found at: one field, its params
    scalar: Scalar
    opaque: dict[int, Opaque | OracleLaw]
    bounds: tuple[Bounds, ...] = ()  # which have no rows
    remarks: list[str] = field(default_factory=list, compare=False)  # of a projector, for the description; written once
    lower: _Lower | None = field(default=None, repr=False, compare=False)

    def in_units(self, units: Units) -> CompiledLaws:
        """Return the same laws with the tape of `scalar` in these units; all else is by the field."""
        assert self.lower is not None
        scalar, opaque = self.lower.scalar(units, not self.bounds)
        return replace(self, scalar=scalar, opaque=opaque)

    @property
    def nnz(self) -> int:
        """Number of entries of the stacked Jacobian that may be non-zero; over coefficients, if there is a transform."""
        return self.own.nnz

    @property
    def own(self) -> Pattern:
        """The pattern of the unknowns that are solved for: those of the field, or coefficients of a transform."""
        return self.pattern if self.scalar.transform is None else self.scalar.own

    @property
    def affine(self) -> bool:
        """Whether every row is affine with slopes that never change."""
        return bool((self.kinds == RowKind.AFFINE).all())

    @cached_property
    def pattern(self) -> Pattern:
        """Where the stacked Jacobian may be non-zero."""
        lowered = self.scalar.pattern
        counts, indices = lowered.counts.copy(), [np.zeros(0, np.int64)]
        for i, rows in enumerate(self.stack):
            if i in self.opaque:
                counts[rows] = self.opaque[i].pattern.counts
                indices.append(self.opaque[i].pattern.indices)
            else:
                indices.append(lowered.indices[lowered.indptr[rows.start] : lowered.indptr[rows.stop]])
        return Pattern(self.rows, self.unknowns, np.concatenate([[0], np.cumsum(counts)]), np.concatenate(indices))

    @cached_property
    def kinds(self) -> Index:
        """Kind of every row (RowKind)."""
        tape = self.scalar.tape
        kinds = row_kinds(tape, self.scalar.rows, cell_reads(tape))
        if self.scalar.transform is not None:  # what is separable in coefficients is not in the unknowns
            kinds[kinds == RowKind.SEPARABLE] = RowKind.GENERAL
        for i, law in self.opaque.items():
            kinds[self.stack[i]] = law.kinds
        return kinds

    @property
    def constants(self) -> Values:
        """Slopes of the rows whose slopes never change, as in `pattern`; zero for all others."""
        transform, own = self.scalar.transform, self._own_constants
        if transform is not None:
            reading = np.flatnonzero(self.pattern.counts)
            whole = self.own.csr(own)[reading].toarray()
            own = transform.back(whole).ravel()
        return own if self.scalar.units is None else own / self.scalar.units.unknowns[self.pattern.indices]

    @property
    def _own_constants(self) -> Values:
        """The same as in `own`, in units of the unknowns."""
        rows, values = self.scalar.rows, np.zeros(self.own.nnz)
        # Such a row reads unknowns directly, or not at all: its entries are those of the pattern, in the same order.
        affine = self.kinds == RowKind.AFFINE
        affine[[row for i in self.opaque for row in range(self.stack[i].start, self.stack[i].stop)]] = False
        mine = np.repeat(affine, np.diff(rows.indptr)) & self.scalar.tape.is_unknown(rows.indices)
        values[np.repeat(affine, self.own.counts)] = rows.data[mine]
        return values if self.scalar.units is None else values / self.scalar.units.rows[self.own.row_of()]

    @cached_property
    def presolve(self) -> Presolve:
        """Fixed unknowns and redundant rows, found at first use."""
        constant = (self.kinds == RowKind.AFFINE) & self.equality_rows
        return presolve(self.own, self._own_constants, constant)

    @property
    def scale(self) -> Values:
        """The units (n,) of the unknowns, in which rows are compared: where sizes are mixed, ranks are not seen without."""
        units = self.scalar.units
        return np.ones(self.unknowns) if units is None else units.unknowns

    @cached_property
    def hessian_pattern(self) -> Pattern | None:
        """Where Σλ∇²h may be non-zero, both triangles; None where that is too much to write out."""
        parts = [self.scalar.hessian_pattern, *(law.hessian_pattern for law in self.opaque.values())]
        if any(part is None for part in parts):
            return None
        row = np.concatenate([part.row_of() for part in parts if part is not None])
        column = np.concatenate([part.indices for part in parts if part is not None])
        return Pattern.from_coordinates(row, column, (self.unknowns, self.unknowns))

    @cached_property
    def without_hessian(self) -> list[str]:
        """Names of the laws whose second derivatives are not given."""
        return [law.name for law in self.laws if isinstance(law, OracleLaw) and not law.curved]

    @cached_property
    def threads(self) -> bool:
        """Whether several threads may evaluate the laws at once: an Oracle has to allow it."""
        return all(law.oracle.threads for law in self.laws if isinstance(law, OracleLaw))

    def jacobian(self, u: Tensor, params: Params) -> Tensor:
        """Evaluate the stacked Jacobian's values on a batch: (b, nnz), in the order of `pattern`."""
        lowered = torch.from_numpy(self.scalar.jacobian(u, params)) if len(self.opaque) < len(self.laws) else None
        starts = self.scalar.pattern.indptr if lowered is not None else np.zeros(0, np.int64)
        parts = [u.new_zeros(len(u), 0, device="cpu")]
        for i, rows in enumerate(self.stack):
            if i in self.opaque:
                parts.append(self.opaque[i].jacobian(u, params))
            else:
                assert lowered is not None
                parts.append(lowered[:, starts[rows.start] : starts[rows.stop]])
        return torch.cat(parts, dim=1)

    def hessian(self, u: Tensor, params: Params, multipliers: Tensor) -> Values:
        """Evaluate Σλ∇²h of all rows: (b, entries of hessian_pattern), with multipliers λ (b, m).

        There has to be such a pattern.
        """
        whole = self.hessian_pattern
        assert whole is not None
        out, keys = np.zeros((len(u), whole.nnz)), whole.keys()

        def add(pattern: Pattern, values: Values) -> None:
            out[:, np.searchsorted(keys, pattern.keys())] += values

        if len(self.opaque) < len(self.laws) and self.scalar.hessian_pattern is not None:
            add(self.scalar.hessian_pattern, self.scalar.hessian(u, params, np.ascontiguousarray(multipliers.numpy())))
        for i, law in self.opaque.items():
            if law.hessian_pattern is not None:
                add(law.hessian_pattern, law.hessian(u, params, multipliers[:, self.stack[i]]).numpy())
        return out

    def transpose_abs_product(self, u: Tensor, params: Params, sizes: Values) -> Values:
        """Return |J|ᵀ sizes (n,) at a batch of one, sizes (m,): rounding of Jᵀλ is at most an ε of that for |λ|."""
        if self.scalar.transform is not None:
            return self.scalar.transpose_abs_product(u, params, sizes)
        slopes = self.jacobian(u, params)[0].abs().numpy()
        found: Values = self.pattern.csr(slopes).T @ sizes
        return found

    def check(self) -> None:
        """Compare slopes with one random product of torch's per law, at the example: cheap enough for every first use.

        Raises LawError when an entry is missing or wrong.
        """
        u, params = self.example
        batch = {name: value[None] for name, value in params.items()}
        for i, (law, rows) in enumerate(zip(self.laws, self.stack)):
            if isinstance(law, OracleLaw):
                law.check()
            elif i in self.opaque:
                slopes = self.opaque[i].pattern.csr(self.opaque[i].jacobian(u[None], batch)[0].numpy())
                check_law(law, u, params, partial(operator.matmul, slopes.T))
            else:
                check_law(law, u, params, partial(self._pull, u, batch, rows))

    def _pull(self, u: Tensor, batch: Params, rows: slice, weight: Values) -> Values:
        pulled: Values = self.scalar.pull(u[None], batch, rows, weight[None])[0]
        return pulled

    def verify(self, u: Tensor, params: Params) -> None:
        """Compare Jacobian and Hessian with dense ones at a batch of fields; slow, for tests and small fields.

        Raises LawError naming the law and the worst entry.
        """
        jacobian = self.jacobian(u, params).numpy()
        for law, rows in zip(self.laws, self.stack):
            if isinstance(law, OracleLaw):
                law.check()
                continue
            weight = torch.randn(len(u), law.rows, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
            mine = self.pattern.entries(np.arange(rows.start, rows.stop))
            pattern = self.pattern.take(np.arange(rows.start, rows.stop))
            curved: tuple[Pattern, Values] | None = None
            if self.hessian_pattern is not None:
                whole = torch.zeros(len(u), self.rows, dtype=torch.float64)
                whole[:, rows] = weight
                curved = self.hessian_pattern, self.hessian(u, params, whole)
            verify_law(law, u, params, pattern, jacobian[:, mine], weight, curved)

    def sheet(self) -> Sheet:
        """Describe rows, presolve and the size of factors."""
        from snapfm.compile.describe import describe  # here: what it reads imports this file

        return describe(self)


def compile_laws(
    laws: Sequence[Law], shape: tuple[int, ...], params: Params | None = None, report: Report = silent
) -> CompiledLaws:
    """Compile laws on fields of one `shape`; `params` are an example with a leading batch axis, (1, …) by name.
    `report` is called with what is being done. Bounds have no rows and are left out. Raises LawError for laws that cannot be
    used as written, and TooDense for one that is too much to write out, with its derivatives (compile.matrix_free takes those).
    """
    u, sample = example_of(tuple(shape), params)
    given: list[Equality | Inequality | Oracle] = []
    traced: list[TracedLaw | OracleLaw] = []
    opaque = dict[int, Opaque | OracleLaw]()
    for law in laws:
        if isinstance(law, Bounds):
            continue
        if isinstance(law, Oracle):
            own = opaque[len(traced)] = OracleLaw(law, u, sample)
            traced.append(own)
            given.append(law)
            continue
        if not isinstance(law, (Equality, Inequality)):
            raise LawError(
                f"laws expects Equality, Inequality, Bounds and Oracle; got {type(law).__name__}. Wrap a function: "
                "snapfm.Equality('name', function)."
            )
        report(f"tracing law '{law.name}'")
        traced.append(trace_law(law, u, sample))
        given.append(law)
    bounds = tuple(law for law in laws if isinstance(law, Bounds))
    lower = _Lower(tuple(given), tuple(traced), opaque, u, sample)
    scalar, opaque = lower.scalar(None, not bounds, report)
    compiled = CompiledLaws(tuple(shape), tuple(traced), (u, sample), scalar, opaque, bounds, lower=lower)
    _check_slopes(compiled, given)
    return compiled


@dataclass(frozen=True)
class _Lowered:
    """Laws on one tape: the rows and lifts over it, and the laws that have no scalar form."""

    tape: Tape
    rows: csr_array
    lifts: tuple[Lift, ...]
    opaque: dict[int, Opaque | OracleLaw]


class _Lower:
    """Lowers traced laws, once with lifts and once without, as far as that is asked for."""

    def __init__(
        self, given: tuple[Equality | Inequality | Oracle, ...], traced: tuple[TracedLaw | OracleLaw, ...],
        oracles: dict[int, Opaque | OracleLaw], u: Tensor, sample: dict[str, Tensor],
    ) -> None:  # fmt: skip
        self._read = given, traced, oracles, u, sample
        self._known: dict[bool, _Lowered] = {}

    def scalar(
        self, units: Units | None, unbounded: bool, report: Report = silent
    ) -> tuple[Scalar, dict[int, Opaque | OracleLaw]]:
        """Write all laws in units and, where that applies, over the coefficients of a transform; return also those without."""
        found = self._lowered(not self._read[2], report)
        scalar = self._written(found, units, unbounded)
        if found.lifts and scalar.transform is None:
            # Coefficients of no use: bounds, laws or units read the field itself, or laws are opaque.
            if find_kinks(found.tape) is None:
                _refuse_curvature(found.tape, found.lifts)
            found = self._lowered(False, report)
            scalar = self._written(found, units, unbounded)
        return scalar, found.opaque

    def _written(self, found: _Lowered, units: Units | None, unbounded: bool) -> Scalar:
        tape, rows, transform = found.tape, found.rows, None
        applies = True
        if units is not None:
            applies = units.keep(found.lifts)
            tape, rows = units.applied(tape, rows, found.lifts)
        if applies and unbounded and not found.opaque:
            tape, rows, transform = transformed(tape, rows, found.lifts)
        return Scalar(tape, rows, self._read[3], transform, units)

    def _lowered(self, lifting: bool, report: Report) -> _Lowered:
        if lifting not in self._known:
            given, traced, opaque, u, sample = self._read
            if self._known:  # what has no scalar form with lifts has none without
                opaque = self._known[not lifting].opaque
            self._known[lifting] = _lowered(given, traced, opaque, u, sample, report, lifting)
        return self._known[lifting]


def _lowered(
    given: Sequence[Equality | Inequality | Oracle], traced: Sequence[TracedLaw | OracleLaw],
    oracles: dict[int, Opaque | OracleLaw], u: Tensor, sample: dict[str, Tensor], report: Report, lifting: bool,
) -> _Lowered:  # fmt: skip
    """Lower all laws that have a scalar form to one tape and its rows, with the lifts it reads."""
    opaque = dict(oracles)
    tape, forms = Tape(u.numel(), lifting=lifting), []
    slopes = CellReads(tape, slopes=True)
    for i, (law, one) in enumerate(zip(given, traced, strict=True)):
        before, form = tape.mark(), Form(csr_array((one.rows, tape.cells)), (one.rows,))
        if i not in opaque:
            assert not isinstance(law, Oracle)
            assert isinstance(one, TracedLaw)
            report(f"lowering law '{law.name}'")
            try:
                refuse_dense_maps(one.graph, u, sample, lifting)
                form = Lowering(tape, one.graph, u, sample).run()
                _refuse_terms(slopes, tape.blocks[before[1] :], form)
            except Unlowerable as cause:
                tape.forget(before)
                slopes.forget()
                opaque[i] = _opaque(law, one, str(cause), u, sample)
                form = Form(csr_array((one.rows, tape.cells)), (one.rows,))
        forms.append(form)
    if tape.tried and not tape.lifts:  # products are exact where probing a map rounds
        return _lowered(given, traced, opaque, u, sample, report, lifting=False)
    del slopes  # hundreds of megabytes where fields are large
    report("finding patterns")
    parts = [form.widened(tape.cells).matrix for form in forms]
    rows = csr_array(vstack([csr_array((0, tape.cells)), *parts], format="csr"))
    rows.eliminate_zeros()  # what cancelled while forms were added
    lifts = tuple(tape.lifts)
    tape, place = ordered(tape, of_params(tape))
    rows = moved_columns(rows, place, tape.cells)
    rows.sort_indices()
    return _Lowered(tape, rows, lifts, opaque)


def _refuse_curvature(tape: Tape, lifts: tuple[Lift, ...]) -> None:
    """Raise TooLarge if operations on transforms of the field would couple too many unknowns: before these are written out."""
    first = tape.first_operation - sum(len(lift.unknowns) for lift in lifts)
    pairs = 0
    for lift in lifts:
        lifted = np.zeros(tape.cells, bool)
        lifted[first : first + len(lift.unknowns)] = True
        first += len(lift.unknowns)
        reading = sum(int(reads(block.a, lifted).sum()) for block in tape.blocks if block.op.curved)
        pairs += reading * len(lift.unknowns) ** 2
    if pairs > PAIR_LIMIT:
        raise TooLarge(
            "second derivatives of transforms of the field, which bounds or laws read too, are not written out", pairs
        )


def _refuse_terms(slopes: CellReads, blocks: Sequence[Block], form: Form) -> None:
    """Raise Unlowerable if the slopes of a law, lowered to these blocks and rows, are too much to write out."""
    pool = slopes.follow()
    terms = count_terms(form.matrix, pool)
    terms += sum(count_terms(operand, pool) for block in blocks for operand in block.operands[:2])
    refuse_terms(terms, form.matrix, pool)


def _opaque(law: Equality | Inequality, traced: TracedLaw, reason: str, u: Tensor, params: Params) -> Opaque:
    """Find the pattern of a law that has no scalar form, by sparsity rules unless the caller states it; raises TooDense."""
    reads = propagate(traced.graph, u, params, law.name, quiet=law.pattern is not None)
    if law.pattern is None and reads.nnz > ENTRY_LIMIT:
        raise TooDense(
            f"law '{law.name}' uses {reason}, so that torch has to differentiate it; it expects rows with at most "
            f"{ENTRY_LIMIT:,} entries in all then; got {reads.nnz:,}. Keep fewer rows, or give Equality(…, pattern=…).",
            reads.nnz,
        )
    pattern = Pattern.from_sets(reads, u.numel())
    if law.pattern is not None:
        pattern = Pattern.from_coordinates(*law.pattern, (traced.rows, u.numel()))
    if traced.rows and u.numel() and not reads.nnz:
        raise LawError(no_dependence_message(law.name))
    return Opaque(law.name, reason, traced.graph, pattern, u, params)


def _check_slopes(compiled: CompiledLaws, given: Sequence[Equality | Inequality | Oracle]) -> None:
    """Refuse a law without slopes, and a pattern given by hand that lacks entries: what was found is exact."""
    unknowns = compiled.unknowns
    for i, (law, rows) in enumerate(zip(given, compiled.stack)):
        if isinstance(law, Oracle):  # its pattern is its own; OracleLaw.check compares it with differences
            continue
        found = (compiled.own if law.pattern is None else compiled.pattern).take(np.arange(rows.start, rows.stop))
        pattern = None if law.pattern is None else Pattern.from_coordinates(*law.pattern, (found.rows, unknowns))
        if found.rows and unknowns and not (found.nnz and (pattern is None or pattern.nnz)):
            raise LawError(no_dependence_message(law.name))
        if pattern is None or i in compiled.opaque:
            continue
        lacking = ~np.isin(found.keys(), pattern.keys())
        if lacking.any():
            raise LawError(
                f"law '{law.name}' expects a pattern with every entry that can be non-zero; row {found.row_of()[lacking][0]} "
                f"lacks some (unknown {found.indices[lacking][0]} is one). Correct the pattern given, or leave it out."
            )
