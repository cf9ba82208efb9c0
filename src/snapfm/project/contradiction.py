"""Contradictions among rows: a row that follows from the others, yet does not hold where they do (math.md, eq. proof).

To first order an implied row is Σ y·(other rows). Where the others hold, what is left of it can only be rounding of its terms
and of theirs, weighted by y. More than that means that no field obeys.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, diags_array, eye_array
from scipy.sparse.linalg import splu
from torch import Tensor

from snapfm.laws import Params
from snapfm.structure import CompiledLaws

Values = npt.NDArray[np.float64]
Index = npt.NDArray[np.int64]

_SOFT = 1e-13  # keeps dependent rows factorable
_ROUNDS = 3  # of correction, which take the effect of that out again
_REBUILT = 1e-8  # share of a row that the others may leave: more, and it does not follow from them
_ROOM = 4.0  # times the bound on rounding that is allowed for


def contradicts(
    laws: CompiledLaws, implied: Index, residual: Values, u: Tensor, params: Params, tolerance: float
) -> bool:
    """Say whether an implied row of one sample contradicts the equalities, which hold there to the tolerance."""
    slopes = laws.pattern.csr(laws.jacobian(u.reshape(1, *laws.shape), params)[0].numpy())
    others = np.setdiff1d(np.flatnonzero(laws.equality_rows), implied)
    size = np.abs(u.numpy().ravel())
    broken = np.abs(residual) if laws.equality_rows.all() else np.where(laws.equality_rows, np.abs(residual), residual)
    terms = abs(slopes) @ size
    roundings = _ROOM * laws.unknowns * np.finfo(float).eps
    rows = implied[broken[implied] > tolerance + roundings * terms[implied]]
    if not len(rows) or not np.isfinite(slopes.data).all():
        return False
    basis, wanted = csr_array(slopes[others]), csr_array(slopes[rows])
    weights, left = _rebuilt(basis, wanted)
    follows = left <= _REBUILT * np.sqrt(np.asarray(wanted.multiply(wanted).sum(axis=1)).ravel())
    bound = roundings * (np.abs(weights) @ terms[others] + terms[rows]) + np.abs(weights) @ np.abs(residual[others])
    return bool((follows & (broken[rows] > tolerance + bound)).any())


def _rebuilt(basis: csr_array, wanted: csr_array) -> tuple[Values, Values]:
    """Give the weights (wanted, basis) that come nearest to rebuilding rows from others, and the norm of what is left."""
    target = wanted.toarray()
    if basis.shape[0] == 0:
        return np.zeros((len(target), 0)), np.linalg.norm(target, axis=1)
    norms = np.sqrt(np.asarray(basis.multiply(basis).sum(axis=1)).ravel())
    unit = csr_array(diags_array(1.0 / np.where(norms > 0.0, norms, 1.0)) @ basis)
    factor = splu((unit @ unit.T + _SOFT * eye_array(unit.shape[0])).tocsc())
    weights = np.zeros((len(target), basis.shape[0]))
    for _ in range(_ROUNDS):
        weights += factor.solve(unit @ (target - weights @ unit).T).T
    return weights / np.where(norms > 0.0, norms, 1.0), np.linalg.norm(target - weights @ unit, axis=1)
