"""The compiled code of the table of operators: values and derivatives of eight lanes at once.

`apply`, `slopes` and `second_partials` branch once per pack. Operators without an instruction are evaluated lane by lane:
operands go through memory (SPILL) to a function behind a C symbol, which is compiled once. Numba would inline a function that
it knows into every kernel that calls it, so that each row of the table would slow down their compilation. Imports kernels only.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.numpy_support import carray

from snapfm.kernels import operators
from snapfm.kernels.numba.compiling import c_function, compiled, provide
from snapfm.kernels.numba.packs import WIDTH, absolute, add, div, fnma, full, load, mul, pick, root, store
from snapfm.kernels.operators import NO_SECOND_PARTIALS, NO_SLOPES, SECOND_PARTIALS, SLOPES, VALUES, Op

LANES = WIDTH  # samples of a tile, as in the linear solver
SPILL = 2  # packs behind a program's own cells, through which operands go to what is evaluated lane by lane

_SYMBOL = "snapfm_lane_by_lane"


def _lane_by_lane() -> Any:
    """Write a function of all these operators; the value or a derivative overwrites pack a in memory."""
    lines = [
        "def lane_by_lane(op, order, at):",
        "    packs = carray(at, 2 * WIDTH)",
        "    for lane in range(WIDTH):",
        "        a, b = packs[lane], packs[WIDTH + lane]",
        "        f = g = h = 0.0",
        *(f"        {line}" for line in operators.by_lane()),
        "        packs[lane] = f if order == 0 else g if order == 1 else h",
    ]
    functions = {name: njit(error_model="numpy")(function) for name, function in operators.FUNCTIONS.items()}
    scope = {"__name__": __name__, "carray": carray, "np": np, "WIDTH": WIDTH, **functions}
    exec(compile("\n".join(lines), __file__, "exec"), scope)
    return scope["lane_by_lane"]


_KIND = types.void(types.int64, types.int64, types.CPointer(types.float64))
c_function(_SYMBOL, _KIND, _lane_by_lane(), "operations.lane_by_lane", error_model="numpy")


@intrinsic
def _call(_: Any, op: Any, order: Any, cells: Any, offset: Any) -> tuple[Any, Any]:
    """Call the symbol on cells from `offset` on."""
    provide(_SYMBOL)

    def emit(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        number, pointer = ir.IntType(64), ir.DoubleType().as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [number, number, pointer])
        function = cgutils.get_or_insert_function(builder.module, kind, _SYMBOL)
        data = context.make_array(signature.args[2])(context, builder, given[2]).data
        builder.call(function, [given[0], given[1], builder.gep(data, [given[3]])])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, cells, types.intp), emit


@compiled(nogil=True, error_model="numpy")
def called(op, order, a, b, cells, spill):  # written: two packs of cells
    """Evaluate lane by lane: the value (order 0), or the first or second derivative by a, a pack."""
    store(cells, spill, a)
    store(cells, spill + 1, b)
    _call(op, order, cells, spill * WIDTH)
    return load(cells, spill)


def _generated(name: str, lines: list[str], **names: Any) -> Any:
    """Define a function from source, under this file's name: numba caches only functions of a file."""
    scope = {"__name__": __name__, **{op.name: int(op) for op in Op}, **names}
    exec(compile("\n".join(lines), __file__, "exec"), scope)
    return scope[name]


def _branches(rows: dict[Op, str]) -> list[str]:
    """Write one branch for each distinct expression."""
    numbers: dict[str, list[int]] = {}
    for op, expression in rows.items():
        numbers.setdefault(expression, []).append(int(op))
    lines = ["    zero, one = full(0.0), full(1.0)"]
    for expression, ops in numbers.items():
        test = " or ".join(f"op == {number}" for number in ops)
        lines += [f"    if {test}:", f"        return {expression}"]
    return lines


_PACKS = {
    "absolute": absolute,
    "add": add,
    "div": div,
    "fnma": fnma,
    "full": full,
    "mul": mul,
    "pick": pick,
    "root": root,
}


def _dispatch(name: str, arguments: str, rows: dict[Op, str], otherwise: str) -> Any:
    """Compile a function that branches once per pack."""
    lines = [f"def {name}({arguments}):", *_branches(rows), f"    return {otherwise}"]
    return compiled(nogil=True, error_model="numpy")(_generated(name, lines, called=called, **_PACKS))


# Operands are packs; packs spill and spill + 1 of cells are overwritten.
apply = _dispatch("apply", "op, a, b, c, cells, spill", VALUES, "called(op, 0, a, b, cells, spill)")  # the value
slopes = _dispatch("slopes", "op, a, b, c, value, cells, spill", SLOPES, NO_SLOPES)  # f_a, f_b
second_partials = _dispatch(
    "second_partials", "op, a, b, value, by_a, by_b, cells, spill", SECOND_PARTIALS, NO_SECOND_PARTIALS
)  # f_aa, f_ab, f_bb
