"""Call Python from a compiled loop: for laws that only torch can evaluate, and for factorizations of a library.

A compiled kernel gets the address of a C function as a plain number, so that it is compiled and cached once for all.
`Callback` wraps a Python function. An exception cannot pass through the kernel: it is kept, and `Callback.check` raises it
after the kernel has returned. Imports nothing of snapfm.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic

NO_CALLBACK = 0  # the address that stands for the compiled kernel's own code

_Function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)


class Callback:
    """A Python function of two integers (a task, and the address of a tile's memory) that compiled loops can call.

    The object has to outlive every loop that knows its address.
    """

    def __init__(self, function: Callable[[int, int], None]) -> None:
        self._raised: BaseException | None = None

        def guarded(task: int, memory: int) -> int:
            if self._raised is None:
                try:
                    function(task, memory)
                except BaseException as error:  # raised again by check()
                    self._raised = error
            return int(self._raised is not None)

        self._function = _Function(guarded)

    @property
    def address(self) -> int:
        """The address to hand to a kernel."""
        return ctypes.cast(self._function, ctypes.c_void_p).value or NO_CALLBACK

    def check(self) -> None:
        """Raise what the function raised, if anything."""
        if self._raised is not None:
            raise self._raised


@intrinsic
def call_back(_: Any, address: Any, task: Any, memory: Any) -> tuple[Any, Any]:
    """Call the C function at an address with a task and the address of an array's data; return 0, or 1 if it raised."""

    def emit(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        number = ir.IntType(64)
        kind = ir.FunctionType(number, [number, number])
        data = context.make_array(signature.args[2])(context, builder, given[2]).data
        return builder.call(builder.inttoptr(given[0], kind.as_pointer()), [given[1], builder.ptrtoint(data, number)])

    return types.int64(types.int64, types.int64, memory), emit
