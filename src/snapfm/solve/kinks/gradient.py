"""Gradients through answers that lie on kinks: the KKT system of eq. adjoint with a further row for each kink that is held.

A small change of û or of params leaves such an answer on its kinks, and changes their weights instead. So the switches of held
kinks are rows like those of the laws, and all other kinks stay on their sides. One sample at a time, over all unknowns, with
pivoting. Params enter through the tape's cells that depend on them alone; torch goes on from there (solve.gradient).
Must not import solve.newton.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import block_array, csr_array, diags_array, eye_array, vstack
from scipy.sparse.linalg import splu
from torch import Tensor

from snapfm.arrays import Mask, Values
from snapfm.compile import CompiledLaws
from snapfm.compile.derivatives import Rows, evaluate_params
from snapfm.compile.kinks import Kinks, find_kinks
from snapfm.compile.lower.order import ordered
from snapfm.compile.lower.tape import moved_columns, units
from snapfm.compile.program import Program, build_program
from snapfm.laws import Params
from snapfm.solve.base import Limits

_ON = 1e-8  # a switch is zero within this share of the field, along its slope
_PUSHES = 1e-9  # push, relative to the largest of a law, of a kink that holds the answer
_SOFT = 1e-13  # keeps dependent rows factorable
_EXPONENT = 1000  # of the largest scale: a power of two that is finite
_ACTIVE = 1e-9  # a row that pushes with more than this share of the largest push belongs to an active inequality
_DEPENDENT = 1e-8  # the same where ν is found; what it is off by falls by this factor from pass to pass
_PASSES = 8  # to find the sides of kinks within kinks, and ν
_TINY = 1e-30


class AdjointOnKinks:
    """Prepared for compiled laws and limits; the work is done at the first gradient."""

    def __init__(self, laws: CompiledLaws, limits: Limits) -> None:
        self._laws, self._limits = laws, limits
        self._made: tuple[Kinks, Program] | None = None
        self._outer: Program | None = None

    def solve(
        self, u: Tensor, params: Params, multipliers: Values, away: Values, gradient: Values, in_params: bool
    ) -> tuple[Values, Values, Values]:
        """Return w (n,) and ν (m,) of one answer u (*shape) that is `away` (n,) from û, with multipliers (m,).

        Third, with `in_params`, the slope of wᵀJᵀλ + νᵀh by the cells of params, numbered as in `evaluate_params`.
        """
        kinks, program = self._prepared()
        n, m, count = self._laws.unknowns, len(multipliers), len(kinks.state)
        tape = self._laws.scalar.tape
        field = u.reshape(1, n).numpy()
        outside = np.zeros((1, kinks.tape.params))
        known = evaluate_params(tape, self._laws.example[0], params, 1)
        outside[:, : tape.params] = known
        state, gate = kinks.state - 1, kinks.gate - 1
        outside[0, gate], near = 1.0, np.zeros(count, bool)
        for _ in range(_PASSES):
            rows, jacobian, _ = _evaluated(program, field, outside, np.zeros(m + count))
            switch, slopes = rows[m:], csr_array(jacobian[m:])
            size = np.sqrt(np.asarray(slopes.multiply(slopes).sum(axis=1)).ravel())
            near = (np.abs(switch) <= _ON * (1.0 + np.abs(field).max()) * size) & (size > _TINY)
            sides = np.where(near, -1.0, -1.0 - (switch > 0.0))
            if (sides == outside[0, state]).all():
                break
            outside[0, state] = sides
        held = (field[0] >= self._limits.upper) | (field[0] <= self._limits.lower)
        nu = np.zeros(count)
        if near.any():
            rest = -(away + jacobian[:m].T @ multipliers)
            free = csr_array(csr_array(slopes[np.flatnonzero(near)])[:, np.flatnonzero(~held)])
            nu[near] = _least_squares(free, rest[~held])
        largest = _largest(csr_array(jacobian[:, np.flatnonzero(~held)]))
        push = np.abs(_pushes(multipliers, largest[:m])).max(initial=1.0)
        on = near & (np.abs(_pushes(nu, largest[m:])) > _PUSHES * push)
        factors = np.concatenate([multipliers, np.where(on, nu, 0.0)])
        _, jacobian, hessian = _evaluated(program, field, outside, factors)
        taken = np.concatenate([self._laws.equality_rows | _pushing(multipliers, largest[:m]), on])
        scale = _row_scales(largest)
        answer = _solved(csr_array(diags_array(scale) @ jacobian), hessian, taken, held, gradient)
        answer[n:] *= scale
        pull = np.zeros(tape.params)
        if in_params and len(pull):
            wide, rest = np.concatenate([known, field], axis=1), outside[:, tape.params :]
            _, by_all, curved = _evaluated(self._prepared_in_params(), wide, rest, factors)
            along = np.concatenate([np.zeros(tape.params), answer[:n]])
            pull = (curved @ along + by_all.T @ answer[n:])[: tape.params]
        return answer[:n], answer[n : n + m], pull

    def _prepared_in_params(self) -> Program:
        """Return the program with derivatives by the laws' cells of params, and behind them the field; made at first use."""
        if self._outer is None:
            kinks = self._prepared()[0]
            # With states and gates alone as params, those of the laws are unknowns.
            tape, place = ordered(kinks.tape, np.arange(1 + kinks.params, kinks.tape.first_unknown))
            rows = moved_columns(self._rows(kinks), place, tape.cells)
            self._outer = build_program(tape, rows, np.arange(tape.unknowns))
        return self._outer

    def _rows(self, kinks: Kinks) -> csr_array:
        """Return the laws' rows, then the rows that hold kinks."""
        holds = units(kinks.hold, kinks.tape.cells)
        return csr_array(vstack([self._laws.scalar.rows @ kinks.forms, holds], format="csr"))

    def _prepared(self) -> tuple[Kinks, Program]:
        """Return kinks and program, made at first use. Threads that meet here each make one, and one stays."""
        made = self._made
        if made is None:
            scalar = self._laws.scalar
            kinks = find_kinks(scalar.tape)
            assert kinks is not None  # or no answer would lie on one
            made = kinks, build_program(kinks.tape, self._rows(kinks), np.arange(self._laws.unknowns))
            self._made = made
        return made


def _largest(rows: csr_array) -> Values:
    """Return the largest absolute value in each row; 0 where there is none."""
    found: Values = np.zeros(rows.shape[0])
    np.maximum.at(found, np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr)), np.abs(rows.data))
    return found


def _least_squares(rows: csr_array, right: Values) -> Values:
    """Return the smallest ν of least ‖rowsᵀν − right‖; rows of loops of switches are dependent."""
    scale = _row_scales(_largest(rows))
    rows = csr_array(diags_array(scale) @ rows)
    size = float(rows.multiply(rows).sum(axis=1).max())
    factor = splu(csr_array(rows @ rows.T + _DEPENDENT * size * eye_array(rows.shape[0])).tocsc())
    nu = np.zeros(rows.shape[0])
    for _ in range(_PASSES):
        nu += factor.solve(rows @ (right - rows.T @ nu))
    return scale * nu


def _evaluated(
    program: Program, field: Values, outside: Values, weights: Values
) -> tuple[Values, csr_array, csr_array]:
    """Return rows, Jacobian and Σ weight·∇²row at one field."""
    rows = Rows.of(program)
    entries, curvature = rows.derivatives(field, outside, weights[None])
    lower = program.hessian.csr(curvature[0])
    whole = csr_array(lower + lower.T - diags_array(lower.diagonal()))
    return rows.evaluate(field, outside)[0], program.pattern.csr(entries[0]), whole


def _solved(jacobian: csr_array, hessian: csr_array, taken: Mask, held: Mask, gradient: Values) -> Values:
    """Solve [[W, Jᵀ], [J, 0]] (w, ν) = (g, 0) over the rows taken and the unknowns not held; zero elsewhere.

    The rows are scaled: see solve.gradient.
    """
    n, m = len(held), len(taken)
    free, rows = np.flatnonzero(~held), np.flatnonzero(taken)
    own = csr_array(csr_array(jacobian[rows])[:, free])
    upper = csr_array(csr_array(hessian[free])[:, free] + eye_array(len(free)))
    scale = max(1.0, float(np.abs(own.data).max(initial=0.0)) ** 2)
    matrix = block_array([[upper, own.T], [own, -_SOFT * scale * eye_array(len(rows))]], format="csc")
    answer = np.zeros(n + m)
    try:
        found = splu(matrix).solve(np.concatenate([gradient[free], np.zeros(len(rows))]))
    except RuntimeError:  # SuperLU met a pivot that is exactly zero
        return np.full(n + m, np.nan)
    answer[free], answer[n + rows] = found[: len(free)], found[len(free) :]
    return answer


def _row_scales(largest: Values) -> Values:
    """Return the powers of two (m,) that bring rows to the size of the largest, or of one, given their largest entries."""
    sizes = np.where(np.isfinite(largest), largest, 0.0)
    top = sizes.max(axis=-1, initial=1.0, keepdims=True)
    exponent = np.minimum(np.frexp(top)[1] - np.frexp(sizes)[1], _EXPONENT)
    scale: Values = np.ldexp(1.0, np.where((sizes > 0.0) & (sizes < top), exponent, 0))
    return scale


def _pushes(multipliers: Values, largest: Values) -> Values:
    """Return how hard each row (m,) pushes the field, given its largest entry: multipliers in the units of the field."""
    return multipliers * np.where(largest > 0.0, largest, 1.0)


def _pushing(multipliers: Values, largest: Values) -> Mask:
    """Mark the inequalities (m,) that are active: those that push, whatever the units of their laws."""
    push = _pushes(multipliers, largest)
    active: Mask = push > _ACTIVE * np.abs(push).max(axis=-1, initial=1.0, keepdims=True)
    return active
