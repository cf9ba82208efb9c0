"""Packs: WIDTH float64 values in one machine word, so that eight samples are added with one instruction.

A Pack is a numba value held in SIMD registers (one AVX-512 register, two of AVX2, four of SSE2 or NEON). Written as
plain loops over lanes the same kernels came out as mostly 128-bit code with the accumulators in memory. Every operation
acts lane by lane with the same instruction, so a lane's bits cannot depend on its neighbours or its place.

Low in kernels: imports nothing of snapfm. numba caches a kernel by its own file only: after a change here, remove
the `__pycache__` of the kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic, models, register_model

WIDTH = (
    8  # lanes of a tile; 16 gained 0-25 % per sample on wide batches, lost half of it on odd ones, and spills on AVX2
)
_ALIGN = 8  # bytes promised to the compiler; buffers are aligned to 64, a caller's arrays need not be
_VECTOR = ir.VectorType(ir.DoubleType(), WIDTH)
_Emit = Callable[[Any, Any, Any, Any], Any]


def _operation(define: Callable[..., tuple[Any, _Emit]]) -> Any:
    """Make a numba intrinsic; called from kernels, its first argument is numba's own."""
    return intrinsic(define)


class _PackType(types.Type):
    """The numba type of a Pack."""

    def __init__(self) -> None:
        super().__init__(name=f"Pack{WIDTH}")


_PACK = _PackType()


@register_model(_PackType)
class _PackModel(models.PrimitiveModel):
    """A Pack is an LLVM vector value."""

    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, _VECTOR)


def _address(context: Any, builder: Any, kind: Any, array: Any, offset: Any) -> Any:
    data = context.make_array(kind)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [offset]), _VECTOR.as_pointer())


def _call(builder: Any, name: str, arguments: list[Any]) -> Any:
    kind = ir.FunctionType(_VECTOR, [_VECTOR] * len(arguments))
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, f"{name}.v{WIDTH}f64"), arguments)


@_operation
def load(_: Any, array: Any, position: Any) -> tuple[Any, _Emit]:
    """Read pack number `position` of a flat float64 array. Nothing checks the bounds."""

    def emit(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        offset = builder.mul(given[1], given[1].type(WIDTH))
        return builder.load(_address(context, builder, signature.args[0], given[0], offset), align=_ALIGN)

    return _PACK(array, types.intp), emit


@_operation
def load_at(_: Any, array: Any, offset: Any) -> tuple[Any, _Emit]:
    """Read the WIDTH values of a flat float64 array from element `offset` on."""

    def emit(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        return builder.load(_address(context, builder, signature.args[0], given[0], given[1]), align=_ALIGN)

    return _PACK(array, types.intp), emit


@_operation
def _load_some(_: Any, array: Any, offset: Any, count: Any) -> tuple[Any, _Emit]:
    """Read `count` values from element `offset` on and repeat the last of them in the lanes beyond."""

    def emit(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, given[0]).data
        last = builder.sub(given[2], given[2].type(1))
        pack = ir.Constant(_VECTOR, ir.Undefined)
        for lane in range(WIDTH):
            own = last.type(lane)
            index = builder.add(given[1], builder.select(builder.icmp_signed("<", own, last), own, last))
            value = builder.load(builder.gep(data, [index]))
            pack = builder.insert_element(pack, value, ir.Constant(ir.IntType(32), lane))
        return pack

    return _PACK(array, types.intp, types.intp), emit


@_operation
def store(_: Any, array: Any, position: Any, value: Any) -> tuple[Any, _Emit]:
    """Write pack number `position` of a flat float64 array. Nothing checks the bounds."""

    def emit(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        offset = builder.mul(given[1], given[1].type(WIDTH))
        builder.store(given[2], _address(context, builder, signature.args[0], given[0], offset), align=_ALIGN)
        return context.get_dummy_value()

    return types.void(array, types.intp, _PACK), emit


@_operation
def store_at(_: Any, array: Any, offset: Any, value: Any) -> tuple[Any, _Emit]:
    """Write the WIDTH values of a flat float64 array from element `offset` on."""

    def emit(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        builder.store(given[2], _address(context, builder, signature.args[0], given[0], given[1]), align=_ALIGN)
        return context.get_dummy_value()

    return types.void(array, types.intp, _PACK), emit


@_operation
def _store_some(_: Any, array: Any, offset: Any, count: Any, value: Any) -> tuple[Any, _Emit]:
    """Write the first `count` lanes from element `offset` on."""

    def emit(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, given[0]).data
        for lane in range(WIDTH):
            own = given[2].type(lane)
            with builder.if_then(builder.icmp_signed("<", own, given[2])):
                number = builder.extract_element(given[3], ir.Constant(ir.IntType(32), lane))
                builder.store(number, builder.gep(data, [builder.add(given[1], own)]))
        return context.get_dummy_value()

    return types.void(array, types.intp, types.intp, _PACK), emit


@_operation
def full(_: Any, value: Any) -> tuple[Any, _Emit]:
    """Put one number into every lane."""

    def emit(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        undefined = ir.Constant(_VECTOR, ir.Undefined)
        first = builder.insert_element(undefined, given[0], ir.Constant(ir.IntType(32), 0))
        zeros = ir.Constant(ir.VectorType(ir.IntType(32), WIDTH), [0] * WIDTH)
        return builder.shuffle_vector(first, undefined, zeros)

    return _PACK(types.float64), emit


@_operation
def add(_: Any, a: Any, b: Any) -> tuple[Any, _Emit]:
    """a + b."""
    return _PACK(_PACK, _PACK), lambda context, builder, signature, given: builder.fadd(*given)


@_operation
def mul(_: Any, a: Any, b: Any) -> tuple[Any, _Emit]:
    """a * b."""
    return _PACK(_PACK, _PACK), lambda context, builder, signature, given: builder.fmul(*given)


@_operation
def div(_: Any, a: Any, b: Any) -> tuple[Any, _Emit]:
    """a / b, IEEE: infinite or NaN where b is zero."""
    return _PACK(_PACK, _PACK), lambda context, builder, signature, given: builder.fdiv(*given)


@_operation
def absolute(_: Any, a: Any) -> tuple[Any, _Emit]:
    """|a|."""
    return _PACK(_PACK), lambda context, builder, signature, given: _call(builder, "llvm.fabs", [given[0]])


@_operation
def root(_: Any, a: Any) -> tuple[Any, _Emit]:
    """√a, NaN where a is negative."""
    return _PACK(_PACK), lambda context, builder, signature, given: _call(builder, "llvm.sqrt", [given[0]])


@_operation
def fma(_: Any, a: Any, b: Any, c: Any) -> tuple[Any, _Emit]:
    """c + a * b, rounded once where the machine can, always the same way on one machine."""
    return _PACK(_PACK, _PACK, _PACK), lambda context, builder, signature, given: _call(
        builder, "llvm.fmuladd", [given[0], given[1], given[2]]
    )


@_operation
def fnma(_: Any, a: Any, b: Any, c: Any) -> tuple[Any, _Emit]:
    """c - a * b, rounded once where the machine can, always the same way on one machine."""
    return _PACK(_PACK, _PACK, _PACK), lambda context, builder, signature, given: _call(
        builder, "llvm.fmuladd", [builder.fneg(given[0]), given[1], given[2]]
    )


@_operation
def pick(_: Any, a: Any, b: Any, yes: Any, no: Any) -> tuple[Any, _Emit]:
    """Take `yes` in lanes where a <= b, `no` elsewhere; a comparison with NaN is false."""

    def emit(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        return builder.select(builder.fcmp_ordered("<=", given[0], given[1]), given[2], given[3])

    return _PACK(_PACK, _PACK, _PACK, _PACK), emit


@njit(cache=True, nogil=True, error_model="numpy")
def take(values, offset, count):  # written: nothing
    """Read `count` lanes from element `offset` on; an incomplete tile repeats its last lane."""
    return load_at(values, offset) if count == WIDTH else _load_some(values, offset, count)


@njit(cache=True, nogil=True, error_model="numpy")
def put(values, offset, count, pack):  # written: values
    """Write `count` lanes from element `offset` on."""
    if count == WIDTH:
        store_at(values, offset, pack)
    else:
        _store_some(values, offset, count, pack)
