"""The pattern of a Jacobian: which unknowns each row of the laws reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from snapfm.compile import CompiledLaws
from snapfm.errors import SettingError
from snapfm.laws.checks import named
from snapfm.plot import canvas
from snapfm.project import Projector
from snapfm.text import extents, plural

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PIXELS, _DPI = (1500, 750), 150


def pattern(laws: Projector | CompiledLaws, title: str | None = None) -> Figure:
    """Draw where the Jacobian of a projector's laws can be non-zero: rows down, unknowns across."""
    structure = laws.require_sparse("a picture of the pattern") if isinstance(laws, Projector) else laws
    if not isinstance(structure, CompiledLaws):
        raise SettingError(
            f"plot.pattern(laws) expects a Projector or compiled laws; got {named(laws)}. Build one: Projector(laws, shape)."
        )
    found, rows_of = structure.pattern, structure.slices()
    row = found.row_of()
    # A mark is about as high as a row's share of the picture, but never invisible.
    mark = float(np.clip(260.0 / max(structure.rows, 1), 1.6, 8.0))
    with canvas.style():
        drawn = canvas.figure(_PIXELS, _DPI)
        drawn.set_layout_engine("constrained")
        axes = drawn.add_subplot()
        for i, (name, rows) in enumerate(rows_of.items()):
            here = (row >= rows.start) & (row < rows.stop)
            axes.plot(
                found.indices[here], row[here], linestyle="none", marker="s", markersize=mark, markeredgewidth=0,
                color=(*canvas.COLORS, "#000000")[i % 7],
                label=f"{name}: {plural(rows.stop - rows.start, 'row')}, {plural(int(here.sum()), 'non-zero')}",
            )  # fmt: skip
        axes.set(xlim=(-0.5, structure.unknowns - 0.5), ylim=(structure.rows - 0.5, -0.5), ylabel="row")
        axes.set_xlabel(f"unknown (field of {extents(structure.shape)}, flattened)")
        axes.set_title(f"{f'{title}: ' if title else ''}where the Jacobian can be non-zero")
        drawn.legend(loc="outside lower center", ncols=min(3, max(1, len(rows_of))), markerscale=4)
    return drawn
