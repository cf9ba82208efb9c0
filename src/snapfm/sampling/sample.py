"""sample: the public door of all samplers. Joins a velocity and a projector and knows the inside of neither.

May import flow, project and problems; nothing below imports it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from snapfm.errors import DtypeError, ParamsError, ShapeError
from snapfm.flow import evaluator
from snapfm.laws import Params
from snapfm.project import Projector
from snapfm.project.base import OnFailure
from snapfm.sampling.base import Sampler, Samples
from snapfm.sampling.flow import Flow
from snapfm.sampling.path import STRAIGHT, Path
from snapfm.sampling.pcfm import PCFM
from snapfm.sampling.task import Progress, Task, Velocity, home, noise_of
from snapfm.seeds import base_seed, stream


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
    on_failure: OnFailure = "raise",
    progress: Progress | None = None,
) -> Samples:
    """Draw `count` fields that obey the projector's laws, over `steps` uniform flow steps.

    Twenty steps gave PCFM its best scores over all tasks with the shipped models (docs/quality.md): fewer leave paths
    bent, and with more the noise that every step starts from is taken for evidence again and again.

    `sampler` is PCFM unless another is given; without a projector (None) it is the plain flow, from the same noise for the
    same generator; give `shape` unless the velocity has one. `times` replaces the uniform steps by flow times of your own,
    from 0 to 1. `path` says how noise and data are mixed: that of the velocity if it has one, else the straight path.
    Noise of sample i depends on the generator's seed and i alone; `first` is the number of the first sample drawn. Unconverged
    samples raise ProjectionFailed unless on_failure="keep", which returns them marked. `progress(done, total)` is called
    after every step.
    """
    field_shape = _field_shape(velocity, project, shape)
    _check(count, steps, first, dtype, on_failure)
    if hasattr(velocity, "of_samples"):  # a velocity with inputs of its own, a row for every sample of the run
        velocity = velocity.of_samples(first, count)
    device = home(velocity, dtype)[0]
    seed = base_seed(generator)
    streams = tuple(stream(seed, index) for index in range(first, first + count))
    task = Task(
        model=evaluator(velocity),  # our own networks are evaluated the quick way, others as they are
        projector=project,
        params=params,
        noise=noise_of(velocity, _noise(streams, field_shape)).to(device=device, dtype=dtype),
        times=_times(times, steps),
        path=path or getattr(velocity, "path", None) or STRAIGHT,
        streams=streams,
        progress=progress,
    )
    u, last = (sampler or (Flow() if project is None else PCFM())).run(task)
    if last is not None and on_failure == "raise":
        last.raise_for_status()
    return Samples(u, last, task.seconds, task.calls)


def _noise(streams: Sequence[torch.Generator], shape: tuple[int, ...]) -> Tensor:
    return torch.stack([torch.randn(shape, generator=stream, dtype=torch.float64) for stream in streams])


def _times(times: Sequence[float] | None, steps: int) -> tuple[float, ...]:
    if times is None:
        return tuple(step / steps for step in range(steps + 1))
    given = tuple(float(tau) for tau in times)
    rising = all(tau < later for tau, later in pairwise(given))
    if len(given) < 2 or given[0] != 0.0 or given[-1] != 1.0 or not rising:
        raise ParamsError(
            f"sample(times) expects flow times that rise from 0 to 1; got {_shortened(given)}. For steps of one length leave "
            "times out and give steps."
        )
    return given


def _shortened(times: tuple[float, ...]) -> str:
    return str(list(times)) if len(times) <= 6 else f"{list(times[:3])} … {list(times[-2:])}"


def _field_shape(velocity: Velocity, project: Projector | None, shape: tuple[int, ...] | None) -> tuple[int, ...]:
    if project is not None:
        if shape is not None and tuple(shape) != project.shape:
            raise ShapeError(
                f"sample(shape=…) expects the projector's shape {project.shape}; got {tuple(shape)}. Leave shape out: the "
                "projector knows it."
            )
        return project.shape
    found = shape if shape is not None else getattr(velocity, "shape", None)
    if found is None:
        raise ShapeError(
            "sample(velocity, None) expects the shape of one field; neither a projector nor velocity.shape gives it. Pass "
            "shape=(100, 100)."
        )
    return tuple(found)


def _check(count: int, steps: int, first: int, dtype: torch.dtype, on_failure: str) -> None:
    if not (isinstance(count, int) and isinstance(steps, int)) or count < 1 or steps < 1:
        raise ShapeError(
            f"sample(count, steps) expects whole numbers >= 1; got count={count}, steps={steps}. Ask for at least one of each."
        )
    if not isinstance(first, int) or first < 0:
        raise ParamsError(f"sample(first) expects the number of a sample, 0 or more; got {first}. The default is 0.")
    if dtype not in (torch.float32, torch.float64):
        raise DtypeError(f"sample(dtype) expects torch.float32 or torch.float64; got {dtype}. The default is float32.")
    if on_failure not in ("raise", "keep"):
        raise ParamsError(
            f"on_failure expects 'raise' or 'keep'; got {on_failure!r}. 'keep' returns unconverged samples, marked."
        )
