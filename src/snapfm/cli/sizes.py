"""The sizes of a problem's laws as plain values: what `snapfm problems` and `snapfm inspect` give to scripts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from snapfm.problems import Problem
    from snapfm.structure import Structure


def structure_of(one: Problem) -> Structure:
    """Analyse a problem's laws under the conditions of its first sample."""
    import torch

    from snapfm.structure import analyze

    return analyze(one.laws, one.grid.shape, one.params(1, torch.Generator().manual_seed(0)))


def sizes(one: Problem, structure: Structure) -> dict[str, Any]:
    """Count unknowns, rows of each kind, non-zeros and redundant rows."""
    from snapfm.structure import RowKind

    affine = int((structure.kinds <= RowKind.PARAMETRIC).sum())
    return {
        "name": one.name,
        "shape": list(one.grid.shape),
        "unknowns": structure.unknowns,
        "rows": structure.rows,
        "equality_rows": int(structure.equality_rows.sum()),
        "affine_rows": affine,
        "nonlinear_rows": structure.rows - affine,
        "non_zeros": structure.nnz,
        "redundant_rows": len(structure.presolve.redundant),
        "summary": one.summary,
    }


def sizes_by_law(structure: Structure) -> list[dict[str, Any]]:
    """Count the same law by law."""
    from snapfm.structure import RowKind

    return [
        {
            "name": plan.name,
            "kind": plan.kind,
            "rows": plan.rows,
            "non_zeros": plan.pattern.nnz,
            "affine_rows": plan.count(RowKind.AFFINE, RowKind.PARAMETRIC),
            "separable_rows": plan.count(RowKind.SEPARABLE),
            "general_rows": plan.count(RowKind.GENERAL),
        }
        for plan in structure.plans
    ]
