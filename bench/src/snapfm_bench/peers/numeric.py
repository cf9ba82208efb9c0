"""Laws as numeric functions, for solvers that call back: values, Jacobian and Hessian of one sample at a time.

Evaluated by casadi, like the laws of the other peers. On a single sample that takes a fraction of the time of our own
derivatives, which are made for batches, and peers are to be shown at their best.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy.sparse import csc_array
from torch import Tensor

from snapfm.arrays import Values
from snapfm.compile import CompiledLaws
from snapfm.errors import UnsupportedLaw
from snapfm.laws import Params
from snapfm.solve.base import Limits
from snapfm_bench.peers.call import PeerCall
from snapfm_bench.peers.model import CasadiModel, Symbol, casadi


class Numeric(CasadiModel):
    """Kept rows over free unknowns x; each function is built at its first use and keeps its memory, so one call at a time."""

    def __init__(self, structure: CompiledLaws, limits: Limits) -> None:
        super().__init__(structure, limits, presolve=True)
        self.equal: npt.NDArray[np.bool_] = structure.equality_rows[self.kept]
        self.lower, self.upper = limits.lower[self.free], limits.upper[self.free]

    @property
    def bounded(self) -> bool:
        """Whether any free unknown has a limit."""
        return bool(np.isfinite(self.lower).any() or np.isfinite(self.upper).any())

    def stationarity(self, x: Values, rest: Values) -> float:
        """Measure the remainder of u − û + Jᵀλ by how far x would move along it within its bounds."""
        return float(np.abs(np.minimum(np.maximum(rest, x - self.upper), x - self.lower)).max(initial=0.0))

    @cached_property
    def values(self) -> PeerCall:
        """x to h."""
        return self._call(lambda x, h, weight: h)

    @cached_property
    def pulls(self) -> PeerCall:
        """(x, weight) to Jᵀ·weight."""
        ca = casadi()
        return self._call(lambda x, h, weight: ca.densify(ca.jtimes(h, x, weight, True)))

    @cached_property
    def jacobians(self) -> Matrix:
        """x to J."""
        ca = casadi()
        return Matrix(*self._function(lambda x, h, weight: ca.jacobian(h, x)))

    @cached_property
    def hessians(self) -> Matrix:
        """(x, weight) to Σλ∇²h. Raises UnsupportedLaw where that is too dense to be written out."""
        if self.structure.hessian_pattern is None:
            raise UnsupportedLaw(
                "a peer that asks for curvature expects laws that couple few unknowns; these couple too many pairs to write "
                "out. Use the lbfgs peer, or square the coupled total outside the law."
            )
        ca = casadi()
        return Matrix(*self._function(lambda x, h, weight: ca.hessian(ca.dot(weight, h), x)[0]))

    def _call(self, write: Callable[[Symbol, Symbol, Symbol], Symbol]) -> PeerCall:
        return self._function(write)[0]

    def _function(self, write: Callable[[Symbol, Symbol, Symbol], Symbol]) -> tuple[PeerCall, Symbol]:
        ca = casadi()
        x, pinned = ca.MX.sym("x", len(self.free)), ca.MX.sym("pinned", len(self.fixed))
        known, weight = ca.MX.sym("known", self.knowns), ca.MX.sym("weight", len(self.kept))
        place = np.argsort(np.concatenate([self.free, self.fixed]))
        out = write(x, self.rows(ca.vertcat(x, pinned)[place.tolist()], known), weight)
        names = ["x", "pinned", "known", "weight"]
        function = ca.Function("rows", [x, pinned, known, weight], [out], names, ["out"])
        return PeerCall(function), function.sparsity_out(0)

    def sample(self, start: Tensor, params: Params, i: int) -> Sample:
        """Take sample i of a batch (b, *shape), with its fixed unknowns set."""
        known, pinned = self.inputs(params, len(start))
        field: Values = start[i].reshape(-1).numpy().copy()
        field[self.fixed] = pinned[i]
        return Sample(self, field, field[self.free], pinned[i], known[i])


class Matrix:
    """A function that returns a sparse matrix, with casadi's pattern: column after column."""

    def __init__(self, call: PeerCall, sparsity: Symbol) -> None:
        self.call = call
        self.starts, self.rows = np.array(sparsity.colind(), np.int64), np.array(sparsity.row(), np.int64)
        self.columns = np.repeat(np.arange(sparsity.size2()), np.diff(self.starts))
        self.shape = (sparsity.size1(), sparsity.size2())

    def matrix(self) -> csc_array:
        """Copy the result of the last call."""
        return csc_array((self.call.results["out"].copy(), self.rows, self.starts), shape=self.shape)


@dataclass(frozen=True)
class Sample:
    """One sample: functions of its free unknowns x."""

    rows: Numeric
    start: Values  # (n,), with pinned unknowns in place
    target: Values  # û of the free unknowns
    pinned: Values
    known: Values

    def whole(self, x: Values) -> Values:
        """Put x among the fixed unknowns: (n,)."""
        field = self.start.copy()
        field[self.rows.free] = x
        return field

    def residual(self, x: Values) -> Values:
        """Evaluate the kept rows."""
        return self._run(self.rows.values, x).copy()

    def pull(self, x: Values, weight: Values) -> Values:
        """Evaluate Jᵀ·weight."""
        return self._run(self.rows.pulls, x, weight).copy()

    def jacobian(self, x: Values) -> csc_array:
        """Evaluate the Jacobian of kept rows: (kept, free)."""
        self.jacobian_entries(x)
        return self.rows.jacobians.matrix()

    def hessian(self, x: Values, weight: Values) -> csc_array:
        """Evaluate Σλ∇²h: (free, free)."""
        self.hessian_entries(x, weight)
        return self.rows.hessians.matrix()

    def jacobian_entries(self, x: Values) -> Values:
        """Evaluate the entries of the Jacobian alone; the next call writes over them."""
        return self._run(self.rows.jacobians.call, x)

    def hessian_entries(self, x: Values, weight: Values) -> Values:
        """Evaluate the entries of the Hessian alone; the next call writes over them."""
        return self._run(self.rows.hessians.call, x, weight)

    def _run(self, call: PeerCall, x: Values, weight: Values | None = None) -> Values:
        given = call.arguments
        given["x"][:], given["pinned"][:], given["known"][:] = x, self.pinned, self.known
        if weight is not None:
            given["weight"][:] = weight
        call()
        return call.results["out"]
