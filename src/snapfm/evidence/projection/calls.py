"""Cells that call a method on recorded inputs: projections, timed again and again, and convergence curves."""

from __future__ import annotations

import io
from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from snapfm.evidence.judge import lawful_and_nearest, measure
from snapfm.evidence.projection.methods import OURS
from snapfm.evidence.projection.record import Point, Turn
from snapfm.evidence.projection.stand import FIELDS, Stand
from snapfm.evidence.record import finite
from snapfm.flow.storage import write_file
from snapfm.project.base import Solution

_KEPT = 2  # samples whose fields are kept for pictures
_POINTS = 20_000  # of such a field at most: a picture shows no more, and records are kept with the code
_LIMIT = 12  # iterations of a curve: second-order methods converge long before, and the others have shown their slope


def projection(stand: Stand) -> dict[str, Any]:
    """Project every input, judge it and time it; cold and hot times apart, phases where the method can tell."""
    inputs, params = stand.inputs, stand.inputs.params

    def calling(u_hat: Tensor) -> Callable[[], object]:
        return lambda: stand.solver.run(u_hat, params, stand.tolerance)

    stand.first_call(calling(next(iter(inputs.fields.values()))))
    turns = []
    pictured, middle = inputs.middle()
    for label, u_hat in inputs.fields.items():
        stand.tell(f"judged call on {label}")
        began = perf_counter()
        solved = stand.solver.solve(u_hat, params, stand.tolerance)  # warms up as well
        judged = perf_counter() - began
        verdict = stand.verdict(u_hat, solved)
        if label == pictured and stand.job.method == OURS:
            _keep(stand, u_hat, stand.answers(solved).u, label)
        turns.append(Turn(label, stand.repeated(label, calling(u_hat), len(inputs.fields), judged), verdict))
    phases = getattr(stand.solver, "phases", None)
    if phases is None:
        return {"turns": tuple(turns)}
    stand.tell("phases")
    spent = phases(middle, params, stand.tolerance)
    return {"turns": tuple(turns), "phases": {name: float(value) for name, value in spent.items()}}


def curve(stand: Stand) -> dict[str, Any]:
    """Solve one input with more and more iterations until the judge confirms all samples; the median sample counts."""
    label, u_hat = stand.inputs.middle()
    params = stand.inputs.params
    limited: Callable[..., Solution] = stand.solver.limited  # type: ignore[attr-defined]  # methods with a curve have it
    stand.first_call(lambda: stand.solver.run(u_hat, params, stand.tolerance))
    points = []
    for iterations in range(_LIMIT + 1):

        def call(iterations: int = iterations) -> Solution:
            return limited(u_hat, params, stand.tolerance, iterations)

        stand.tell(f"{iterations} iterations on {label}")
        answers = stand.answers(call())
        sizes = measure(stand.projector.laws, u_hat, answers.u, answers.multipliers, params)
        seconds = median(stand.repeated(f"{label} with {iterations} iterations", call, _LIMIT + 1))
        points.append(Point(iterations, seconds, finite(sizes.violation.median()), finite(sizes.nearness.median())))
        if bool(lawful_and_nearest(sizes, stand.tolerance)[1].all()):
            break
    return {"curve": tuple(points)}


def _keep(stand: Stand, before: Tensor, after: Tensor, label: str) -> None:
    packed = io.BytesIO()
    np.savez_compressed(
        packed,
        allow_pickle=False,
        before=thinned(before[:_KEPT].numpy().astype(np.float32)),
        after=thinned(after[:_KEPT].numpy().astype(np.float32)),
        axes=np.array([axis.name for axis in stand.problem.grid.axes]),
        input=np.array(label),
    )
    write_file(stand.job.folder / FIELDS, packed.getvalue())


def thinned(fields: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Leave out points of large fields (b, *shape), evenly along every axis; both ends stay."""
    share = (_POINTS / max(_POINTS, fields[0].size)) ** (1 / (fields.ndim - 1))
    for axis, size in enumerate(fields.shape[1:], start=1):
        place = np.linspace(0, size - 1, max(2, int(share * size))) if share < 1 else np.arange(size)
        fields = fields.take(place.round().astype(np.int64), axis)
    return fields
