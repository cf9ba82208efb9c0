"""Small projections that reach every kernel a flow step may need, and the table of what they call.

`python -m tests.kernels.tour` writes the table (src/snapfm/kernels/numba/signatures.txt), from which kernels are compiled before
anyone calls them: a change of what kernels take, or a new kernel that Python calls, needs it. A test compares.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from numba import types
from torch import Tensor

from snapfm import Bounds, Equality, Inequality, Projector, problem
from snapfm.kernels.numba.ahead import TABLE, parsed
from snapfm.kernels.numba.compiling import Kernel
from snapfm.laws import Law
from snapfm.linear import Fronts

SAMPLES, SEED = 2, 0
_FEW = 5  # iterations are enough to have called a loop


def _project(laws: Sequence[Law], shape: tuple[int, ...], params: Any = None, **settings: Any) -> None:
    """Project, take the gradients, and move as a flow step does."""
    generator = torch.Generator().manual_seed(SEED)
    fields = torch.randn(SAMPLES, *shape, generator=generator, dtype=torch.float64, requires_grad=True)
    call = Projector(laws, shape, params, **settings)
    leaves = {k: v.clone().requires_grad_(v.is_floating_point()) for k, v in (params or {}).items()}
    found = call(fields, leaves)
    found.u.sum().backward()  # type: ignore[no-untyped-call]
    call.move(fields.detach(), params)


def _problem(name: str, **settings: Any) -> Callable[[], None]:
    def stop() -> None:
        chosen = problem(name, **settings)
        params = chosen.params(SAMPLES, torch.Generator().manual_seed(SEED))
        _project(chosen.laws, chosen.grid.shape, params)

    return stop


def _curved(u: Tensor, p: Any) -> Tensor:
    return u[0] * u[1] + torch.sin(u[2]) - 0.5


def _newton() -> None:
    _project([Equality("curved", _curved)], (4,))


def _barrier() -> None:
    laws: list[Law] = [
        Equality("curved", _curved),
        Inequality("disc", lambda u, p: (u**2).sum() - 1.0),
        Bounds(lower=-0.9),
    ]
    _project(laws, (4,))


def _contradiction() -> None:
    """Nothing obeys these laws, which all attempts find out one after the other."""
    laws: list[Law] = [
        Equality("far", lambda u, p: u[0] * u[1] - 5.0),
        Inequality("disc", lambda u, p: (u**2).sum() - 1.0),
    ]
    _project(laws, (3,), limit=_FEW * 100)


def _energies() -> None:
    laws: list[Law] = [
        Equality("mass", lambda u, p: u.sum(0) - 1.0),
        Inequality("decay", lambda u, p: (u[:, 1:] ** 2).sum(0) - (u[:, :-1] ** 2).sum(0)),
        Bounds(lower=-2.0, upper=2.0),
    ]
    _project(laws, (6, 4))


def _kinks() -> None:
    _project([Equality("size", lambda u, p: u.abs().sum() - 1.0)], (4,))


def _opaque() -> None:
    _project([Equality("median", lambda u, p: (u.sort().values[2] - 0.1).reshape(1))], (5,))


def _fronts() -> None:
    _project([Equality("curved", _curved)], (4,), linear=Fronts())


def _totals() -> None:
    laws: list[Law] = [Equality("total", lambda u, p: (u[0] * u[1]).mean() - p["total"]), Bounds(lower=-2.0)]
    _project(laws, (2, 96, 96), {"total": torch.zeros(SAMPLES, dtype=torch.float64)})


STOPS: dict[str, Callable[[], None]] = {
    "newton": _newton,
    "barrier": _barrier,
    "contradiction": _contradiction,
    "march": _problem("heat-ic-mass-implicit", nx=9, nt=9),
    "energies": _energies,
    "burgers": _problem("burgers-ic-mass-flux"),
    "heat": _problem("heat-ic-mass"),
    "heat energy": _problem("heat-ic-mass-pde-energy"),
    "walls": _problem("burgers-bc-mass"),
    "reaction": _problem("reaction-diffusion-ic-mass"),
    "flow": _problem("navier-stokes-ic-mass-enstrophy"),
    "kinks": _kinks,
    "opaque": _opaque,
    "fronts": _fronts,
    "totals": _totals,
}


def table() -> list[str]:
    """Make the tour, in a process that has called no other kernel; list what Python called, as lines of the table."""
    for stop in STOPS.values():
        stop()
    kernels = [one for one in gc.get_objects() if isinstance(one, Kernel) and one._cache.kernel]
    return sorted(_line(one, key) for one in kernels for key in one.overloads)


def _line(kernel: Kernel, key: tuple[Any, ...]) -> str:
    line = f"{kernel._cache.kernel}({', '.join(map(_written, key))})"
    assert parsed(line) == (kernel, key), line
    return line


def _written(kind: Any) -> str:
    """Write a type as Python that makes it, where numba's types have their names."""
    if isinstance(kind, types.BaseNamedTuple):
        of = kind.instance_class
        home = of.__module__.partition("snapfm.kernels.")[2]
        return f"named('{home}.{of.__name__}', {', '.join(map(_written, kind))})"
    if isinstance(kind, types.Array) and kind.mutable and kind.aligned and kind.layout in "AC":
        dimensions = [":"] * kind.ndim
        if kind.layout == "C":
            dimensions[-1] = "::1"
        return f"{kind.dtype}[{', '.join(dimensions)}]"
    return repr(kind)


if __name__ == "__main__":
    lines = "".join(f"{line}\n" for line in table())
    if "--print" in sys.argv:
        print(lines, end="")
    else:
        TABLE.write_text(lines, encoding="utf-8")
