"""Operators without an instruction, evaluated lane by lane: the part of the table that differs between machines.

Operands go through memory (SPILL) to a function behind a C symbol, which is compiled once. Numba would inline a function that
it knows into every kernel that calls it, so that each row of the table would slow down their compilation. Used by
kernels.operations. Imports kernels only.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.numpy_support import carray

from snapfm.kernels.numba.compiling import c_function, compiled, provide
from snapfm.kernels.numba.packs import WIDTH, load, store
from snapfm.kernels.operators import FUNCTIONS, by_lane

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
        *(f"        {line}" for line in by_lane()),
        "        packs[lane] = f if order == 0 else g if order == 1 else h",
    ]
    functions = {name: njit(error_model="numpy")(function) for name, function in FUNCTIONS.items()}
    scope = {"__name__": __name__, "carray": carray, "np": np, "WIDTH": WIDTH, **functions}
    exec(compile("\n".join(lines), __file__, "exec"), scope)
    return scope["lane_by_lane"]


_KIND = types.void(types.int64, types.int64, types.CPointer(types.float64))
c_function(_SYMBOL, _KIND, _lane_by_lane(), "by_lane.lane_by_lane", error_model="numpy")


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
