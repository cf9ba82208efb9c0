"""The optimality system's transpose at an answer, sample by sample, for gradients through a projection (math.md, eq. adjoint).

[[W, Jᵀ], [J, 0]] (w, ν) = (g, 0) over the rows and unknowns that take part: equalities, inequalities that hold with a
multiplier, and unknowns that no bound holds.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import block_array, csr_array, diags_array, eye_array
from scipy.sparse.linalg import splu
from torch import Tensor

from snapfm.laws import Params
from snapfm.structure import Structure

# Relative to ‖J‖²: keeps the system solvable when rows repeat each other, far below any gradient that matters.
_SOFT = 1e-13
# A multiplier above this share of the largest one belongs to an inequality that holds.
_HOLDS = 1e-9


def solve_adjoint(
    structure: Structure, u: Tensor, params: Params, multipliers: Tensor, held: npt.NDArray[np.bool_], gradient: Tensor
) -> tuple[Tensor, Tensor]:
    """Solve for (w, ν); `held` (b, n) marks unknowns at a bound, which cannot move."""
    count = len(u)
    flat = gradient.reshape(count, -1).numpy()
    w, nu = np.zeros_like(flat), np.zeros(multipliers.shape)
    jacobian = structure.jacobian(u, params).numpy()
    bends = structure.hessian(u, params, multipliers)
    for i in range(count):
        if not (np.isfinite(flat[i]).all() and np.isfinite(jacobian[i]).all()):
            w[i], nu[i] = np.nan, np.nan
            continue
        rows = np.flatnonzero(structure.equality_rows | _holding(multipliers[i].numpy()))
        free = np.flatnonzero(~held[i])
        matrix = csr_array(csr_array(structure.pattern.csr(jacobian[i])[rows])[:, free])
        curved = csr_array(eye_array(structure.unknowns) + bends[i])[free][:, free]
        soft = _SOFT * max(1.0, float((matrix.data**2).max(initial=0.0)))
        system = block_array([[curved, matrix.T], [matrix, diags_array(np.full(len(rows), -soft))]], format="csc")
        right = np.concatenate([flat[i, free], np.zeros(len(rows))])
        answer = splu(system).solve(right)
        w[i, free], nu[i, rows] = answer[: len(free)], answer[len(free) :]
    return torch.from_numpy(w), torch.from_numpy(nu)


def _holding(multipliers: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    holds: npt.NDArray[np.bool_] = multipliers > _HOLDS * max(1.0, float(np.abs(multipliers).max(initial=0.0)))
    return holds
