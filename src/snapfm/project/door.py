"""The door of the projector: every mistake of a caller is caught here, in three parts, before any work is done."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

from snapfm.errors import DtypeError, LawError, ParamsError, ShapeError
from snapfm.laws import Bounds, Equality, Inequality, Law, Params
from snapfm.project.base import Moved, Projection


def check_laws(laws: Sequence[Law]) -> tuple[Law, ...]:
    """Accept a list of laws with distinct names."""
    if isinstance(laws, (Equality, Inequality, Bounds)):
        raise LawError(f"Projector(laws=…) expects a list of laws; got one {type(laws).__name__}. Write laws=[law].")
    if not isinstance(laws, Iterable):
        raise LawError(f"Projector(laws=…) expects a list of laws; got {type(laws).__name__}. Write laws=[law, ...].")
    laws = tuple(laws)
    for law in laws:
        if not isinstance(law, (Equality, Inequality, Bounds)):
            raise LawError(
                f"Projector(laws=…): laws expects Equality, Inequality and Bounds; got {type(law).__name__}. Wrap a function: "
                "snapfm.Equality('name', function)."
            )
    names = [law.name for law in laws]
    twice = sorted({str(name) for name in names if names.count(name) > 1})
    if twice:
        raise LawError(
            f"Projector(laws=…) expects distinct names, which results are reported by; got {twice} more than once. "
            "Rename one of them."
        )
    return laws


def check_shape(shape: Sequence[int]) -> tuple[int, ...]:
    """Accept the shape of one field."""
    if isinstance(shape, int):
        raise ShapeError(
            f"Projector(shape=…) expects the whole-number extents of ONE field, such as (100, 100); got {shape}. Write "
            f"shape=({shape},)."
        )
    if not all(isinstance(extent, int) and extent >= 0 for extent in shape):
        raise ShapeError(
            f"Projector(shape=…) expects the whole-number extents of ONE field, such as (100, 100); got {tuple(shape)}. "
            "Leave the batch axis out."
        )
    return tuple(shape)


def check_tolerance(tolerance: float) -> float:
    """Accept a positive number."""
    if not isinstance(tolerance, (int, float)) or not tolerance > 0:
        raise LawError(
            f"Projector(tolerance=…) expects a positive number; got {tolerance!r}. The default is 1e-8; rounding of a sum of "
            "100 values of order one is near 1e-14."
        )
    return float(tolerance)


def check_mapping(params: Params | None) -> None:
    """Accept a mapping or None."""
    if params is not None and not isinstance(params, Mapping):
        raise ParamsError(
            f"params=… expects a mapping from names to tensors; got {type(params).__name__}. Write params={{'u0': …}}."
        )


def check_example(params: Params | None) -> dict[str, Tensor]:
    """Accept example params: tensors with a leading batch axis."""
    check_mapping(params)
    for name, value in (params or {}).items():
        if not isinstance(value, Tensor):
            raise ParamsError(
                f"params['{name}'] expects a tensor with a leading batch axis; got {type(value).__name__}. Convert it: "
                "torch.as_tensor(value)[None]."
            )
        if value.dim() == 0 or len(value) == 0:
            raise ParamsError(
                f"params['{name}'] expects a leading batch axis of at least 1; got shape {tuple(value.shape)}. Add it with "
                "value[None]."
            )
    return dict(params or {})


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
    if u_hat.dtype not in (torch.float32, torch.float64):
        raise DtypeError(
            f"project(u_hat=…) expects float32 or float64; got {u_hat.dtype}. Convert it with u_hat.float() or .double()."
        )
    if tuple(u_hat.shape[1:]) != shape or u_hat.dim() != len(shape) + 1:
        wanted = ", ".join(["b", *map(str, shape)])
        count = 1
        for extent in shape:
            count *= extent
        if tuple(u_hat.shape) == shape:
            cure = "Add the batch axis: u_hat[None]."
        elif u_hat.dim() == len(shape) + 1 and sorted(u_hat.shape[1:]) == sorted(shape):
            order = ", ".join(map(str, _order(tuple(u_hat.shape[1:]), shape)))
            cure = f"Bring the axes into order, for example with u_hat.permute({order})."
        elif count and u_hat.numel() % count == 0:
            cure = f"Reshape with u_hat.view({', '.join(['-1', *map(str, shape)])})."
        else:
            cure = "Build the Projector with the shape of these fields."
        raise ShapeError(f"project(u_hat=…) expects ({wanted}); got {tuple(u_hat.shape)}. {cure}")


def check_params(params: Params | None, example: Params, batch: int) -> dict[str, Tensor]:
    """Accept params that match the example: same names, same shapes, leading axis b or 1."""
    check_mapping(params)
    given = dict(params or {})
    if set(given) != set(example):
        missing, extra = sorted(set(example) - set(given)), sorted(set(given) - set(example))
        told = [f"missing {missing}"] * bool(missing) + [f"unknown {extra}"] * bool(extra)
        raise ParamsError(
            f"project(…, params=…) expects the names {sorted(example)}; got {sorted(given)} ({', '.join(told)}). Pass the "
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
            raise ParamsError(
                f"params['{name}'] expects shape ({wanted}) for {batch} samples; got {tuple(value.shape)}. Its leading axis is "
                "the batch; the rest is as in the example given at construction."
            )
        if value.is_floating_point() != model.is_floating_point():
            raise ParamsError(
                f"params['{name}'] expects the kind of dtype of its example, {model.dtype}; got {value.dtype}. Cast it with "
                f"value.to({model.dtype})."
            )
    return given


def _order(have: tuple[int, ...], want: tuple[int, ...]) -> list[int]:
    """Give the permutation, batch axis first, that takes axes of extents `have` to `want`."""
    left = list(range(len(have)))
    order = [0]
    for extent in want:
        axis = next(axis for axis in left if have[axis] == extent)
        left.remove(axis)
        order.append(axis + 1)
    return order
