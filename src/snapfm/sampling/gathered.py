"""Gathered: the batches of a run, joined into one result whose memory is allocated once."""

from __future__ import annotations

import torch
from torch import Tensor

from snapfm.laws import Params
from snapfm.project import Projection
from snapfm.sampling.task import Samples, Task
from snapfm.solve.projection import Path, tensors, with_tensors

_FIELDS = ("u",)


def rows_of(params: Params | None, start: int, count: int) -> Params | None:
    """Return the params of samples start .. start + count − 1 of a run; one row for all stays as it is."""
    if params is None:
        return None
    return {name: value if len(value) == 1 else value[start : start + count] for name, value in params.items()}


class Gathered:
    """What is known of the samples of a run so far."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._whole: dict[Path, Tensor] = {}
        self._projection: Projection | None = None
        self._seconds: dict[str, float] = {}
        self._calls = 0

    def add(self, start: int, u: Tensor, projection: Projection | None, task: Task, seconds: float) -> None:
        """Add the samples of a task, the first of which is number `start`; it took so many seconds in all."""
        self._keep(start, _FIELDS, u)
        if task.log_weights is not None:
            self._keep(start, ("log_weights",), task.log_weights)
        self._projection = projection
        if projection is not None and len(u) < self._count:
            for path, value in tensors(projection).items():
                if value is not u:  # the fields are kept once
                    self._keep(start, ("projection", *path), value)
        other = seconds - sum(task.seconds.values())
        for name, spent in {**task.seconds, "other": max(other, 0.0)}.items():
            self._seconds[name] = self._seconds.get(name, 0.0) + spent
        self._calls += task.calls

    def _keep(self, start: int, path: Path, value: Tensor) -> None:
        """Copy the values (b, …) of a batch to their place; those of a single batch are kept as they are."""
        if len(value) == self._count:
            self._whole[path] = value
            return
        whole = self._whole.get(path)
        if whole is None:
            whole = self._whole[path] = value.new_empty(self._count, *value.shape[1:])
        whole[start : start + len(value)] = value

    def samples(self) -> Samples:
        """Return the joined result."""
        logs = self._whole.get(("log_weights",))
        weights = None if logs is None else torch.softmax(logs, dim=0) * len(logs)
        return Samples(self._whole[_FIELDS], self._joined(), self._seconds, self._calls, weights)

    def _joined(self) -> Projection | None:
        """Return the projection of all samples, without a warm start if they came in batches."""
        if self._projection is None or len(self._projection.u) == self._count:
            return self._projection
        joined = {
            path: self._whole.get(("projection", *path), self._whole[_FIELDS]) for path in tensors(self._projection)
        }
        return with_tensors(self._projection, joined, warm=None)
