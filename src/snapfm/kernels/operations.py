"""The compiled code of the table of operators: values and derivatives of eight lanes at once.

`apply`, `slopes` and `second_partials` branch once per pack. Operators without an instruction are evaluated lane by lane
(kernels.numba.by_lane). Imports kernels only.
"""

from __future__ import annotations

from typing import Any

from snapfm.kernels.numba.by_lane import SPILL, called
from snapfm.kernels.numba.compiling import compiled
from snapfm.kernels.numba.packs import WIDTH, absolute, add, div, fnma, full, mul, pick, root
from snapfm.kernels.operators import NO_SECOND_PARTIALS, NO_SLOPES, SECOND_PARTIALS, SLOPES, VALUES, Op

__all__ = ["LANES", "SPILL", "apply", "second_partials", "slopes"]

LANES = WIDTH  # samples of a tile, as in the linear solver


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
