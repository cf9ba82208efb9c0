"""Packs: WIDTH float64 values in one machine word, so that eight samples are added with one instruction.

A Pack is a numba value held in SIMD registers (one AVX-512 register, two of AVX2, four of SSE2 or NEON). Written as
plain loops over lanes the same kernels came out as mostly 128-bit code with the accumulators in memory. Every operation
acts lane by lane with the same instruction, so a lane's bits cannot depend on its neighbours or its place.

Packs of float32 fill the same registers with twice the lanes. Which kind a pack is follows from the array it is read
from, so that one kernel, compiled for either, serves both; it asks `width` and `full_like` instead of WIDTH and `full`.

Low in kernels: imports kernels.compiling only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.core.errors import TypingError
from numba.extending import intrinsic, models, overload, register_model

from snapfm.kernels.compiling import compiled

WIDTH = (
    8  # lanes of a tile; 16 gained 0-25 % per sample on wide batches, lost half of it on odd ones, and spills on AVX2
)
SINGLE_WIDTH = 2 * WIDTH  # lanes of a tile in float32: as many bytes, so the registers hold what they hold in float64
_Emit = Callable[[Any, Any, Any, Any], Any]


def _operation(define: Callable[..., tuple[Any, _Emit]]) -> Any:
    """Make a numba intrinsic; called from kernels, its first argument is numba's own."""
    return intrinsic(define)


class _PackType(types.Type):
    """The numba type of a Pack, told apart by its name."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name)

    @property
    def lanes(self) -> int:
        """Values of one pack."""
        return WIDTH if self == _PACK else SINGLE_WIDTH

    @property
    def element(self) -> Any:
        """The numba type of a value."""
        return types.float64 if self == _PACK else types.float32

    @property
    def align(self) -> int:
        """Bytes promised to the compiler; buffers are aligned to 64, a caller's arrays need not be."""
        return 8 if self == _PACK else 4

    @property
    def vector(self) -> Any:
        """The type of LLVM."""
        return ir.VectorType(ir.DoubleType() if self == _PACK else ir.FloatType(), self.lanes)


_PACK = _PackType(f"Pack{WIDTH}")
_SINGLE = _PackType(f"Single{SINGLE_WIDTH}")


@register_model(_PackType)
class _PackModel(models.PrimitiveModel):
    """A Pack is an LLVM vector value."""

    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, kind.vector)


def _kind(array: Any) -> _PackType:
    """Tell what the packs of an array are."""
    if array.dtype not in (types.float64, types.float32):
        raise TypingError(f"packs expect an array of float64 or float32; got {array.dtype}. Convert it.")
    return _PACK if array.dtype == types.float64 else _SINGLE


def _address(context: Any, builder: Any, pack: _PackType, kind: Any, array: Any, offset: Any) -> Any:
    data = context.make_array(kind)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [offset]), pack.vector.as_pointer())


def _call(builder: Any, name: str, arguments: list[Any]) -> Any:
    vector = arguments[0].type
    kind = ir.FunctionType(vector, [vector] * len(arguments))
    suffix = f"v{vector.count}{'f64' if vector.element == ir.DoubleType() else 'f32'}"
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, f"{name}.{suffix}"), arguments)


def _splat(builder: Any, number: Any, pack: _PackType) -> Any:
    undefined = ir.Constant(pack.vector, ir.Undefined)
    first = builder.insert_element(undefined, number, ir.Constant(ir.IntType(32), 0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), pack.lanes), [0] * pack.lanes)
    return builder.shuffle_vector(first, undefined, zeros)


@_operation
def width(_: Any, array: Any) -> tuple[Any, _Emit]:
    """Lanes of the packs of this array; known when the kernel is compiled."""
    lanes = _kind(array).lanes
    return types.intp(array), lambda context, builder, signature, given: context.get_constant(types.intp, lanes)


@_operation
def load(_: Any, array: Any, position: Any) -> tuple[Any, _Emit]:
    """Read pack number `position` of a flat array. Nothing checks the bounds."""
    pack = _kind(array)

    def emit(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        offset = builder.mul(given[1], given[1].type(pack.lanes))
        return builder.load(_address(context, builder, pack, signature.args[0], given[0], offset), align=pack.align)

    return pack(array, types.intp), emit


@_operation
def load_at(_: Any, array: Any, offset: Any) -> tuple[Any, _Emit]:
    """Read the lanes of one pack of a flat array from element `offset` on."""
    pack = _kind(array)

    def emit(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        return builder.load(_address(context, builder, pack, signature.args[0], given[0], given[1]), align=pack.align)

    return pack(array, types.intp), emit


@_operation
def _load_some(_: Any, array: Any, offset: Any, count: Any) -> tuple[Any, _Emit]:
    """Read `count` values from element `offset` on and repeat the last of them in the lanes beyond."""
    pack = _kind(array)

    def emit(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, given[0]).data
        last = builder.sub(given[2], given[2].type(1))
        some = ir.Constant(pack.vector, ir.Undefined)
        for lane in range(pack.lanes):
            own = last.type(lane)
            index = builder.add(given[1], builder.select(builder.icmp_signed("<", own, last), own, last))
            value = builder.load(builder.gep(data, [index]))
            some = builder.insert_element(some, value, ir.Constant(ir.IntType(32), lane))
        return some

    return pack(array, types.intp, types.intp), emit


@_operation
def store(_: Any, array: Any, position: Any, value: Any) -> tuple[Any, _Emit]:
    """Write pack number `position` of a flat array. Nothing checks the bounds."""
    pack = _kind(array)

    def emit(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        offset = builder.mul(given[1], given[1].type(pack.lanes))
        place = _address(context, builder, pack, signature.args[0], given[0], offset)
        builder.store(given[2], place, align=pack.align)
        return context.get_dummy_value()

    return types.void(array, types.intp, pack), emit


@_operation
def store_at(_: Any, array: Any, offset: Any, value: Any) -> tuple[Any, _Emit]:
    """Write the lanes of one pack of a flat array from element `offset` on."""
    pack = _kind(array)

    def emit(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        place = _address(context, builder, pack, signature.args[0], given[0], given[1])
        builder.store(given[2], place, align=pack.align)
        return context.get_dummy_value()

    return types.void(array, types.intp, pack), emit


@_operation
def _store_some(_: Any, array: Any, offset: Any, count: Any, value: Any) -> tuple[Any, _Emit]:
    """Write the first `count` lanes from element `offset` on."""
    pack = _kind(array)

    def emit(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, given[0]).data
        for lane in range(pack.lanes):
            own = given[2].type(lane)
            with builder.if_then(builder.icmp_signed("<", own, given[2])):
                number = builder.extract_element(given[3], ir.Constant(ir.IntType(32), lane))
                builder.store(number, builder.gep(data, [builder.add(given[1], own)]))
        return context.get_dummy_value()

    return types.void(array, types.intp, types.intp, pack), emit


@_operation
def full(_: Any, value: Any) -> tuple[Any, _Emit]:
    """Put one number into every lane of a pack of float64."""
    return _PACK(types.float64), lambda context, builder, signature, given: _splat(builder, given[0], _PACK)


@_operation
def full_like(_: Any, array: Any, value: Any) -> tuple[Any, _Emit]:
    """Put one number into every lane of a pack such as this array has, rounded if that is float32."""
    pack = _kind(array)

    def emit(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        return _splat(builder, context.cast(builder, given[1], types.float64, pack.element), pack)

    return pack(array, types.float64), emit


@_operation
def narrow(_: Any, low: Any, high: Any) -> tuple[Any, _Emit]:
    """Round two packs of float64 to one of float32, the first in its lower lanes."""

    def emit(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        order = ir.Constant(ir.VectorType(ir.IntType(32), SINGLE_WIDTH), list(range(SINGLE_WIDTH)))
        return builder.fptrunc(builder.shuffle_vector(given[0], given[1], order), _SINGLE.vector)

    return _SINGLE(_PACK, _PACK), emit


def _widened(first: int) -> _Emit:
    def emit(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        order = ir.Constant(ir.VectorType(ir.IntType(32), WIDTH), list(range(first, first + WIDTH)))
        return builder.fpext(builder.shuffle_vector(given[0], given[0], order), _PACK.vector)

    return emit


@_operation
def widen_low(_: Any, a: Any) -> tuple[Any, _Emit]:
    """Give the lower lanes of a pack of float32 as float64."""
    return _PACK(_SINGLE), _widened(0)


@_operation
def widen_high(_: Any, a: Any) -> tuple[Any, _Emit]:
    """Give the upper lanes of a pack of float32 as float64."""
    return _PACK(_SINGLE), _widened(WIDTH)


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


@compiled(nogil=True, error_model="numpy")
def take(values, offset, count):  # written: nothing
    """Read `count` lanes from element `offset` on; an incomplete tile repeats its last lane."""
    return load_at(values, offset) if count == width(values) else _load_some(values, offset, count)


@compiled(nogil=True, error_model="numpy")
def put(values, offset, count, pack):  # written: values
    """Write `count` lanes from element `offset` on."""
    if count == width(values):
        store_at(values, offset, pack)
    else:
        _store_some(values, offset, count, pack)


def take_as(array, values, offset, count):  # written: nothing
    """Read `count` lanes of float64 as a pack such as `array` has; an incomplete tile repeats its last lane."""
    raise NotImplementedError("take_as is for kernels: numba compiles what _take_as gives for the array's kind")


@overload(take_as)
def _take_as(array, values, offset, count):  # unannotated: numba compares the signatures to the letter
    def double(array, values, offset, count):
        return take(values, offset, count)

    def single(array, values, offset, count):
        low = take(values, offset, min(count, WIDTH))
        if count > WIDTH:
            return narrow(low, take(values, offset + WIDTH, count - WIDTH))
        return narrow(low, take(values, offset + count - 1, 1))

    return double if _kind(array) == _PACK else single
