"""Groups of arrays by name: sections of a few flat arrays, which compiled functions and Python read as `group.name`.

Compiled functions take a few arrays instead of dozens. With tuples of arrays the same kernels took minutes to compile
and each call 16 µs to unpack. Imports kernels.numba.compiling only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeVar, get_args, get_type_hints

import numpy as np
import numpy.typing as npt
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.core.typing.templates import AttributeTemplate
from numba.cpython.tupleobj import namedtuple_getattr
from numba.extending import infer_getattr, intrinsic, lower_getattr_generic
from numba.np.arrayobj import populate_array

from snapfm.arrays import Index
from snapfm.kernels.numba.compiling import compiled

_Group = TypeVar("_Group")
# Of each group: for each name the field with the flat array, that with where its sections begin, and the section's number.
_PLACES: dict[type, dict[str, tuple[str, str, int]]] = {}


def sectioned(*wholes: tuple[str, str, str]) -> Callable[[type[_Group]], type[_Group]]:
    """Let a named tuple have sections: for each flat array, its field, the field that says where they begin, their names.

    Sections that share a field of beginnings are numbered on from one flat array to the next.
    """

    def decorate(group: type[_Group]) -> type[_Group]:
        places = _PLACES.setdefault(group, {})
        for whole, at, names in wholes:
            first = sum(place[1] == at for place in places.values())
            places.update({name: (whole, at, number) for number, name in enumerate(names.split(), first)})
        return group

    return decorate


def section(group: Any, name: str) -> npt.NDArray[Any]:
    """Return a section of a group in Python, as its `__getattr__`."""
    if name not in _PLACES[type(group)]:
        raise AttributeError(f"{type(group).__name__!r} object has no attribute {name!r}")
    whole, at, number = _PLACES[type(group)][name]
    begin, end = getattr(group, at)[number : number + 2]
    found: npt.NDArray[Any] = getattr(group, whole)[begin:end]
    return found


def packed(names: str, sections: Mapping[str, npt.ArrayLike], dtype: type) -> tuple[npt.NDArray[Any], Index]:
    """Join arrays in the order of their names; return the whole and where each begins, then where the last ends.

    Sections are converted one by one: no second copy of all of them.
    """
    at = starts([np.size(sections[name]) for name in names.split()])
    if at[-1] > np.iinfo(np.int32).max:  # places take 32 bits: each is below the number of all that is listed
        raise MemoryError(
            f"a program expects fewer than {np.iinfo(np.int32).max:,} places; got {at[-1]:,}. Project smaller fields, or a part "
            "of the laws at a time."
        )
    whole = np.empty(at[-1], dtype)
    for name, (first, last) in zip(names.split(), pairwise(at.tolist())):
        whole[first:last] = np.ravel(sections[name])
    return whole, at


def starts(lengths: Sequence[int]) -> Index:
    """Return where sections of these lengths begin, and where the last ends."""
    return np.concatenate([[0], np.cumsum(np.asarray(lengths, np.int64))]).astype(np.int64)


def allocator(group: Any, count: int, **others: int) -> Any:
    """Compile a function that allocates a named tuple of arrays: `count` numbers each, but for `others`; kinds as annotated."""
    scope = {"__name__": group.__module__, "np": np, "group": group}
    for name, hint in get_type_hints(group).items():
        scope[f"_{name}"] = get_args(get_args(hint)[1])[0]  # the number of npt.NDArray[number]
    arrays = ", ".join(f"np.empty({others.get(name, count)}, _{name})" for name in group._fields)
    exec(compile(f"def new_{group.__name__}():\n    return group({arrays})", __file__, "exec"), scope)
    return compiled(nogil=True)(scope[f"new_{group.__name__}"])


@infer_getattr
class _Typed(AttributeTemplate):
    """The type of a section: that of its flat array."""

    key = types.NamedTuple

    def generic_resolve(self, group: Any, name: str) -> Any:  # type: ignore[override]
        place = _PLACES.get(group.instance_class, {}).get(name)
        return None if place is None else group.types[group.fields.index(place[0])]


@lower_getattr_generic(types.NamedTuple)
def _viewed(context: Any, builder: Any, group: Any, value: Any, name: str) -> Any:
    """View a section without owning it: no reference is counted, so the group has to outlive the view.

    Views that own their memory are counted by atomic instructions, which took half the time of small systems.
    """
    place = _PLACES.get(group.instance_class, {}).get(name)
    if place is None:
        return namedtuple_getattr(context, builder, group, value, name)
    whole, at = (_member(context, builder, group, value, field) for field in place[:2])
    numbers = [builder.gep(at.data, [ir.Constant(ir.IntType(64), number)]) for number in (place[2], place[2] + 1)]
    first, last = (builder.load(number) for number in numbers)
    view = context.make_array(group.types[group.fields.index(place[0])])(context, builder)
    populate_array(
        view,
        data=builder.gep(whole.data, [first]),
        shape=cgutils.pack_array(builder, [builder.sub(last, first)]),
        strides=cgutils.pack_array(builder, [whole.itemsize]),
        itemsize=whole.itemsize,
        meminfo=None,
    )
    return view._getvalue()


def _member(context: Any, builder: Any, group: Any, value: Any, field: str) -> Any:
    number = group.fields.index(field)
    return context.make_array(group.types[number])(context, builder, builder.extract_value(value, number))


@intrinsic
def unowned(_: Any, group: Any) -> tuple[Any, Any]:
    """Return an array, or a tuple of some, that does not own its memory: `group` has to outlive it.

    Calls between kernels count the owners of every array they pass, by atomic instructions; what nobody owns is not counted.
    """

    def emit(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        return _disowned(context, builder, signature.args[0], given[0])

    return group(group), emit


def _disowned(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    if isinstance(kind, types.Array):
        array = context.make_array(kind)(context, builder, value)
        array.meminfo = cgutils.get_null_value(array.meminfo.type)
        return array._getvalue()
    if isinstance(kind, types.BaseTuple):
        members: Any = kind
        for number, member in enumerate(members.types):
            inner = _disowned(context, builder, member, builder.extract_value(value, number))
            value = builder.insert_value(value, inner, number)
    return value


@intrinsic
def outlive(_: Any, group: Any) -> tuple[Any, Any]:
    """Keep what `unowned` was made of until here: numba lets go of a variable after its last use."""

    def emit(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        return context.get_dummy_value()

    return types.none(group), emit
