"""The violation of each law by each sample, on one logarithmic axis, before and after."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from snapfm.errors import SettingError
from snapfm.plot import canvas
from snapfm.project import Projection
from snapfm.project.judge import Judgement
from snapfm.sampling import Samples
from snapfm.solve.projection import dtype_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Judged: TypeAlias = Projection | Samples | Judgement | Mapping[str, Any]

_WIDTH, _ROW, _AROUND, _DPI = 1200, 90, 260, 150  # pixels
_BELOW = 10.0  # a violation of exactly zero is drawn this factor below all others
_LEAST = 1e-17  # of all drawn violations, if all are zero
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
    last = after.projection if isinstance(after, Samples) else after
    tolerance = last.tolerance if isinstance(last, Projection) else None
    rounded, kind = (_rounded(last), dtype_text(last.u)) if isinstance(last, Projection) else (None, "")
    positive = np.append(sizes[np.isfinite(sizes) & (sizes > 0)], [] if tolerance is None else tolerance)
    zero = float(positive.min()) / _BELOW if positive.size else _LEAST
    with canvas.style():
        drawn = canvas.figure((_WIDTH, _ROW * len(names) + _AROUND), _DPI)
        drawn.set_layout_engine("constrained")
        axes = drawn.add_subplot()
        for when in ("before", "after"):
            for place, name in enumerate(names):
                values = found.get(when, {}).get(name, np.zeros(0))
                shown, lost = np.maximum(values[np.isfinite(values)], zero), int((~np.isfinite(values)).sum())
                # Samples beside each other, so that equal ones can be told apart.
                height = place + (0.16 if when == "after" else -0.16) + np.linspace(-0.1, 0.1, len(shown))
                label = when if place == 0 and len(found) > 1 else None
                axes.plot(
                    shown, height, "o", color=_LOOKS[when], markersize=3.5, alpha=0.7, markeredgewidth=0, label=label
                )
                if lost:
                    axes.text(
                        1.0, place, f"{lost} not finite", transform=axes.get_yaxis_transform(), ha="right", va="center",
                        color=canvas.FAINT, fontsize=7.5,
                    )  # fmt: skip
        if bool((sizes == 0).any()):
            axes.text(zero, len(names) - 0.55, "exactly 0", ha="center", color=canvas.FAINT, fontsize=7.5)
        if tolerance is not None:
            axes.axvline(tolerance, color=canvas.FAINT, linestyle=(0, (4, 3)), linewidth=1.0, label="tolerance")
        if rounded is not None:
            axes.axvline(
                rounded,
                color=canvas.FAINT,
                linestyle=":",
                linewidth=1.2,
                label=f"tolerance + rounding to {kind}",
            )
        axes.set(xscale="log", xlabel="violation, in the law's own units", ylim=(len(names) - 0.5, -0.5))
        axes.set_yticks(range(len(names)), names)
        axes.grid(True, axis="x", color=canvas.FAINT, linewidth=0.5, alpha=0.3)
        handles, labels = axes.get_legend_handles_labels()
        if handles:
            drawn.legend(handles, labels, loc="outside upper right", ncols=len(labels))
    return drawn


def _rounded(last: Projection) -> float | None:
    """Return the largest violation that rounding explains, if it is visibly more than the tolerance."""
    rounding = float(last.rounding.nan_to_num(0.0).max()) if len(last.rounding) else 0.0
    return last.tolerance + rounding if rounding > last.tolerance else None


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
