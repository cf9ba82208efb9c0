"""Checks of the arguments of `sample` and of samplers' settings, with errors in three parts, before the network is called."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from snapfm.errors import DtypeError, ParamsError, SettingError, ShapeError
from snapfm.laws import Bounds, Equality, Inequality, Oracle
from snapfm.laws.checks import named, signature_of, takes_two
from snapfm.project import Projector
from snapfm.project.checks import check_mapping, check_params, check_shape, is_real, is_whole
from snapfm.sampling.path import STRAIGHT, Path

_SEEDS = 2**64  # torch takes as many


def is_positive(value: object) -> bool:
    """Check whether a setting is a positive, finite number."""
    return is_real(value) and 0.0 < value < math.inf


def is_count(value: object) -> bool:
    """Check whether a setting is a whole number, at least one."""
    return is_whole(value) and value >= 1


def check_flag(argument: str, value: object) -> None:
    """Accept True and False; `argument` is how the caller wrote it."""
    if not isinstance(value, bool):
        raise ParamsError(f"{argument} expects True or False; got {value!r}. Leave it out for the default.")


def check_velocity(velocity: Any) -> None:
    """Accept anything that can be called as velocity(u, tau)."""
    call = "sample(velocity) expects a model to call as velocity(u, tau)"
    if isinstance(velocity, Projector):
        raise SettingError(f"{call}; got a Projector. The velocity comes first: sample(velocity, project).")
    if isinstance(velocity, str):
        raise SettingError(
            f"{call}; got the text {velocity!r}. Load a shipped model: snapfm_bench.flow.shipped({velocity!r})."
        )
    if not callable(velocity) and callable(getattr(velocity, "network", None)):
        kind = type(velocity).__name__
        raise SettingError(f"{call}; got a {kind}. Pass its network: {kind.lower()}.network.")
    if isinstance(velocity, type) or not callable(velocity):
        raise SettingError(
            f"{call}; got {named(velocity)}. Pass the trained network itself, or a function of (u, tau)."
        )
    function = velocity.forward if isinstance(velocity, nn.Module) else velocity
    if not takes_two(function):
        raise SettingError(
            f"{call}; got one that takes {signature_of(function)}. Adapt it: snapfm.adapters.conditioned for a model with more "
            "inputs, joined for one with time among them, or a function of (u, tau) around it."
        )


def check_project(project: Any) -> None:
    """Accept a projector, None, or a user's own: callable, with the shape of one field."""
    if project is None or isinstance(project, Projector):
        return
    call = "sample(project) expects a Projector, or None for the plain flow"
    build = "Build one: snapfm.Projector(laws, shape, params)."
    kinds = (Equality, Inequality, Bounds, Oracle)
    listed = isinstance(project, (list, tuple)) and any(isinstance(one, kinds) for one in project)
    if listed or isinstance(project, kinds):
        raise SettingError(f"{call}; got {'a list of laws' if listed else 'a law'}. {build}")
    if isinstance(project, Mapping):
        raise SettingError(f"{call}; got {named(project)}. Params come third: sample(velocity, project, params).")
    shaped = isinstance(getattr(project, "shape", None), (tuple, list))
    if isinstance(project, type) or not callable(project) or not shaped:
        raise SettingError(f"{call}; got {named(project)}. {build}")


def check_conditions(params: Any, project: Projector | None, count: int) -> None:
    """Accept params that the projector's laws can be evaluated with for `count` samples."""
    check_mapping(params)
    if isinstance(project, Projector):
        check_params(params, project.example, count)


def check_counts(count: Any, steps: Any, first: Any) -> tuple[int, int, int]:
    """Accept numbers of samples and steps, at least one of each, and the number of the first sample."""
    if not (is_whole(count) and is_whole(steps)) or count < 1 or steps < 1:
        raise ShapeError(
            f"sample(count, steps) expects whole numbers >= 1; got count={count!r}, steps={steps!r}. Ask for at least one of "
            "each."
        )
    if not is_whole(first) or first < 0:
        raise ParamsError(f"sample(first) expects the number of a sample, 0 or more; got {first!r}. The default is 0.")
    return int(count), int(steps), int(first)


def generator_of(generator: Any, seed: Any) -> torch.Generator | None:
    """Return the generator of a run: the one given, one with the seed given, or None for torch's own."""
    if seed is not None:
        if generator is not None:
            raise SettingError(
                "sample(generator, seed) expects one of the two; got both. Leave generator out: a seed makes one."
            )
        if not is_whole(seed) or not 0 <= seed < _SEEDS:
            raise SettingError(f"sample(seed) expects a whole number from 0 to 2**64 − 1; got {seed!r}. Write seed=0.")
        return torch.Generator().manual_seed(int(seed))
    if generator is not None and not isinstance(generator, torch.Generator):
        if is_whole(generator):
            raise SettingError(
                f"sample(generator) expects a torch.Generator, or None for torch's own; got the number {generator}. Write "
                f"seed={int(generator)}."
            )
        came = "a Generator of numpy" if isinstance(generator, np.random.Generator) else named(generator)
        raise SettingError(
            f"sample(generator) expects a torch.Generator, or None for torch's own; got {came}. Write "
            "generator=torch.Generator().manual_seed(0), or seed=0."
        )
    return generator


def check_batch(batch: Any, count: int) -> int:
    """Accept how many samples are drawn at a time; None stands for all of them."""
    if batch is None:
        return count
    if not is_count(batch):
        raise SettingError(
            f"sample(batch) expects how many samples are drawn at a time, a whole number >= 1; got {batch!r}. Leave it out to "
            "draw all at once."
        )
    return min(int(batch), count)


def check_sampler(sampler: Any, kinds: tuple[type, ...]) -> None:
    """Accept a sampler with its settings, or None; `kinds` are those that the message lists, PCFM first."""
    if sampler is None or (not isinstance(sampler, type) and callable(getattr(sampler, "run", None))):
        return
    known = [kind.__name__ for kind in kinds]
    asked = sampler if isinstance(sampler, str) else sampler.__name__ if isinstance(sampler, type) else ""
    meant = next((name for name in known if name.lower() == asked.lower()), known[0])
    came = f"the text {sampler!r}" if isinstance(sampler, str) else named(sampler)
    raise SettingError(
        f"sample(sampler) expects a sampler with its settings, one of {', '.join(f'{name}(…)' for name in known)} of "
        f"snapfm.sampling; got {came}. Write sampler=snapfm.sampling.{meant}()."
    )


def check_dtype(dtype: Any) -> None:
    """Accept the dtypes that fields can be computed in."""
    if dtype not in (torch.float32, torch.float64):
        raise DtypeError(
            f"sample(dtype) expects torch.float32 or torch.float64; got {dtype!r}. The default is float32."
        )


def check_on_failure(on_failure: Any) -> None:
    """Accept 'raise' and 'keep'."""
    if on_failure not in ("raise", "keep"):
        raise ParamsError(
            f"on_failure expects 'raise' or 'keep'; got {on_failure!r}. 'keep' returns unconverged samples, marked."
        )


def check_progress(progress: Any) -> None:
    """Accept True, False, None, or a function of steps done and steps in all."""
    if progress is None or isinstance(progress, bool):
        return
    call = "sample(progress) expects True for a bar, or a function progress(done, total)"
    if isinstance(progress, type) or not callable(progress):
        raise SettingError(f"{call}; got {named(progress)}. Write progress=True.")
    if not takes_two(progress):
        raise SettingError(
            f"{call}; got one that takes {signature_of(progress)}. Write progress=lambda done, total: ..., or progress=True."
        )


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
    if own is None:
        raise ShapeError(
            "sample(velocity, None) expects the shape of one field; neither a projector nor velocity.shape gives it. Pass "
            "shape=(100, 100)."
        )
    if not isinstance(own, (tuple, list)) or not all(is_whole(extent) and extent >= 0 for extent in own):
        raise ShapeError(
            f"sample(velocity, None) expects the shape of one field; got velocity.shape = {own!r}. Pass shape=(100, 100)."
        )
    return tuple(own)


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
