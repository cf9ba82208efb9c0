"""Checks of the arguments of `sample`, before the network is called, and of how a model takes its first call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from snapfm.errors import DtypeError, ParamsError, SettingError, ShapeError, SnapfmError
from snapfm.laws import Law
from snapfm.laws.checks import Check, is_count, is_real, is_whole, named, or_none, signature_of, takes
from snapfm.project import Projector
from snapfm.project.checks import check_mapping, check_params, check_shape
from snapfm.sampling.path import STRAIGHT, Path
from snapfm.solve.projection import dtype_text
from snapfm.torch_internals import mixes_dtypes

_SEEDS = 2**64  # torch takes as many
_DTYPES = (torch.float32, torch.float64)
# Words in what torch says of tensors that do not fit each other.
_SHAPES = ("shape", "size", "dimension", "channels", "index")

# Arguments of which any wrong value is refused in one sentence.
_CHECKS = {
    "first": Check(lambda value: is_whole(value) and value >= 0, "the number of a sample, 0 or more", "The default is 0."),
    "seed": Check(
        lambda value: value is None or (is_whole(value) and 0 <= value < _SEEDS),
        "a whole number from 0 to 2**64 − 1", "Write seed=0.", SettingError,
    ),
    "batch": Check(
        or_none(is_count), "how many samples are drawn at a time, a whole number >= 1",
        "Leave it out to draw all at once.", SettingError,
    ),
    "dtype": Check(lambda value: value in _DTYPES, "torch.float32 or torch.float64", "The default is float32.", DtypeError),
    "on_failure": Check(
        lambda value: value in ("raise", "keep"), "'raise' or 'keep'", "'keep' returns unconverged samples, marked."
    ),
}  # fmt: skip
FLAG = Check(lambda value: isinstance(value, bool), "True or False", "Leave it out for the default.")  # of samplers


def check_plain(**arguments: Any) -> None:
    """Apply the checks of the table."""
    for name, value in arguments.items():
        _CHECKS[name].apply(name if name == "on_failure" else f"sample({name})", value)


def check_velocity(velocity: Any) -> None:
    """Accept anything that can be called as velocity(u, tau)."""
    kind, function = type(velocity).__name__, velocity.forward if isinstance(velocity, nn.Module) else velocity
    if isinstance(velocity, Projector):
        wrong = "a Projector. The velocity comes first: sample(velocity, project)."
    elif isinstance(velocity, str):
        wrong = f"the text {velocity!r}. Load a shipped model: snapfm_bench.flow.shipped({velocity!r})."
    elif not callable(velocity) and callable(getattr(velocity, "network", None)):
        wrong = f"a {kind}. Pass its network: {kind.lower()}.network."
    elif isinstance(velocity, type) or not callable(velocity):
        wrong = f"{named(velocity)}. Pass the trained network itself, or a function of (u, tau)."
    elif not takes(function, 2):
        wrong = (
            f"one that takes {signature_of(function)}. Adapt it: snapfm.adapters.conditioned for a model with more inputs, "
            "joined for one with time among them, or a function of (u, tau) around it."
        )
    else:
        return
    raise SettingError(f"sample(velocity) expects a model to call as velocity(u, tau); got {wrong}")


def check_project(project: Any) -> None:
    """Accept a projector, None, or a user's own: callable, with the shape of one field."""
    came, cure = named(project), "Build one: snapfm.Projector(laws, shape, params)."
    if project is None or isinstance(project, Projector):
        return
    if isinstance(project, Law):
        came = "a law"
    elif isinstance(project, (list, tuple)) and any(isinstance(one, Law) for one in project):
        came = "a list of laws"
    elif isinstance(project, Mapping):
        cure = "Params come third: sample(velocity, project, params)."
    elif (
        callable(project)
        and not isinstance(project, type)
        and isinstance(getattr(project, "shape", None), (tuple, list))
    ):
        return
    raise SettingError(f"sample(project) expects a Projector, or None for the plain flow; got {came}. {cure}")


def check_conditions(params: Any, project: Projector | None, count: int) -> None:
    """Accept params that the projector's laws can be evaluated with for `count` samples."""
    check_mapping(params)
    if isinstance(project, Projector):
        check_params(params, project.example, count)


def check_counts(count: Any, steps: Any) -> tuple[int, int]:
    """Accept numbers of samples and steps, at least one of each."""
    if not (is_count(count) and is_count(steps)):
        raise ShapeError(
            f"sample(count, steps) expects whole numbers >= 1; got count={count!r}, steps={steps!r}. Ask for at least one of "
            "each."
        )
    return int(count), int(steps)


def generator_of(generator: Any, seed: Any) -> torch.Generator | None:
    """Return the generator of a run: the one given, one with the seed given, or None for torch's own."""
    if seed is not None:
        if generator is not None:
            raise SettingError(
                "sample(generator, seed) expects one of the two; got both. Leave generator out: a seed makes one."
            )
        return torch.Generator().manual_seed(int(seed))
    if generator is None or isinstance(generator, torch.Generator):
        return generator
    came, write = named(generator), "generator=torch.Generator().manual_seed(0), or seed=0"
    if is_whole(generator):
        came, write = f"the number {generator}", f"seed={int(generator)}"
    elif isinstance(generator, np.random.Generator):
        came = "a Generator of numpy"
    raise SettingError(
        f"sample(generator) expects a torch.Generator, or None for torch's own; got {came}. Write {write}."
    )


def check_sampler(sampler: Any) -> None:
    """Accept a sampler with its settings, or None."""
    if sampler is None or (not isinstance(sampler, type) and callable(getattr(sampler, "run", None))):
        return
    from snapfm.sampling import SAMPLERS  # they import this module

    known = list(SAMPLERS)
    asked = sampler if isinstance(sampler, str) else sampler.__name__ if isinstance(sampler, type) else ""
    meant = next((name for name in known if name.lower() == asked.lower()), known[0])
    came = f"the text {sampler!r}" if isinstance(sampler, str) else named(sampler)
    raise SettingError(
        f"sample(sampler) expects a sampler with its settings, one of {', '.join(f'{name}(…)' for name in known)} of "
        f"snapfm.sampling; got {came}. Write sampler=snapfm.sampling.{meant}()."
    )


def check_progress(progress: Any) -> None:
    """Accept True, False, None, or a function of steps done and steps in all."""
    if progress is None or isinstance(progress, bool):
        return
    if isinstance(progress, type) or not callable(progress):
        wrong = f"{named(progress)}. Write progress=True."
    elif not takes(progress, 2):
        wrong = f"one that takes {signature_of(progress)}. Write progress=lambda done, total: ..., or progress=True."
    else:
        return
    raise SettingError(f"sample(progress) expects True for a bar, or a function progress(done, total); got {wrong}")


def path_of(path: Any, velocity: Any) -> Path:
    """Return the path asked for, else that of the velocity, else the straight one."""
    if path is None:
        own = getattr(velocity, "path", None)
        return own if isinstance(own, Path) else STRAIGHT
    if not isinstance(path, Path):
        raise SettingError(
            f"sample(path) expects a snapfm.sampling.Path; got {named(path)}. Take snapfm.sampling.STRAIGHT or COSINE, or build "
            "one from α, σ and their slopes."
        )
    return path


def shape_of(velocity: Any, project: Projector | None, shape: Any) -> tuple[int, ...]:
    """Return the shape of one field: the projector's, else the one asked for, else the velocity's."""
    given = None if shape is None else check_shape(shape, "sample")
    if project is not None:
        if given is not None and given != tuple(project.shape):
            raise ShapeError(
                f"sample(shape=…) expects the projector's shape {tuple(project.shape)}; got {given}. Leave shape out: the "
                "projector knows it."
            )
        return tuple(project.shape)
    if given is not None:
        return given
    own = getattr(velocity, "shape", None)
    if isinstance(own, (tuple, list)) and all(is_whole(extent) and extent >= 0 for extent in own):
        return tuple(own)
    came = "neither a projector nor velocity.shape gives it" if own is None else f"got velocity.shape = {own!r}"
    raise ShapeError(f"sample(velocity, None) expects the shape of one field; {came}. Pass shape=(100, 100).")


def times_of(times: Any, steps: int) -> tuple[float, ...]:
    """Return the flow times of a run: `steps` uniform steps, or the times asked for."""
    if times is None:
        return tuple(step / steps for step in range(steps + 1))
    values = times.detach().tolist() if isinstance(times, Tensor) else times
    given = list(values) if isinstance(values, Iterable) and not isinstance(values, (str, Mapping)) else None
    right = given is not None and len(given) >= 2 and all(is_real(tau) for tau in given)
    if not given or not right or given[0] != 0.0 or given[-1] != 1.0 or not all(a < b for a, b in pairwise(given)):
        raise ParamsError(
            "sample(times) expects flow times that rise from 0 to 1; got "
            f"{repr(times) if given is None else _shortened(given)}. For steps of one length leave times out and give steps."
        )
    return tuple(float(tau) for tau in given)


def _shortened(times: list[Any]) -> str:
    return str(times) if len(times) <= 6 else f"{times[:3]} … {times[-2:]}"


def call_mismatch(cause: Exception, u: Tensor, tau: float | Tensor) -> SnapfmError | None:
    """Return the error for an exception of a model's first call, if it comes from how it was called; None otherwise."""
    first = str(cause).strip().partition("\n")[0].rstrip(".")
    raised = f"it raised {type(cause).__name__}: {first}"
    if mixes_dtypes(cause):
        return SettingError(
            f"velocity(u, tau) expects to run on {dtype_text(u)} fields; {raised}. Pass the network itself, whose dtype is then "
            "used, or sample(…, dtype=torch.float64), or convert: lambda u, tau: net(u.half(), tau).float()."
        )
    if isinstance(tau, float) and not isinstance(cause, RuntimeError) and "float" in first:
        return SettingError(
            f"velocity(u, tau) expects to take the flow time as one number; {raised}. If the model wants one time per sample, "
            "as a tensor, adapt it: snapfm.adapters.field_first(model), or time_first(model) if time comes first."
        )
    fits = isinstance(cause, torch.OutOfMemoryError) or not any(word in first for word in _SHAPES)
    if isinstance(cause, (RuntimeError, IndexError)) and not fits:
        return ShapeError(
            f"velocity(u, tau) expects to run on fields {tuple(u.shape)}; {raised}. If the model takes another layout, adapt it: "
            "snapfm.adapters.flat for flat fields, channels for an axis of components."
        )
    return None


def check_velocity_output(speed: Any, u: Tensor) -> None:
    """Accept one tensor of the shape of the fields; any other would broadcast against them."""
    if isinstance(speed, Tensor) and speed.shape == u.shape:
        return
    came, cure = type(speed).__name__, "Return one tensor of the shape of its input."
    if isinstance(speed, Tensor):
        came = str(tuple(speed.shape))
        cure += (
            " Adapters help: snapfm.adapters.time_first for a model that takes the time first, flat and channels for another "
            "layout of fields."
        )
    elif isinstance(getattr(speed, "sample", None), Tensor):
        came += " with a tensor .sample"
        cure = "Adapt the model: snapfm.adapters.diffusers(model, scheduler)."
    raise ShapeError(f"velocity(u, tau) expects fields {tuple(u.shape)} back; got {came}. {cure}")
