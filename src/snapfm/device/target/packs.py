"""Packs of one number: in place of kernels.numba.packs. A tile is one sample."""

from __future__ import annotations

from typing import Any

from numba.cuda import cgutils, libdevice, types
from numba.cuda.extending import intrinsic

from snapfm.kernels.numba.compiling import compiled

WIDTH = 1


def _place(context: Any, builder: Any, signature: Any, given: Any) -> Any:
    return builder.gep(context.make_array(signature.args[0])(context, builder, given[0]).data, [given[1]])


@intrinsic
def load(_: Any, array: Any, position: Any) -> tuple[Any, Any]:
    """Read a number of a flat array; a negative place is not counted from the end, as array[position] would."""

    def emit(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        return builder.load(_place(context, builder, signature, given))

    return types.float64(array, types.intp), emit


@intrinsic
def store(_: Any, array: Any, position: Any, value: Any) -> tuple[Any, Any]:
    """Write a number of a flat array; see load."""

    def emit(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        builder.store(given[2], _place(context, builder, signature, given))
        return cgutils.get_null_value(context.get_value_type(types.none))

    return types.none(array, types.intp, types.float64), emit


load_at, store_at = load, store


@compiled()
def take(values, offset, count):
    """Read a number."""
    return load(values, offset)


@compiled()
def put(values, offset, count, pack):  # written: values
    """Write a number."""
    store(values, offset, pack)


@compiled()
def full(value):
    """Return the number."""
    return value


@compiled()
def add(a, b):
    """a + b."""
    return a + b


@compiled()
def mul(a, b):
    """a * b."""
    return a * b


@compiled()
def div(a, b):
    """a / b, IEEE."""
    return a / b


@compiled()
def absolute(a):
    """|a|."""
    return libdevice.fabs(a)


@compiled()
def root(a):
    """√a, NaN where a is negative."""
    return libdevice.sqrt(a)


@compiled()
def fma(a, b, c):
    """c + a * b, rounded once."""
    return libdevice.fma(a, b, c)


@compiled()
def fnma(a, b, c):
    """c - a * b, rounded once."""
    return libdevice.fma(-a, b, c)


@compiled()
def pick(a, b, yes, no):
    """Take `yes` where a <= b, else `no`; a comparison with NaN is false."""
    return yes if a <= b else no
