"""The picture of a pattern: where the stacked Jacobian of a problem's laws can be non-zero, one color per law."""

from __future__ import annotations

import numpy as np

from snapfm.evidence.page import canvas
from snapfm.structure import CompiledLaws

_PIXELS, _DPI = (1500, 750), 150


def drawn_pattern(structure: CompiledLaws, title: str) -> bytes:
    """Draw the pattern as PNG bytes: rows down, unknowns across."""
    pattern, laws = structure.pattern, structure.slices()
    row = pattern.row_of()
    # A mark is about as high as a row's share of the picture, but never invisible.
    mark = float(np.clip(260.0 / max(structure.rows, 1), 1.6, 8.0))
    with canvas.style():
        figure = canvas.figure(_PIXELS, _DPI)
        figure.set_layout_engine("constrained")
        axes = figure.add_subplot()
        for i, (name, rows) in enumerate(laws.items()):
            here = (row >= rows.start) & (row < rows.stop)
            axes.plot(
                pattern.indices[here], row[here], linestyle="none", marker="s", markersize=mark, markeredgewidth=0,
                color=(*canvas.COLORS, "#000000")[i % 7],
                label=f"{name}: {rows.stop - rows.start} rows, {int(here.sum())} non-zeros",
            )  # fmt: skip
        axes.set(xlim=(-0.5, structure.unknowns - 0.5), ylim=(structure.rows - 0.5, -0.5), ylabel="row")
        axes.set_xlabel(f"unknown (field of {'×'.join(map(str, structure.shape))}, flattened)")
        axes.set_title(f"{title}: where the Jacobian can be non-zero")
        figure.legend(loc="outside lower center", ncols=min(3, max(1, len(laws))), markerscale=4)
        return canvas.png(figure)
