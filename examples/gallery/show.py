"""What the scripts of the gallery share: smooth random fields, the certificate in one line, and the picture.

A picture has three panels: one field before projection, the same field after it, and the largest violation of each law in the
batch before and after. It is written to the folder named on the command line, by default build/gallery.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

import snapfm

SCRIPTS = sorted(set(Path(__file__).parent.glob("[a-z]*.py")) - {Path(__file__)})
BEFORE, AFTER, FAINT = "#d1662c", "#2a6fb0", "#6b7280"
_LEAST = 1e-17  # where the logarithmic axis begins: an exact zero has no bar


def smooth(*shape: int, generator: torch.Generator, axes: tuple[int, ...] = (-1,), waves: float = 2.0) -> Tensor:
    """Draw smooth, periodic random fields of unit size: white noise whose short waves along `axes` are filtered out."""
    u = torch.randn(shape, generator=generator, dtype=torch.float64)
    for axis in axes:
        wave = torch.fft.fftfreq(shape[axis], 1 / shape[axis], dtype=torch.float64)
        spectrum = torch.fft.fft(u.movedim(axis, -1)) * torch.exp(-((wave / waves) ** 2))
        u = torch.fft.ifft(spectrum).real.movedim(-1, axis)
    return u / u.std()


def show(
    script: str,
    project: snapfm.Projector,
    u_hat: Tensor,
    params: dict[str, Tensor] | None,
    result: snapfm.Projection,
    draw: Callable[[Axes, Tensor], Any],
) -> None:
    """Print the certificate of a projected batch and save its picture; `draw(axes, u)` draws one field."""
    print(
        f"{int(result.converged.sum())} of {len(result.u)} samples certified; largest violation "
        f"{float(result.violation.max()):.1e}, largest stationarity {float(result.stationarity.max()):.1e}"
    )
    figure = Figure(figsize=(9.6, 3.0), dpi=140, layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    for axes, title, u in ((left, "before", u_hat[0]), (middle, "after", result.u[0])):
        axes.set_title(title, color=BEFORE if axes is left else AFTER, fontweight="bold")
        draw(axes, u)
    _violations(right, project.check(u_hat, params).by_law, result)
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "build/gallery")
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / f"{Path(script).stem}.png")


def _violations(axes: Axes, before: dict[str, Tensor], result: snapfm.Projection) -> None:
    """Draw the largest violation of each law before and after, on a logarithmic axis, with the tolerance."""
    names = list(before)
    for values, offset, color in ((before, -0.2, BEFORE), (result.by_law, 0.2, AFTER)):
        largest = [max(float(values[name].max()) - _LEAST, 0.0) for name in names]
        places = [place + offset for place in range(len(names))]
        axes.barh(places, largest, height=0.36, left=_LEAST, color=color)
    axes.axvline(result.tolerance, color=FAINT, linewidth=1, linestyle=(0, (3, 2)))
    axes.set_xscale("log")
    axes.set_xlim(_LEAST, 1e3)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(max(len(names), 3) - 0.5, -0.5)
    axes.set_title("largest violation", color=FAINT, fontweight="bold")
    axes.set_xlabel("dashed: tolerance", color=FAINT)
    axes.spines[["top", "right"]].set_visible(False)
