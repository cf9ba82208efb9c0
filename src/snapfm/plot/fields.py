"""Fields before and after, and mean and spread of many: curves, planes or slices, by the number of their axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from snapfm.errors import ShapeError
from snapfm.plot import canvas
from snapfm.plot.views import Fields, Views, batch_of, views_of, with_channels
from snapfm.project.checks import is_whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Moments: TypeAlias = Mapping[str, NDArray[Any]]  # "mean" and "spread", (*shape)

_AFTER, _BEFORE, _TRUTH = canvas.COLORS[0], canvas.COLORS[1], "#111111"
_SHOWN = 4  # fields that are shown unless the caller says how many
_ROOM = 1.5  # spread scales end at this multiple of the largest true spread
_CURVE_COLUMN, _CURVE_ROW, _MARGIN, _DPI = 420, 330, 90, 150  # pixels of a panel of curves, and around all of them


def fields(
    after: Fields, before: Fields | None = None, *, count: int | None = None, channels: int | None = None,
    dims: Sequence[str] | None = None,
) -> Figure:  # fmt: skip
    """Draw the first `count` fields of a batch, four or one if in slices, and below them what they were before and the change.

    `after` and `before` are tensors or arrays (b, *shape), or results. A field of one axis is drawn as a curve, of two as an
    image, first axis upwards, of more as slices along the last axis. `channels` is the axis of ONE field that holds components:
    each has rows, and a scale, of its own. `dims` names the other axes.
    """
    call = "plot.fields"
    last = with_channels(batch_of(after, call), channels, call)
    first = None if before is None else with_channels(batch_of(before, call), channels, call)
    if first is not None and first.shape != last.shape:
        raise ShapeError(
            f"{call}(after, before) expects two batches of one shape; got {last.shape} and {first.shape}. Pass the fields that "
            "went into the projection, and those that came out."
        )
    if count is not None and not (is_whole(count) and count >= 1):
        raise ShapeError(
            f"{call}(count) expects how many fields to draw, a whole number >= 1; got {count!r}. Leave it out."
        )
    views = views_of(last.shape[2:], dims, call)
    sliced = len(views.titles) > 1
    shown = min(len(last), (1 if sliced else _SHOWN) if count is None else count)
    last, first = last[:shown], None if first is None else first[:shown]
    with canvas.style():
        if views.curves:
            return _curves(last, first, views)
        rows: list[canvas.Row] = []
        for channel in range(last.shape[1]):
            now, then = last[:, channel], None if first is None else first[:, channel]
            scale = canvas.scale(now if then is None else np.stack((then, now)))
            states = {"": (now, scale)} if then is None else {
                "before": (then, scale), "after": (now, scale), "change": (now - then, canvas.around_zero(now - then)),
            }  # fmt: skip
            name = f"component {channel}" if last.shape[1] > 1 else ""
            # Samples side by side, or one below the other if each is a row of slices.
            for some in [[sample] for sample in range(shown)] if sliced else [list(range(shown))]:
                whose = f"sample {some[0]}" if sliced and shown > 1 else ""
                for what, (values, colors) in states.items():
                    planes = [plane for sample in some for plane in views.planes(values[sample])]
                    rows.append((_joined(name, whose, what), planes, colors))
        titles = views.titles if sliced else [f"sample {sample}" for sample in range(shown)]
        return canvas.image_figure(titles, rows, views.names)


def spread(
    samples: Fields, truth: Fields | None = None, *, channels: int | None = None, dims: Sequence[str] | None = None
) -> Figure:
    """Draw mean and standard deviation of samples at every point, beside those of true fields if there are any.

    Fields, `channels` and `dims` are as in `fields`. Truth, if given, sets the scales.
    """
    call = "plot.spread"
    given = ({} if truth is None else {"truth": truth}) | {"samples": samples}
    batches = {name: with_channels(batch_of(value, call), channels, call) for name, value in given.items()}
    shapes = {batch.shape[1:] for batch in batches.values()}
    if len(shapes) > 1:
        raise ShapeError(
            f"{call}(samples, truth) expects fields of one shape; got {' and '.join(map(str, shapes))}. Bring them to one "
            "grid; their numbers may differ."
        )
    (shape,) = shapes
    views = views_of(shape[1:], dims, call)
    parts = [
        (f"component {channel}" if shape[0] > 1 else "",
         [(name, {"mean": batch[:, channel].mean(0), "spread": batch[:, channel].std(0)}) for name, batch in batches.items()])
        for channel in range(shape[0])
    ]  # fmt: skip
    with canvas.style():
        return _bands(parts, views) if views.curves else moments_figure(parts, views)


def moments_figure(
    parts: Sequence[tuple[str, Sequence[tuple[str, Moments | str]]]], views: Views, extent: canvas.Extent | None = None
) -> Figure:
    """Draw mean and spread of some columns, one below the other for each part; the first column with fields sets the scales.

    A part has a name, which may be empty; a column has a title, and moments or a text that stands for them. Inside canvas.style.
    """
    rows: list[canvas.Row] = []
    for name, columns in parts:
        known = next(one for _, one in columns if not isinstance(one, str))
        widest = {"cmap": canvas.SEQUENTIAL, "vmin": 0.0, "vmax": _ROOM * float(np.nanmax(known["spread"])) or 1.0}
        for kind, colors in (("mean", canvas.scale(known["mean"])), ("spread", widest)):
            planes = [plane for _, one in columns for plane in _planes(one, kind, views)]
            rows.append((_joined(name, kind), planes, colors))
    titles = [_joined(title, what) for title, _ in parts[0][1] for what in views.titles]
    return canvas.image_figure(titles, rows, views.names, extent)


def _planes(moments: Moments | str, kind: str, views: Views) -> Sequence[NDArray[Any] | str]:
    if isinstance(moments, str):
        return [moments] * len(views.titles)
    return views.planes(moments[kind]) if np.isfinite(moments[kind]).any() else ["not finite"] * len(views.titles)


def _curves(last: NDArray[Any], first: NDArray[Any] | None, views: Views) -> Figure:
    """Draw fields of one axis: a panel for each sample and component."""
    drawn, panels = _panels(last.shape[1], len(last), [f"sample {i}" for i in range(len(last))], views.dims[0])
    for channel, row in enumerate(panels):
        for sample, axes in enumerate(row):
            if first is not None:
                axes.plot(first[sample, channel], color=_BEFORE, linewidth=1.2, label="before")
            axes.plot(last[sample, channel], color=_AFTER, linewidth=1.4, label="after")
    if first is not None:
        canvas.legend(drawn, panels[0][0])
    return drawn


def _bands(parts: Sequence[tuple[str, Sequence[tuple[str, Moments]]]], views: Views) -> Figure:
    """Draw means of fields of one axis as lines, and one standard deviation around them as bands."""
    drawn, panels = _panels(len(parts), 1, [""], views.dims[0])
    for (name, columns), (axes,) in zip(parts, panels):
        for title, moments in columns:
            color = _TRUTH if title == "truth" else _AFTER
            mean, around = moments["mean"], moments["spread"]
            axes.fill_between(range(len(mean)), mean - around, mean + around, color=color, alpha=0.18, linewidth=0)
            axes.plot(mean, color=color, linewidth=1.4, label=f"{title}: mean ± standard deviation")
        axes.set_ylabel(name)
    canvas.legend(drawn, panels[0][0])
    return drawn


def _panels(rows: int, columns: int, titles: Sequence[str], across: str) -> tuple[Figure, list[list[Axes]]]:
    """Make a grid of axes for curves."""
    wide = _CURVE_COLUMN if columns > 1 else 2 * _CURVE_COLUMN
    pixels = (wide * columns + _MARGIN, _CURVE_ROW * rows + _MARGIN)
    drawn, grid = canvas.charts(pixels, _DPI, rows, columns)
    for title, axes in zip(titles, grid[0]):
        axes.set_title(title, color=canvas.FAINT)
    for axes in grid[-1]:
        axes.set_xlabel(across)
    return drawn, grid


def _joined(*parts: str) -> str:
    return ", ".join(part for part in parts if part)
