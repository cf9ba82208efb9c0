"""sample: the public door of all samplers. Joins a velocity and a projector and knows the inside of neither.

May import flow, project and problems; nothing below imports it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from snapfm.flow import evaluator
from snapfm.laws import Params
from snapfm.project import Projector
from snapfm.project.base import OnFailure
from snapfm.sampling import door
from snapfm.sampling.bar import told
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
    progress: Progress | bool | None = None,
) -> Samples:
    """Draw `count` fields that obey the projector's laws, over `steps` uniform flow steps.

    Twenty steps gave PCFM its best scores over all tasks with the shipped models (docs/quality.md): fewer leave paths
    bent, and with more the noise that every step starts from is taken for evidence again and again.

    `sampler` is PCFM unless another is given; without a projector (None) it is the plain flow, from the same noise for the
    same generator; give `shape` unless the velocity has one. `times` replaces the uniform steps by flow times of your own,
    from 0 to 1. `path` says how noise and data are mixed: that of the velocity if it has one, else the straight path.
    Noise of sample i depends on the generator's seed and i alone; `first` is the number of the first sample drawn. Unconverged
    samples raise ProjectionFailed unless on_failure="keep", which returns them marked. `progress=True`
    shows a bar on stderr; a function progress(done, total) is called after every step.
    """
    door.check_velocity(velocity)
    door.check_project(project)
    count, steps, first = door.check_counts(count, steps, first)
    door.check_conditions(params, project, count)
    door.check_generator(generator)
    door.check_sampler(sampler)
    door.check_dtype(dtype)
    door.check_on_failure(on_failure)
    door.check_progress(progress)
    visited = door.times_of(times, steps)
    chosen_path = door.path_of(path, velocity, STRAIGHT)
    field_shape = door.shape_of(velocity, project, shape)
    if hasattr(velocity, "of_samples"):  # a velocity with inputs of its own, a row for every sample of the run
        velocity = velocity.of_samples(first, count)
    device = home(velocity, dtype)[0]
    seed = base_seed(generator)
    streams = tuple(stream(seed, index) for index in range(first, first + count))
    with told(progress, len(visited) - 1) as teller:
        task = Task(
            model=evaluator(velocity),  # our own networks are evaluated the quick way, others as they are
            projector=project,
            params=params,
            noise=noise_of(velocity, _noise(streams, field_shape)).to(device=device, dtype=dtype),
            times=visited,
            path=chosen_path,
            streams=streams,
            progress=teller,
        )
        u, last = (sampler or (Flow() if project is None else PCFM())).run(task)
    if last is not None and on_failure == "raise":
        last.raise_for_status()
    return Samples(u, last, task.seconds, task.calls)


def _noise(streams: Sequence[torch.Generator], shape: tuple[int, ...]) -> Tensor:
    return torch.stack([torch.randn(shape, generator=stream, dtype=torch.float64) for stream in streams])
