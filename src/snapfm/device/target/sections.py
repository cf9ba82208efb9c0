"""Sections of flat arrays, and arrays at addresses: in place of kernels.numba.sections. Nothing owns memory on a device."""

from __future__ import annotations

from typing import Any

from numba.cuda import cgutils, types
from numba.cuda.extending import intrinsic
from numba.cuda.np.arrayobj import populate_array

from snapfm.kernels.numba.compiling import compiled


def _view(context: Any, builder: Any, kind: Any, data: Any, shape: list[Any], itemsize: Any) -> Any:
    view = context.make_array(kind)(context, builder)
    strides = [itemsize]
    for length in shape[:0:-1]:
        strides.insert(0, builder.mul(strides[0], length))
    populate_array(
        view, data=data, shape=cgutils.pack_array(builder, shape), strides=cgutils.pack_array(builder, strides),
        itemsize=itemsize, meminfo=None,
    )  # fmt: skip
    return view._getvalue()


@intrinsic
def section(_: Any, whole: Any, at: Any, number: Any) -> tuple[Any, Any]:
    """View whole[at[number] : at[number + 1]]."""

    def emit(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        source = context.make_array(signature.args[0])(context, builder, given[0])
        table = context.make_array(signature.args[1])(context, builder, given[1])
        first = builder.load(builder.gep(table.data, [given[2]]))
        last = builder.load(builder.gep(table.data, [builder.add(given[2], given[2].type(1))]))
        data = builder.gep(source.data, [first])
        return _view(context, builder, signature.return_type, data, [builder.sub(last, first)], source.itemsize)

    return whole(whole, at, types.intp), emit


def _at(kind: Any, size: int, dimensions: int) -> Any:
    """Make the intrinsic that views an array of `kind` at an address."""
    array = types.Array(kind, dimensions, "C")

    def emit(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        data = builder.inttoptr(given[0], context.get_data_type(kind).as_pointer())
        return _view(context, builder, array, data, list(given[1:]), given[0].type(size))

    if dimensions == 1:

        @intrinsic
        def line(_: Any, address: Any, length: Any) -> tuple[Any, Any]:
            return array(types.int64, types.int64), emit

        return line

    @intrinsic
    def grid(_: Any, address: Any, height: Any, width: Any) -> tuple[Any, Any]:
        return array(types.int64, types.int64, types.int64), emit

    return grid


values_at, values_grid_at = _at(types.float64, 8, 1), _at(types.float64, 8, 2)
index_at, index_grid_at = _at(types.int64, 8, 1), _at(types.int64, 8, 2)
table_at, mask_at = _at(types.int32, 4, 1), _at(types.boolean, 1, 1)


@compiled()
def unowned(group):
    """Return the group: nothing is owned here."""
    return group


@compiled()
def outlive(group):
    """Do nothing."""
