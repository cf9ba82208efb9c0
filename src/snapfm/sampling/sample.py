"""sample: the public entry point of all samplers. Joins a velocity and a projector without knowing how either works.

A run is drawn in batches, each a Task of its own; sample i depends on the seed and i alone, so that batches can be joined.

Nothing below imports it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor

from snapfm.compile import CompiledLaws
from snapfm.laws import Params
from snapfm.project import Projection, Projector
from snapfm.sampling import checks
from snapfm.sampling.conditional.sampler import Conditional
from snapfm.sampling.conditional.spread import own_spread
from snapfm.sampling.flow import Flow
from snapfm.sampling.path import Path
from snapfm.sampling.pcfm import PCFM
from snapfm.sampling.task import (
    Progress,
    Sampler,
    Samples,
    Task,
    Velocity,
    device_and_dtype,
    fast,
    noise_of,
    white_noise,
)
from snapfm.seeds import base_seed, stream
from snapfm.solve.base import OnFailure
from snapfm.solve.projection import tensors, with_tensors

_FIELDS = ("u",)


def sample(
    velocity: Velocity,
    project: Projector | None,
    params: Params | None = None,
    count: int = 32,
    steps: int = 20,
    generator: torch.Generator | None = None,
    *,
    sampler: Sampler | None = None,
    shape: tuple[int, ...] | None = None,
    dtype: torch.dtype = torch.float32,
    times: Sequence[float] | None = None,
    path: Path | None = None,
    first: int = 0,
    batch: int | None = None,
    seed: int | None = None,
    on_failure: OnFailure = "raise",
    progress: Progress | bool | None = None,
) -> Samples:
    """Draw `count` fields that obey the projector's laws, in `steps` flow steps; `Samples.u` is (count, *shape).

    `velocity(u, tau)` is your model: any callable or nn.Module that takes fields (b, *shape) and flow time, from 0 (noise) to 1
    (data), and returns velocities (b, *shape). `params` are those of the laws: (count, …) each, or (1, …) if shared. Steps are
    uniform in flow time unless the sampler has its own; `times` replaces them by your own, from 0 to 1. Twenty gave PCFM its best
    scores over all tasks with the law-aware models (docs/quality.md). Fewer leave paths curved; with more, the noise of every
    step is treated as evidence too often.

    `sampler` defaults to Conditional for a velocity that has a `spread`, as the shipped plain models do, and to PCFM
    for others. Without a projector (None) it is the plain flow, from the same noise for the same generator; `shape`, that of ONE
    field, is then needed unless the velocity has one. `path` says how noise and data are mixed; the default is the path of the
    velocity, or the straight path if it has none.
    The noise of sample i depends only on the generator's seed and i; `first` is the number of the first sample drawn. `seed`
    is a number in place of a generator. `batch` samples are drawn at a time, all of them by default: memory beyond the result is
    that of one batch. Networks round differently in batches of another size, so last bits depend on it.
    Samples whose last projection does not converge raise ProjectionFailed unless on_failure="keep", which returns them marked;
    projections of earlier steps are not certified. `progress=True` shows a bar on stderr; a function progress(done, total) is
    called after every step.
    """
    checks.check_velocity(velocity)
    checks.check_project(project)
    count, steps = checks.check_counts(count, steps)
    checks.check_plain(first=first, seed=seed, batch=batch, dtype=dtype, on_failure=on_failure)
    checks.check_conditions(params, project, count)
    generator = checks.generator_of(generator, seed)
    checks.check_sampler(sampler)
    checks.check_progress(progress)
    chosen_path = checks.path_of(path, velocity)
    field_shape = checks.shape_of(velocity, project, shape)
    chosen = sampler or default_sampler(velocity, project)
    visited = checks.times_of(times, steps)
    if times is None and hasattr(chosen, "times"):
        visited = chosen.times(steps, chosen_path, velocity, field_shape)
    base = base_seed(generator)
    size = count if batch is None else min(int(batch), count)
    starts, each = range(0, count, size), len(visited) - 1
    gathered = _Gathered(count)
    # A velocity with its own inputs has one row of them for every sample of the run.
    of_samples = getattr(velocity, "of_samples", lambda start, count: velocity)
    model = fast(velocity)
    with progress_bar(progress, len(starts) * each) as report:
        for number, start in enumerate(starts):
            began, some = time.perf_counter(), min(size, count - start)
            numbers = range(int(first) + start, int(first) + start + some)
            own = of_samples(numbers[0], some)
            streams = tuple(stream(base, index) for index in numbers)
            task = Task(
                model=model if own is velocity else fast(own),
                projector=project,
                params=params if some == count else _rows_of(params, start, some),
                noise=noise_of(own, white_noise(streams, field_shape)).to(
                    device=device_and_dtype(own, dtype)[0], dtype=dtype
                ),
                times=visited,
                path=chosen_path,
                streams=streams,
                progress=partial(_after, report, number * each, len(starts) * each) if report else None,
            )
            u, last = chosen.run(task)
            if last is not None and on_failure == "raise":
                last.raise_for_status(start)
            gathered.add(start, u, last, task, time.perf_counter() - began)
    return gathered.samples()


def _rows_of(params: Params | None, start: int, count: int) -> Params | None:
    """Return the params of samples start .. start + count − 1 of a run; one row for all stays as it is."""
    if params is None:
        return None
    return {name: value if len(value) == 1 else value[start : start + count] for name, value in params.items()}


class _Gathered:
    """The batches of a run, joined into one result whose memory is allocated once."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._whole: dict[tuple[str, ...], Tensor] = {}
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

    def _keep(self, start: int, path: tuple[str, ...], value: Tensor) -> None:
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


def default_sampler(velocity: Velocity, project: Projector | None) -> Sampler:
    """Return the sampler of a run that names none: Conditional for a model that knows how its fields vary, else PCFM.

    Conditional linearizes laws, which matrix-free ones and a user's own projector do not allow.
    """
    if project is None:
        return Flow()
    linear = isinstance(project, Projector) and isinstance(project.structure, CompiledLaws)
    return Conditional() if linear and own_spread(velocity) is not None else PCFM()


def _after(report: Progress, before: int, total: int, done: int, _: int) -> None:
    report(before + done, total)


@contextmanager
def progress_bar(progress: Progress | bool | None, steps: int) -> Iterator[Progress | None]:
    """Yield the function that is called after every step: one that shows a bar on stderr if `progress` is True."""
    if progress is not True:
        yield None if progress is False else progress
        return
    from rich.console import Console  # loaded only if a bar is shown
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("sampling"), BarColumn(), MofNCompleteColumn(), TextColumn("steps"))
    # A separate console: it is not shared with a run in another thread or with a display of the caller.
    with Bars(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=Console(stderr=True)) as bars:
        line = bars.add_task("sampling", total=steps)
        yield lambda done, total: bars.update(line, completed=done, total=total)
