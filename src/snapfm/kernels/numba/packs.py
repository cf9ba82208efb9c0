"""Packs: WIDTH float64 values in one machine word, so that one instruction adds eight samples.

A Pack is a numba value in SIMD registers (one of AVX-512, two of AVX2, four of SSE2 or NEON). Plain loops over lanes
compiled to mostly 128-bit code with the accumulators in memory. Every operation acts lane by lane with the same
instruction, so a lane's bits cannot depend on its neighbors or on its place.

Imports kernels.numba.compiling only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.core.errors import TypingError
from numba.extending import intrinsic, models, register_model

from snapfm.kernels.numba.compiling import compiled

# Lanes of a tile. 16 gained 0-25 % per sample on wide batches, lost half of it on odd ones, and spills on AVX2.
WIDTH = 8
_VECTOR = ir.VectorType(ir.DoubleType(), WIDTH)
_ALIGN = 8  # bytes promised to the compiler: buffers are aligned to 64, a caller's arrays need not be
_Emit = Callable[[Any, Any, Any, Any], Any]
_operation: Any = intrinsic  # a kernel passes all arguments but the first, which is numba's own


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


def _check(array: Any) -> None:
    if array.dtype != types.float64:
        raise TypingError(f"packs expect an array of float64; got {array.dtype}. Convert it.")


def _data(context: Any, builder: Any, signature: Any, given: Any) -> Any:
    """Return the address of the first argument's data."""
    return context.make_array(signature.args[0])(context, builder, given[0]).data


def _call(builder: Any, name: str, arguments: list[Any]) -> Any:
    kind = ir.FunctionType(_VECTOR, [_VECTOR] * len(arguments))
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, f"{name}.v{WIDTH}f64"), arguments)


def _spread(builder: Any, number: Any) -> Any:
    """Put a number into every lane."""
    undefined = ir.Constant(_VECTOR, ir.Undefined)
    first = builder.insert_element(undefined, number, ir.Constant(ir.IntType(32), 0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), WIDTH), [0] * WIDTH)
    return builder.shuffle_vector(first, undefined, zeros)


def _reading(step: int) -> _Emit:
    def emit(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        offset = builder.mul(given[1], given[1].type(step))
        place = builder.gep(_data(context, builder, signature, given), [offset])
        return builder.load(builder.bitcast(place, _VECTOR.as_pointer()), align=_ALIGN)

    return emit


def _writing(step: int) -> _Emit:
    def emit(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        offset = builder.mul(given[1], given[1].type(step))
        place = builder.gep(_data(context, builder, signature, given), [offset])
        builder.store(given[2], builder.bitcast(place, _VECTOR.as_pointer()), align=_ALIGN)
        return context.get_dummy_value()

    return emit


@_operation
def load(_: Any, array: Any, position: Any) -> tuple[Any, _Emit]:
    """Read pack number `position` of a flat array. Bounds are not checked."""
    _check(array)
    return _PACK(array, types.intp), _reading(WIDTH)


@_operation
def load_at(_: Any, array: Any, offset: Any) -> tuple[Any, _Emit]:
    """Read the pack that begins at element `offset` of a flat array. Bounds are not checked."""
    _check(array)
    return _PACK(array, types.intp), _reading(1)


@_operation
def store(_: Any, array: Any, position: Any, value: Any) -> tuple[Any, _Emit]:
    """Write pack number `position` of a flat array. Bounds are not checked."""
    _check(array)
    return types.void(array, types.intp, _PACK), _writing(WIDTH)


@_operation
def store_at(_: Any, array: Any, offset: Any, value: Any) -> tuple[Any, _Emit]:
    """Write the pack that begins at element `offset` of a flat array. Bounds are not checked."""
    _check(array)
    return types.void(array, types.intp, _PACK), _writing(1)


@_operation
def _load_some(_: Any, array: Any, offset: Any, count: Any) -> tuple[Any, _Emit]:
    """Read `count` values from element `offset` on and repeat the last of them in the lanes beyond."""
    _check(array)

    def emit(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        data = _data(context, builder, signature, given)
        last = builder.sub(given[2], given[2].type(1))
        some = ir.Constant(_VECTOR, ir.Undefined)
        for lane in range(WIDTH):
            own = last.type(lane)
            index = builder.add(given[1], builder.select(builder.icmp_signed("<", own, last), own, last))
            value = builder.load(builder.gep(data, [index]))
            some = builder.insert_element(some, value, ir.Constant(ir.IntType(32), lane))
        return some

    return _PACK(array, types.intp, types.intp), emit


@_operation
def _store_some(_: Any, array: Any, offset: Any, count: Any, value: Any) -> tuple[Any, _Emit]:
    """Write the first `count` lanes from element `offset` on."""
    _check(array)

    def emit(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        data = _data(context, builder, signature, given)
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

    return _PACK(types.float64), lambda context, builder, signature, given: _spread(builder, given[0])


@_operation
def spread(_: Any, array: Any, offset: Any) -> tuple[Any, _Emit]:
    """Read element `offset` of a flat array into every lane. Bounds are not checked."""
    _check(array)

    def emit(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        return _spread(builder, builder.load(builder.gep(_data(context, builder, signature, given), [given[1]])))

    return _PACK(array, types.intp), emit


@_operation
def add(_: Any, a: Any, b: Any) -> tuple[Any, _Emit]:
    """a + b."""
    return a(a, a), lambda context, builder, signature, given: builder.fadd(*given)


@_operation
def mul(_: Any, a: Any, b: Any) -> tuple[Any, _Emit]:
    """a * b."""
    return a(a, a), lambda context, builder, signature, given: builder.fmul(*given)


@_operation
def div(_: Any, a: Any, b: Any) -> tuple[Any, _Emit]:
    """a / b, IEEE: infinite or NaN where b is zero."""
    return a(a, a), lambda context, builder, signature, given: builder.fdiv(*given)


@_operation
def absolute(_: Any, a: Any) -> tuple[Any, _Emit]:
    """|a|."""
    return a(a), lambda context, builder, signature, given: _call(builder, "llvm.fabs", [given[0]])


@_operation
def root(_: Any, a: Any) -> tuple[Any, _Emit]:
    """√a, NaN where a is negative."""
    return a(a), lambda context, builder, signature, given: _call(builder, "llvm.sqrt", [given[0]])


@_operation
def fma(_: Any, a: Any, b: Any, c: Any) -> tuple[Any, _Emit]:
    """c + a * b, rounded once where the machine can, always the same way on one machine."""
    return a(a, a, a), lambda context, builder, signature, given: _call(
        builder, "llvm.fmuladd", [given[0], given[1], given[2]]
    )


@_operation
def fnma(_: Any, a: Any, b: Any, c: Any) -> tuple[Any, _Emit]:
    """c - a * b, rounded once where the machine can, always the same way on one machine."""
    return a(a, a, a), lambda context, builder, signature, given: _call(
        builder, "llvm.fmuladd", [builder.fneg(given[0]), given[1], given[2]]
    )


@_operation
def pick(_: Any, a: Any, b: Any, yes: Any, no: Any) -> tuple[Any, _Emit]:
    """Take `yes` in lanes where a <= b, `no` elsewhere; a comparison with NaN is false."""

    def emit(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        return builder.select(builder.fcmp_ordered("<=", given[0], given[1]), given[2], given[3])

    return a(a, a, a, a), emit


_EIGHT = types.UniTuple(_PACK, WIDTH)  # sums that loops keep in registers


@_operation
def eight(_: Any, a: Any) -> tuple[Any, _Emit]:
    """Repeat a pack eight times."""
    return _EIGHT(a), lambda context, builder, signature, given: cgutils.pack_array(builder, [given[0]] * WIDTH)


@_operation
def load_eight(_: Any, array: Any, position: Any) -> tuple[Any, _Emit]:
    """Read eight packs from pack number `position` on."""
    _check(array)

    def emit(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        return cgutils.pack_array(builder, list(_eight_places(context, builder, signature, given, builder.load)))

    return _EIGHT(array, types.intp), emit


@_operation
def store_eight(_: Any, array: Any, position: Any, packs: Any) -> tuple[Any, _Emit]:
    """Write eight packs from pack number `position` on."""
    _check(array)

    def emit(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        packs = iter(cgutils.unpack_tuple(builder, given[2], WIDTH))
        for _ in _eight_places(
            context, builder, signature, given, lambda to, align: builder.store(next(packs), to, align)
        ):
            pass
        return context.get_dummy_value()

    return types.void(array, types.intp, _EIGHT), emit


def _eight_places(context: Any, builder: Any, signature: Any, given: Any, use: Callable[..., Any]) -> Iterator[Any]:
    """Use the addresses of eight packs, from pack number `given[1]` on, one after the other."""
    first = builder.mul(given[1], given[1].type(WIDTH))
    for k in range(WIDTH):
        place = builder.gep(_data(context, builder, signature, given), [builder.add(first, first.type(WIDTH * k))])
        yield use(builder.bitcast(place, _VECTOR.as_pointer()), align=_ALIGN)


@_operation
def add_products(_: Any, array: Any, position: Any, a: Any, totals: Any) -> tuple[Any, _Emit]:
    """totals + a * the eight packs from pack number `position` on."""
    _check(array)

    def emit(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        totals = cgutils.unpack_tuple(builder, given[3], WIDTH)
        packs = _eight_places(context, builder, signature, given, builder.load)
        return cgutils.pack_array(
            builder, [_call(builder, "llvm.fmuladd", [pack, given[2], total]) for pack, total in zip(packs, totals)]
        )

    return _EIGHT(array, types.intp, a, _EIGHT), emit


@_operation
def add_multiples(_: Any, array: Any, offset: Any, step: Any, a: Any, totals: Any) -> tuple[Any, _Emit]:
    """totals + a * the eight numbers from element `offset` on, each `step` after the one before."""
    _check(array)

    def emit(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        data, found = _data(context, builder, signature, given), []
        for k, total in enumerate(cgutils.unpack_tuple(builder, given[4], WIDTH)):
            place = builder.add(given[1], builder.mul(given[2], given[2].type(k)))
            number = _spread(builder, builder.load(builder.gep(data, [place])))
            found.append(_call(builder, "llvm.fmuladd", [given[3], number, total]))
        return cgutils.pack_array(builder, found)

    return _EIGHT(array, types.intp, types.intp, a, _EIGHT), emit


@compiled(nogil=True, error_model="numpy")
def take(values, offset, count):  # written: nothing
    """Read `count` lanes from element `offset` on; an incomplete tile repeats its last lane."""
    return load_at(values, offset) if count == WIDTH else _load_some(values, offset, count)


@compiled(nogil=True, error_model="numpy")
def put(values, offset, count, pack):  # written: values
    """Write `count` lanes from element `offset` on."""
    if count == WIDTH:
        store_at(values, offset, pack)
    else:
        _store_some(values, offset, count, pack)
