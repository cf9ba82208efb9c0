"""Small projections that reach every kernel a flow step may need: `python -m snapfm.cli.tour STOP …` compiles and keeps them.

Stops that take the longest to compile come first, so that processes that share the tour end at the same time.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from snapfm import Bounds, Equality, Inequality, Projector, problem
from snapfm.laws import Law
from snapfm.linear import Fronts

SAMPLES, SEED = 2, 0
_FEW = 5  # iterations are enough to have called a loop


def _project(laws: Sequence[Law], shape: tuple[int, ...], params: Any = None, **settings: Any) -> None:
    """Project, take the gradient, and move as a flow step does."""
    generator = torch.Generator().manual_seed(SEED)
    fields = torch.randn(SAMPLES, *shape, generator=generator, dtype=torch.float64, requires_grad=True)
    call = Projector(laws, shape, params, **settings)
    found = call(fields, params)
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
}

if __name__ == "__main__":
    for asked in sys.argv[1:]:
        STOPS[asked]()
        print(asked, flush=True)
