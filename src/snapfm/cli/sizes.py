"""The sizes of a problem's laws as plain values: what `snapfm problems` and `snapfm inspect` give to scripts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from snapfm.problems import Problem
    from snapfm.structure import CompiledLaws


def structure_of(one: Problem) -> CompiledLaws:
    """Analyse a problem's laws under the conditions of its first sample."""
    import torch

    from snapfm.structure import compile_laws

    return compile_laws(one.laws, one.grid.shape, one.params(1, torch.Generator().manual_seed(0)))


def sizes(one: Problem, structure: CompiledLaws) -> dict[str, Any]:
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


def sizes_by_law(structure: CompiledLaws) -> list[dict[str, Any]]:
    """Count the same law by law."""
    from snapfm.structure import RowKind

    found = []
    for name, rows in structure.slices().items():
        kinds, starts = structure.kinds[rows], structure.pattern.indptr
        found.append(
            {
                "name": name,
                "kind": "equality" if structure.equality_rows[rows].all() else "inequality",
                "rows": rows.stop - rows.start,
                "non_zeros": int(starts[rows.stop] - starts[rows.start]),
                "affine_rows": int((kinds <= RowKind.PARAMETRIC).sum()),
                "separable_rows": int((kinds == RowKind.SEPARABLE).sum()),
                "general_rows": int((kinds == RowKind.GENERAL).sum()),
            }
        )
    return found
