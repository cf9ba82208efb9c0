"""Checks of the projector's arguments: a caller's mistake raises here, with a message in three parts, before any work.

Part of stop 3 of the walk. Must not import project.projector.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from snapfm.errors import DtypeError, LawError, ParamsError, SettingError, ShapeError
from snapfm.laws import Bounds, Equality, Inequality, Law, Oracle, Params
from snapfm.laws.checks import Check, is_count, is_positive, is_real, is_whole, or_none, shown
from snapfm.project.tolerance import Tolerance
from snapfm.solve.budget import LIMIT, SECONDS
from snapfm.solve.projection import Moved, Projection
from snapfm.text import plural

_LAWS = (Equality, Inequality, Bounds, Oracle)
TOLERANCE = 1e-8  # of laws for which none is given

_LIMIT = Check(
    is_count, "a whole number of iterations, at least 1", f"The default is {LIMIT} a sample, over all attempts.", SettingError
)  # fmt: skip
_SECONDS = Check(
    lambda value: is_real(value) and value > 0, "a positive number, the wall time of one call",
    f"The default is {SECONDS:.0f}; float('inf') waits for ever.", SettingError,
)  # fmt: skip
_STARTS = Check(
    is_count, "a whole number of starts, at least 1", "The default is 1: the input, or where warm ended.", SettingError
)  # fmt: skip
_PROGRESS = Check(
    or_none(lambda value: isinstance(value, bool)), "True or False, or None for a line on terminals only",
    "Leave it out.", SettingError,
)  # fmt: skip


def check_laws(laws: Any) -> tuple[Law, ...]:
    """Accept a list of laws with distinct names."""
    if isinstance(laws, _LAWS):
        raise LawError(f"Projector(laws=…) expects a list of laws; got one {type(laws).__name__}. Write laws=[law].")
    if not isinstance(laws, Iterable) or isinstance(laws, (str, Tensor, Mapping)):
        raise LawError(f"Projector(laws=…) expects a list of laws; got {type(laws).__name__}. Write laws=[law, ...].")
    found: tuple[Law, ...] = tuple(laws)
    for law in found:
        if isinstance(law, (list, tuple)) and any(isinstance(one, _LAWS) for one in law):
            raise LawError(
                f"Projector(laws=…) expects one flat list of laws; got a {type(law).__name__} of laws inside it. Join them: "
                "laws=[*first, *second]."
            )
        if not isinstance(law, _LAWS):
            raise LawError(
                f"Projector(laws=…): laws expects Equality, Inequality, Bounds and Oracle; got {type(law).__name__}. Wrap a "
                "function: snapfm.Equality('name', function)."
            )
    names = [law.name for law in found]
    twice = sorted({str(name) for name in names if names.count(name) > 1})
    if twice:
        raise LawError(
            f"Projector(laws=…) expects distinct names, which results are reported by; got {twice} more than once. "
            "Rename one of them."
        )
    return found


def check_shape(shape: Any, call: str = "Projector") -> tuple[int, ...]:
    """Accept the shape of one field; `call` is the function that the caller called."""
    if is_whole(shape):
        wrong = f"{shape}. Write shape=({shape},)."
    elif not isinstance(shape, Sequence) or isinstance(shape, str):
        wrong = f"{shown(shape)}. Write them as a tuple; those of a batch u_hat are tuple(u_hat.shape[1:])."
    elif not all(is_whole(extent) and extent >= 0 for extent in shape):
        wrong = f"{tuple(shape)}. Write each as a whole number >= 0. Leave the batch axis out."
    else:
        return tuple(int(extent) for extent in shape)
    raise ShapeError(f"{call}(shape=…) expects the whole-number extents of ONE field, such as (100, 100); got {wrong}")


def check_tolerance(tolerance: Any, names: Sequence[str], default: Tolerance = TOLERANCE) -> Tolerance:
    """Accept a positive number, or one for each of some laws by name; return that of every law then."""
    if isinstance(tolerance, Mapping):
        if unknown := [name for name in tolerance if name not in names]:
            raise LawError(
                f"Projector(tolerance=…) expects names of its laws, {list(names)}; got {unknown}. Correct the names; laws that "
                "are not named keep the default."
            )
        others = default if isinstance(default, dict) else dict.fromkeys(names, default)
        return others | {name: _one_tolerance(value) for name, value in tolerance.items()}
    return _one_tolerance(tolerance)


def _one_tolerance(tolerance: Any) -> float:
    """Accept a positive number."""
    if not is_positive(tolerance):
        cure = "Take one number out of it: tolerance.item(). " if isinstance(tolerance, Tensor) else ""
        raise LawError(
            f"Projector(tolerance=…) expects a positive number, and a finite one; got {shown(tolerance)}. {cure}The default is "
            "1e-8; rounding of a sum of 100 values of order one is near 1e-14. Laws may have their own: {'energy': 10.0}."
        )
    return float(tolerance)


def check_budget(limit: Any, seconds: Any) -> tuple[int, float]:
    """Accept a number of iterations and a length of time."""
    _LIMIT.apply("limit=…", limit)
    _SECONDS.apply("seconds=…", seconds)
    return int(limit), float(seconds)


def check_starts(starts: Any) -> int:
    """Accept a number of starts."""
    _STARTS.apply("starts=…", starts)
    return int(starts)


def check_progress(progress: bool | None) -> bool | None:
    """Accept a flag or None."""
    _PROGRESS.apply("progress=…", progress)
    return progress


def check_mapping(params: Params | None) -> None:
    """Accept a mapping from names, or None."""
    if params is None or (isinstance(params, Mapping) and all(isinstance(name, str) for name in params)):
        return
    came = type(params).__name__
    if isinstance(params, Mapping):
        came = next(f"{name!r} for a name" for name in params if not isinstance(name, str))
    raise ParamsError(f"params=… expects a mapping from names to tensors; got {came}. Write params={{'u0': …}}.")


def check_example(params: Params | None) -> dict[str, Tensor]:
    """Accept example params, tensors with a leading batch axis; return copies, of which all samples are the first."""
    check_mapping(params)
    for name, value in (params or {}).items():
        if not isinstance(value, Tensor):
            raise ParamsError(
                f"params['{name}'] expects a tensor with a leading batch axis; got {type(value).__name__}. Convert it with "
                "torch.as_tensor(value), and add the batch axis with [None] if it has none."
            )
        if value.dim() == 0 or len(value) == 0:
            raise ParamsError(
                f"params['{name}'] expects a leading batch axis of at least 1; got shape {tuple(value.shape)}. Add it with "
                "value[None]."
            )
    return {name: value[:1].detach().clone().expand(value.shape) for name, value in (params or {}).items()}


def check_warm(warm: Projection | Moved | None, count: int, rows: Mapping[str, slice]) -> None:
    """Accept an earlier projection of the same laws and batch size."""
    if warm is None:
        return
    if not isinstance(warm, (Projection, Moved)):
        raise ParamsError(
            f"project(warm=…) expects a Projection of the same laws; got {type(warm).__name__}. Pass the result of an earlier "
            "call, or leave warm out."
        )
    if isinstance(warm, Moved):
        if len(warm.u) != count:
            raise ParamsError(
                f"project(warm=…) expects an earlier result of a batch of {count}; got one of {len(warm.u)}. Pass that of the "
                "same batch, or leave warm out."
            )
        return
    sizes = {name: tuple(value.shape) for name, value in warm.multipliers.items()}
    wanted = {name: (count, part.stop - part.start) for name, part in rows.items()}
    if sizes != wanted:
        raise ParamsError(
            f"project(warm=…) expects multipliers {wanted}; got {sizes}. Pass a projection by this projector of a batch of "
            f"{count}, or leave warm out."
        )


def check_field(u_hat: Tensor, shape: tuple[int, ...]) -> None:
    """Accept a floating-point batch (b, *shape)."""
    if not isinstance(u_hat, Tensor):
        raise DtypeError(
            f"project(u_hat=…) expects a torch tensor; got {type(u_hat).__name__}. Convert it with torch.as_tensor."
        )
    empty = u_hat.device.type == "meta"
    if empty or u_hat.layout != torch.strided:
        kind = "one on the device meta" if empty else f"layout {u_hat.layout}"
        raise DtypeError(
            f"project(u_hat=…) expects a dense tensor that holds values; got {kind}. Convert it with u_hat.to_dense(), or make "
            "it on the CPU."
        )
    if u_hat.dtype not in (torch.float32, torch.float64):
        raise DtypeError(
            f"project(u_hat=…) expects float32 or float64; got {u_hat.dtype}. {_dtype_cure(u_hat.dtype, shape)}"
        )
    if tuple(u_hat.shape[1:]) != shape or u_hat.dim() != len(shape) + 1:
        wanted = ", ".join(["b", *map(str, shape)])
        came = tuple(u_hat.shape)
        raise ShapeError(f"project(u_hat=…) expects ({wanted}); got {came}. {_shape_cure(came, shape)}")


def check_params(params: Params | None, example: Params, batch: int) -> dict[str, Tensor]:
    """Accept params that match the example: same names, same shapes, leading axis b or 1."""
    check_mapping(params)
    given = dict(params or {})
    if set(given) != set(example):
        missing, extra = sorted(set(example) - set(given)), sorted(set(given) - set(example))
        problems = [f"missing {missing}"] * bool(missing) + [f"unknown {extra}"] * bool(extra)
        raise ParamsError(
            f"project(…, params=…) expects the names {sorted(example)}; got {sorted(given)} ({', '.join(problems)}). Pass the "
            "same names as at construction."
        )
    for name, value in given.items():
        model = example[name]
        if not isinstance(value, Tensor):
            raise ParamsError(
                f"params['{name}'] expects a tensor; got {type(value).__name__}. Convert it with torch.as_tensor(value)."
            )
        if value.shape[1:] != model.shape[1:] or value.dim() != model.dim() or len(value) not in (1, batch):
            wanted = ", ".join([f"{batch} or 1", *map(str, model.shape[1:])])
            cure = "Its leading axis is the batch; the rest is as in the example given at construction."
            if value.shape == model.shape and len(value) > 1:
                cure = (
                    f"If {tuple(value.shape)} is the value for one sample, give it a batch axis with value[None], here and at "
                    "construction."
                )
            raise ParamsError(
                f"params['{name}'] expects shape ({wanted}) for {plural(batch, 'sample')}; got {tuple(value.shape)}. {cure}"
            )
        if value.is_floating_point() != model.is_floating_point():
            raise ParamsError(
                f"params['{name}'] expects the kind of dtype of its example, {model.dtype}; got {value.dtype}. Cast it with "
                f"value.to({model.dtype})."
            )
    return given


def _dtype_cure(dtype: torch.dtype, shape: tuple[int, ...]) -> str:
    """Return the advice for fields of a dtype that is not projected."""
    if dtype.is_complex:
        # Distances are the same in both forms: |z|² is the sum of the squares of the two parts.
        return (
            "Lay real and imaginary parts out as two channels, torch.view_as_real(u_hat).movedim(-1, 1), build the Projector "
            f"with shape={(2, *shape)}, and write its laws for u[0] and u[1]."
        )
    if dtype.is_floating_point:
        return "Convert it with u_hat.float() or .double(); rounded back, an answer would break its laws again."
    return "Convert it with u_hat.float() or .double()."


def _shape_cure(came: tuple[int, ...], shape: tuple[int, ...]) -> str:
    """Return the advice for a batch of another shape than (b, *shape), likeliest cause first."""
    view = f"u_hat.view({', '.join(['-1', *map(str, shape)])})"
    fits = math.prod(shape) and math.prod(came) % math.prod(shape) == 0
    batch_in_shape = f"leave the batch axis out of Projector(shape=…): shape={shape[1:]}"
    if came == shape:
        cure = "Add the batch axis: u_hat[None]."
        return cure if len(shape) < 2 else f"{cure} If {shape[0]} already is the number of samples, {batch_in_shape}."
    if len(came) == len(shape) > 1 and came[1:] == shape[1:]:
        cure = f"If {came[0]} is the number of samples, {batch_in_shape}."
        return f"{cure} If samples follow each other along that axis, reshape with {view}." if fits else cure
    if len(came) == len(shape) + 1 and sorted(came[1:]) == sorted(shape):
        order = ", ".join(map(str, _order(came[1:], shape)))
        return f"Bring the axes into order, for example with u_hat.permute({order})."
    if len(came) == len(shape) + 2 and came[2:] == shape and came[1] > 1:
        return (
            f"If axis 1 holds {came[1]} components of one field, build the Projector with shape={came[1:]}; if it holds samples, "
            f"reshape with {view}."
        )
    return f"Reshape with {view}." if fits else "Build the Projector with the shape of these fields."


def _order(have: tuple[int, ...], want: tuple[int, ...]) -> list[int]:
    """Return the permutation, batch axis first, from axes of extents `have` to `want`."""
    left = list(range(len(have)))
    order = [0]
    for extent in want:
        axis = next(axis for axis in left if have[axis] == extent)
        left.remove(axis)
        order.append(axis + 1)
    return order
