"""Fields before and after, and mean and spread of many: curves, planes or slices, by the number of their axes.

A field of one axis is a curve. Of two axes it is a plane, the first axis upwards: (x, t) has time to the right. Of more, planes
of the first two axes (y upwards) are cut out at some places of the last one, and in the middle of those between.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from snapfm.errors import ShapeError
from snapfm.laws.checks import is_whole
from snapfm.plot import canvas
from snapfm.project import Projection
from snapfm.sampling import Samples

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Fields: TypeAlias = Projection | Samples | torch.Tensor | NDArray[Any]
Moments: TypeAlias = Mapping[str, NDArray[Any]]  # "mean" and "spread", (*shape)

_AFTER, _BEFORE, _TRUTH = canvas.COLORS[0], canvas.COLORS[1], "#111111"
SLICES = 4  # planes that are cut out of a field
_SHOWN = 4  # fields that are shown unless the caller says how many
_ROOM = 1.5  # spread scales end at this multiple of the largest true spread
_CURVE_COLUMN, _CURVE_ROW, _MARGIN, _DPI = 420, 330, 90, 150  # pixels of a panel of curves, and around all of them


@dataclass(frozen=True)
class Views:
    """How fields with these axes, that of components left out, are shown; `slices` planes of three axes or more."""

    dims: tuple[str, ...]
    shape: tuple[int, ...]
    slices: int = SLICES  # one is that at the end of the last axis

    @property
    def curves(self) -> bool:
        """Whether fields are curves rather than planes."""
        return len(self.shape) == 1

    @property
    def names(self) -> tuple[str, str]:
        """The names of the axes of a plane, across and up."""
        return (self.dims[1], self.dims[0]) if len(self.shape) == 2 else (self.dims[0], self.dims[1])

    @property
    def titles(self) -> list[str]:
        """What each plane of a field shows; an empty text if there is but one."""
        if len(self.shape) <= 2 or self.slices == 1:
            return [""]
        middle = [f"{name} = {extent // 2}" for name, extent in zip(self.dims[2:-1], self.shape[2:-1])]
        return [", ".join([*middle, f"{self.dims[-1]} = {place}"]) for place in self._places]

    def planes(self, field: NDArray[Any]) -> list[NDArray[Any]]:
        """Cut the planes out of one field, first axis upwards."""
        if len(self.shape) <= 2:
            return [field]
        for extent in self.shape[2:-1]:
            field = field[:, :, extent // 2]
        return [field[:, :, place].T for place in self._places]

    @property
    def _places(self) -> list[int]:
        last = self.shape[-1]
        if self.slices == 1:
            return [last - 1]
        return sorted({round(place) for place in np.linspace(0, last - 1, min(self.slices, last)).tolist()})


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
    last = _with_channels(_batch(after, call), channels, call)
    first = None if before is None else _with_channels(_batch(before, call), channels, call)
    if first is not None and first.shape != last.shape:
        raise ShapeError(
            f"{call}(after, before) expects two batches of one shape; got {last.shape} and {first.shape}. Pass the fields that "
            "went into the projection, and those that came out."
        )
    if count is not None and not (is_whole(count) and count >= 1):
        raise ShapeError(
            f"{call}(count) expects how many fields to draw, a whole number >= 1; got {count!r}. Leave it out."
        )
    views = _views_of(last.shape[2:], dims, call)
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
    batches = {name: _with_channels(_batch(value, call), channels, call) for name, value in given.items()}
    shapes = {batch.shape[1:] for batch in batches.values()}
    if len(shapes) > 1:
        raise ShapeError(
            f"{call}(samples, truth) expects fields of one shape; got {' and '.join(map(str, shapes))}. Bring them to one "
            "grid; their numbers may differ."
        )
    (shape,) = shapes
    views = _views_of(shape[1:], dims, call)
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


def _batch(value: Fields, call: str) -> NDArray[Any]:
    """Return fields (b, *shape) as an array: those of a result, a tensor of any device, or an array."""
    found = value.u if isinstance(value, (Projection, Samples)) else value
    array = found.detach().cpu().numpy() if isinstance(found, torch.Tensor) else np.asarray(found)
    if array.ndim < 2 or not array.size or array.dtype.kind not in "iuf":
        raise ShapeError(
            f"{call} expects a batch of fields (b, *shape) of real numbers; got shape {array.shape}, {array.dtype}. Add the "
            "batch axis to one field: u[None]; show the parts of complex ones."
        )
    return array


def _with_channels(array: NDArray[Any], channels: int | None, call: str) -> NDArray[Any]:
    """Move the axis of ONE field that holds components behind the batch axis, (b, c, *shape); without one, c is 1."""
    axes = array.ndim - 1
    if channels is None:
        return array[:, None]
    if not is_whole(channels) or not -axes <= channels < axes or axes < 2:
        raise ShapeError(
            f"{call}(channels) expects the axis of ONE field that holds its components, from 0 to {axes - 1}; got {channels!r}. "
            "Leave it out for fields with one component."
        )
    return np.moveaxis(array, channels % axes + 1, 1)


def _views_of(shape: Sequence[int], dims: Sequence[str] | None, call: str) -> Views:
    """Return how fields of this shape are shown; `dims` names their axes, without that of components."""
    names = tuple(f"axis {place}" for place in range(len(shape))) if dims is None else tuple(dims)
    if len(names) != len(shape):
        raise ShapeError(
            f"{call}(dims) expects a name for each of {len(shape)} axes of a field; got {list(names)}. Leave out the batch axis "
            "and that of components."
        )
    return Views(names, tuple(shape))
