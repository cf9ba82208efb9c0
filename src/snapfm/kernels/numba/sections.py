"""Many arrays in one: sections of a flat array, cut by a table of where each begins.

Compiled functions take a few arrays instead of dozens. With tuples of arrays the same kernels took minutes to compile
and each call 16 µs to unpack. Imports kernels.numba.compiling only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array

from snapfm.arrays import Index, Table, Values
from snapfm.kernels.numba.compiling import compiled


def packed_index(sections: Mapping[int, npt.ArrayLike]) -> tuple[Table, Index]:
    """Join integer arrays, by the numbers of their sections; return the whole and where each begins, then where the last ends.

    Places take 32 bits: each is below the number of all that is listed.
    """
    listed = [sections[number] for number in range(len(sections))]
    at = starts([np.size(section) for section in listed])
    if at[-1] > np.iinfo(np.int32).max:
        raise MemoryError(
            f"a program expects fewer than {np.iinfo(np.int32).max:,} places; got {at[-1]:,}. Project smaller fields, or a part "
            "of the laws at a time."
        )
    whole = np.empty(at[-1], np.int32)
    _fill(whole, at, listed)
    return whole, at


def packed_values(sections: Mapping[int, npt.ArrayLike]) -> tuple[Values, Index]:
    """Join arrays of floats; see packed_index."""
    listed = [sections[number] for number in range(len(sections))]
    at = starts([np.size(section) for section in listed])
    whole = np.empty(at[-1], np.float64)
    _fill(whole, at, listed)
    return whole, at


def _fill(whole: npt.NDArray[Any], at: Index, sections: Sequence[npt.ArrayLike]) -> None:
    """Copy sections to their places, converted one by one: no second copy of all of them. Written: whole."""
    for section, (first, last) in zip(sections, pairwise(at.tolist())):
        whole[first:last] = np.ravel(section)


def starts(lengths: Sequence[int]) -> Index:
    """Return where sections of these lengths begin, and where the last ends."""
    return np.concatenate([[0], np.cumsum(np.asarray(lengths, np.int64))]).astype(np.int64)


@intrinsic
def _borrowed(_: Any, whole: Any, first: Any, last: Any) -> tuple[Any, Any]:
    """View whole[first:last] without owning it: no reference is counted, so `whole` has to outlive the view."""

    def emit(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        source = context.make_array(signature.args[0])(context, builder, given[0])
        view = context.make_array(signature.return_type)(context, builder)
        length = builder.sub(given[2], given[1])
        populate_array(
            view,
            data=builder.gep(source.data, [given[1]]),
            shape=cgutils.pack_array(builder, [length]),
            strides=cgutils.pack_array(builder, [source.itemsize]),
            itemsize=source.itemsize,
            meminfo=None,
        )
        return view._getvalue()

    return whole(whole, types.intp, types.intp), emit


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


@compiled(nogil=True)
def section(whole, at, number):  # read: all; a view, not a copy
    """Return section `number` of a whole, which must outlive it.

    Views that own their memory are counted by atomic instructions, which took half the time of small systems.
    """
    return _borrowed(whole, at[number], at[number + 1])
