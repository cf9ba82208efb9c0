"""A projection cell: every input projected, judged, and projected again and again for the clock."""

from __future__ import annotations

import io
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from snapfm.bench.job import FIELDS
from snapfm.bench.methods import OURS
from snapfm.bench.record import Turn
from snapfm.bench.stand import Stand
from snapfm.flow.storage import write_file

Values = npt.NDArray[np.float32]

_KEPT = 2  # samples whose fields are kept for pictures
_POINTS = 20_000  # of such a field at most: a picture shows no more, and records are kept with the code


def projection(stand: Stand) -> dict[str, Any]:
    """Fill a record: cold and hot times apart, a verdict for each input, and phases where the method can tell."""
    inputs, params = stand.inputs, stand.inputs.params
    stand.first_call(_calling(stand, next(iter(inputs.fields.values()))))
    turns = []
    pictured, _ = inputs.middle()
    for label, u_hat in inputs.fields.items():
        stand.tell(f"judged call on {label}")
        began = perf_counter()
        solved = stand.solver.solve(u_hat, params, stand.tolerance)  # warms up as well
        judged = perf_counter() - began
        verdict = stand.verdict(u_hat, solved)
        if label == pictured and stand.job.method == OURS:
            _keep(stand, u_hat, stand.answers(solved).u, label)
        call = _calling(stand, u_hat)
        stand.warm_up(call, len(inputs.fields), judged)
        turns.append(Turn(label, stand.repeated(label, call, len(inputs.fields), judged), verdict))
    return {"turns": tuple(turns), "phases": _phases(stand)}


def _calling(stand: Stand, u_hat: Tensor) -> Callable[[], object]:
    return lambda: stand.solver.run(u_hat, stand.inputs.params, stand.tolerance)


def _phases(stand: Stand) -> dict[str, float]:
    phases = getattr(stand.solver, "phases", None)
    if phases is None:
        return {}
    stand.tell("phases")
    return {
        name: float(spent)
        for name, spent in phases(stand.inputs.middle()[1], stand.inputs.params, stand.tolerance).items()
    }


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


def thinned(fields: Values) -> Values:
    """Leave out points of large fields (b, *shape), evenly along every axis; both ends stay."""
    share = (_POINTS / max(_POINTS, fields[0].size)) ** (1 / (fields.ndim - 1))
    for axis, size in enumerate(fields.shape[1:], start=1):
        place = np.linspace(0, size - 1, max(2, int(share * size))) if share < 1 else np.arange(size)
        fields = fields.take(place.round().astype(np.int64), axis)
    return fields
