"""Pictures of laws: the violation of each by each sample, before and after, and which unknowns their rows read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from snapfm.compile import CompiledLaws
from snapfm.errors import SettingError
from snapfm.laws.checks import named
from snapfm.plot import canvas
from snapfm.project import Projection, Projector
from snapfm.project.judge import Judgement
from snapfm.sampling import Samples
from snapfm.solve.projection import dtype_text
from snapfm.text import extents, plural

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Judged: TypeAlias = Projection | Samples | Judgement | Mapping[str, Any]

_WIDTH, _ROW, _AROUND, _DPI = 1200, 90, 260, 150  # pixels of a picture of violations
_PATTERN = (1500, 750)  # pixels of a picture of a pattern
_BELOW = 10.0  # a violation of exactly zero is drawn this factor below all others
_LEAST = 1e-17  # of all drawn violations, if all are zero
_DOT: dict[str, Any] = {"markersize": 3.5, "markeredgewidth": 0}
_LOOKS = {"before": canvas.COLORS[1], "after": canvas.COLORS[0]}


def violation(after: Judged, before: Judged | None = None) -> Figure:
    """Draw the violation of every law by every sample as dots; dashed is the tolerance, dotted what rounding adds to it.

    `after` and `before` are projections, samples, or what `project.check(u, params)` returns, or mappings from names of laws to
    violations (b,). Exact zeros are drawn at the left, apart from the scale.
    """
    given = {"after": after} | ({} if before is None else {"before": before})
    found = {when: _by_law(one) for when, one in given.items()}
    names = list(dict.fromkeys(name for laws in found.values() for name in laws))
    sizes = np.concatenate([np.zeros(0), *(values for laws in found.values() for values in laws.values())])
    limits = _limits(after.projection if isinstance(after, Samples) else after)
    positive = np.append(sizes[np.isfinite(sizes) & (sizes > 0)], [where for where, *_ in limits.values()])
    zero = float(positive.min()) / _BELOW if positive.size else _LEAST
    with canvas.style():
        drawn, ((axes,),) = canvas.charts((_WIDTH, _ROW * len(names) + _AROUND), _DPI)
        for when in ("before", "after"):
            shift = 0.16 if when == "after" else -0.16
            for place, name in enumerate(names):
                values = found.get(when, {}).get(name, np.zeros(0))
                shown, lost = np.maximum(values[np.isfinite(values)], zero), int((~np.isfinite(values)).sum())
                # Samples beside each other, so that equal ones can be told apart.
                height = place + shift + np.linspace(-0.1, 0.1, len(shown))
                label = when if place == 0 and len(found) > 1 else None
                axes.plot(shown, height, "o", color=_LOOKS[when], alpha=0.7, label=label, **_DOT)
                if lost:
                    beside: dict[str, Any] = {"transform": axes.get_yaxis_transform(), "ha": "right", "va": "center"}
                    axes.text(1.0, place, f"{lost} not finite", color=canvas.FAINT, fontsize=7.5, **beside)
        if bool((sizes == 0).any()):
            axes.text(zero, len(names) - 0.55, "exactly 0", ha="center", color=canvas.FAINT, fontsize=7.5)
        for label, (where, dashes, width) in limits.items():
            axes.axvline(where, color=canvas.FAINT, linestyle=dashes, linewidth=width, label=label)
        axes.set(xscale="log", xlabel="violation, in the law's own units", ylim=(len(names) - 0.5, -0.5))
        axes.set_yticks(range(len(names)), names)
        axes.grid(True, axis="x", color=canvas.FAINT, linewidth=0.5, alpha=0.3)
        canvas.legend(drawn, axes)
    return drawn


def _limits(last: object) -> dict[str, tuple[float, Any, float]]:
    """Return where a projection has its tolerance and, if that is visibly more, what rounding adds to it; dashes and width."""
    if not isinstance(last, Projection):
        return {}
    if isinstance(last.tolerance, dict):
        return {f"tolerance of {name}": (one, (0, (4, 3)), 1.0) for name, one in last.tolerance.items()}
    limits: dict[str, tuple[float, Any, float]] = {"tolerance": (last.tolerance, (0, (4, 3)), 1.0)}
    rounding = float(last.rounding.nan_to_num(0.0).max()) if len(last.rounding) else 0.0
    if rounding > last.tolerance:
        limits[f"tolerance + rounding to {dtype_text(last.u)}"] = (last.tolerance + rounding, ":", 1.2)
    return limits


def _by_law(one: Judged) -> dict[str, NDArray[np.float64]]:
    found: Any = one.projection if isinstance(one, Samples) else one
    laws = getattr(found, "by_law", found)
    if not isinstance(laws, Mapping) or not laws:
        came = "samples without a certificate" if isinstance(one, Samples) else type(one).__name__
        raise SettingError(
            f"plot.violation(after, before) expects results with violations by law; got {came}. Pass a Projection, Samples drawn "
            "with a projector, or project.check(u, params)."
        )
    return {name: np.atleast_1d(torch.as_tensor(value).detach().cpu().double().numpy()) for name, value in laws.items()}


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
        drawn, ((axes,),) = canvas.charts(_PATTERN, _DPI)
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
