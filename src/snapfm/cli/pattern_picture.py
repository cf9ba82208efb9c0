"""Draw where a stacked Jacobian can be non-zero, one color per law."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from snapfm.errors import require
from snapfm.structure import Structure

# Okabe–Ito: told apart by color-blind readers, and in print.
_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_WIDTH = 10.0  # inches at 150 dots: 1500 pixels wide


def draw_pattern(structure: Structure, title: str, path: Path) -> None:
    """Write a PNG of the pattern: rows down, unknowns across; whole or not at all."""
    require("matplotlib", "drawing patterns", "report")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_WIDTH, 5.0), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    for i, (plan, rows) in enumerate(zip(structure.plans, structure.slices().values())):
        axes.plot(
            plan.pattern.indices, plan.pattern.row_of() + rows.start, linestyle="none", marker="s",
            markersize=_marker(structure.rows), markeredgewidth=0, color=_COLORS[i % len(_COLORS)],
            label=f"{plan.name}: {plan.rows} rows, {plan.pattern.nnz} non-zeros",
        )  # fmt: skip
    axes.set_xlim(-0.5, structure.unknowns - 0.5)
    axes.set_ylim(structure.rows - 0.5, -0.5)
    axes.set_xlabel(f"unknown (field of {'×'.join(map(str, structure.shape))}, flattened)")
    axes.set_ylabel("row")
    axes.set_title(f"{title}: where the Jacobian can be non-zero")
    figure.legend(loc="outside lower center", ncols=min(3, max(1, len(structure.plans))), frameon=False, markerscale=4)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.part")
    FigureCanvasAgg(figure)
    try:
        figure.savefig(temporary, format="png")
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _marker(rows: int) -> float:
    """Size marks so that a row is about as high as its share of the page, but never invisible."""
    return float(np.clip(260.0 / max(rows, 1), 1.6, 8.0))
