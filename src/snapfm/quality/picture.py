"""The pictures of a task: mean fields in one row, spread fields in another, truth first, every sampler beside it.

All of a row share one color scale, set by the truth, so that a sampler that blew up does not blank the others. Fields with two
space axes are shown at their last time. Reads arrays only: it samples nothing and judges nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from snapfm.demo import canvas
from snapfm.demo.canvas import COLOR_MAP, FAINT
from snapfm.grid import Grid

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_DPI = 200  # on the page a picture is shown at half its pixels
_COLUMN, _SQUARE = 236, 196  # pixels of one panel and its gap; of the panel alone
_LEFT, _RIGHT, _TOP, _BOTTOM, _BETWEEN = 130, 150, 60, 62, 34
_SPREAD_ROOM = 1.5  # spread scales end at this multiple of the largest true spread
_SEQUENTIAL = "viridis"
_ROWS = {"mean": "mean", "spread": "spread"}


@dataclass(frozen=True)
class Pictured:
    """One column: its title and its mean and spread (*shape), or the words that stand in their place."""

    title: str
    moments: Mapping[str, NDArray[np.float32]] | None
    instead: str = ""


def pictured_task(columns: Sequence[Pictured], grid: Grid) -> bytes:
    """Draw all columns as PNG bytes; the first one is the truth and sets the scales."""
    truth = columns[0].moments
    assert truth is not None  # the truth is always there
    width = _LEFT + _COLUMN * len(columns) + _RIGHT
    height = _TOP + 2 * _SQUARE + _BETWEEN + _BOTTOM
    with canvas.style():
        figure = canvas.figure((width, height), _DPI)
        for row, (name, label) in enumerate(_ROWS.items()):
            scale = _scale(name, truth[name])
            bottom = _BOTTOM + (1 - row) * (_SQUARE + _BETWEEN)
            for place, column in enumerate(columns):
                left = _LEFT + _COLUMN * place
                axes = figure.add_axes((left / width, bottom / height, _SQUARE / width, _SQUARE / height))
                image = _panel(axes, column, name, grid, scale)
                if row == 0:
                    axes.set_title(column.title, fontsize=8)
                _label(axes, grid, outer=place == 0, lower=row == 1)
                if place == 0:
                    axes.text(
                        -0.42, 0.5, label, transform=axes.transAxes, rotation=90, va="center", ha="center", fontsize=8.5
                    )
                    shown = image
            _bar(figure, shown, ((width - _RIGHT + 4) / width, bottom / height, 14 / width, _SQUARE / height))
        return canvas.png(figure)


def _scale(name: str, truth: NDArray[np.float32]) -> dict[str, Any]:
    low, high = float(truth.min()), float(truth.max())
    if name == "spread":
        return {"cmap": _SEQUENTIAL, "vmin": 0.0, "vmax": _SPREAD_ROOM * high}
    if low < -0.05 * high:  # fields of both signs: white at zero
        reach = max(-low, high)
        return {"cmap": COLOR_MAP, "vmin": -reach, "vmax": reach}
    return {"cmap": _SEQUENTIAL, "vmin": low, "vmax": high}


def _panel(axes: Axes, column: Pictured, name: str, grid: Grid, scale: dict[str, Any]) -> Any:
    if column.moments is None or not np.isfinite(column.moments[name]).any():
        words = column.instead if column.moments is None else "not finite"
        axes.text(0.5, 0.5, words, transform=axes.transAxes, ha="center", va="center", color=FAINT, fontsize=7.5)
        axes.set_facecolor("#f3f3f0")
        across, up = _axes(grid)
        axes.set_xlim(across.start, across.stop)
        axes.set_ylim(up.start, up.stop)
        image = None
    else:
        field = column.moments[name]
        shown = (
            field if field.ndim == 2 else field[..., -1].T
        )  # (x, t) as it is; of (x, y, t) the last state, y upwards
        across, up = _axes(grid)
        extent = (across.start, across.stop, up.start, up.stop)
        image = axes.imshow(shown, origin="lower", aspect="auto", extent=extent, interpolation="nearest", **scale)
    for spine in axes.spines.values():
        spine.set_visible(True)
    return image


def _axes(grid: Grid) -> tuple[Any, Any]:
    """Say which axis of the grid goes across and which up."""
    return (grid.axis("t"), grid.axis("x")) if len(grid.shape) == 2 else (grid.axis("x"), grid.axis("y"))


def _label(axes: Axes, grid: Grid, outer: bool, lower: bool) -> None:
    across, up = _axes(grid)
    axes.set_xticks([across.start, across.stop], [f"{across.start:g}", f"{across.stop:.3g}"] if lower else [])
    axes.set_yticks([up.start, up.stop], [f"{up.start:g}", f"{up.stop:.3g}"] if outer else [])
    axes.tick_params(labelsize=6.5, length=2)
    if lower:
        axes.set_xlabel(across.name, fontsize=7.5, labelpad=-6)
    if outer:
        axes.set_ylabel(up.name, fontsize=7.5, labelpad=-6)


def _bar(figure: Figure, image: Any, place: tuple[float, float, float, float]) -> None:
    bar = figure.colorbar(image, cax=figure.add_axes(place))
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=6.5, length=2)
    bar.ax.locator_params(nbins=4)
