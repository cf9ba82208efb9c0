"""Small calls that reach all parts of the kernels of iterations: forms of the matrix, functions, filters, saddles, failures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.device.captured import Call, newton_calls
from torch import Tensor

import snapfm
from snapfm.kernels import layout
from snapfm.linear import Lanes
from snapfm.solve import kkt

Laws = tuple[snapfm.Projector, Tensor, dict[str, Tensor]]
FEW = 3  # calls of a projection: later ones are attempts on what failed
ORDINARY, TOLERANCE = 1e-3, 1e-8


def _noise(*shape: int, seed: int = 3) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def _bounded() -> Laws:
    laws = [
        snapfm.Equality("energy", lambda u, p: (u**2).sum(0) - p["e"]),
        snapfm.Inequality("cubes", lambda u, p: (u[:, 1:] ** 3).sum(0) - 2.0),
        snapfm.Bounds(lower=-1.2, upper=1.5),
    ]
    energy = 3.0 + _noise(3, 5, seed=4).abs().clamp(max=1.0)
    return snapfm.Projector(laws, (6, 5), {"e": energy[:1]}), _noise(3, 6, 5), {"e": energy}


def _products() -> Laws:
    laws = [
        snapfm.Equality("steps", lambda u, p: torch.exp(0.3 * u[1:]) * u[:-1] - 1.0 + torch.sin(u[1:])),
        snapfm.Inequality("product", lambda u, p: u[0] * u[1] - 0.4),
    ]
    return snapfm.Projector(laws, (4, 5), linear=Lanes()), _noise(2, 4, 5), {}


def _bounded_products() -> Laws:
    laws = [
        snapfm.Equality("product", lambda u, p: u[:-1] * u[1:] - 0.3),
        snapfm.Bounds(lower=-0.7, upper=0.8),
    ]
    return snapfm.Projector(laws, (5, 3), linear=Lanes()), _noise(2, 5, 3, seed=8), {}


def _ellipse(size: int) -> Tensor:
    """A positive matrix whose entries off the diagonal are not zero."""
    root = _noise(size, size, seed=9)
    return root @ root.T + torch.eye(size, dtype=torch.float64)


def _on_ellipse(size: int = 6) -> Laws:
    shape = _ellipse(size)
    laws = [snapfm.Equality("ellipse", lambda u, p: u @ (shape @ u) - 1.0)]
    return snapfm.Projector(laws, (size,), linear=Lanes()), torch.zeros(2, size, dtype=torch.float64), {}


def bounded() -> list[Call]:
    """Energies with bounds, and inequalities on some columns: two systems."""
    return newton_calls(*_bounded())[:FEW]


def augmented() -> list[Call]:
    """Products that couple unknowns, with functions that have no instruction, and inequalities."""
    return newton_calls(*_products())[:FEW]


def augmented_and_bounded() -> list[Call]:
    """The same with bounds that hold."""
    return newton_calls(*_bounded_products())[:FEW]


def eliminated() -> list[Call]:
    """A nonlinear flux beside totals: rows with a share of eliminated unknowns."""
    laws = [
        snapfm.Equality("mass", lambda u, p: u.sum(0) - p["m"]),
        snapfm.Equality("flux", lambda u, p: u[0, 1:] - u[0, :-1] + 0.1 * (u[-1, :-1] ** 2 - u[1, :-1] ** 2)),
    ]
    mass = _noise(2, 6, seed=5)
    return newton_calls(snapfm.Projector(laws, (7, 6), {"m": mass[:1]}), _noise(2, 7, 6, seed=6), {"m": mass})[:FEW]


def coupled() -> list[Call]:
    """Coupled unknowns with the matrix of their rows alone: conjugate gradients, as for laws of many unknowns."""
    return [call for laws in (_products, _bounded_products) for call in _with_gradients(laws)]


def filtered() -> list[Call]:
    """Steps that a filter judges, and full steps that nothing judges."""
    return [call.given(**settings) for call in augmented() for settings in ({"filtered": 1}, {"trials": 0})]


def saddles() -> list[Call]:
    """The farthest point of an ellipse, which meets the conditions of first order: pushed off."""
    shape = _ellipse(6).numpy()
    sizes, axes = np.linalg.eigh(shape)
    found = []
    for call in (*newton_calls(*_on_ellipse())[:1], *_with_gradients(_on_ellipse)[:1]):
        memory = call.before.copy()
        call.section(memory, layout.X)[:] = axes[:, 0] / np.sqrt(sizes[0])
        call.section(memory, layout.MULTIPLIER)[:] = -0.5 / sizes[0]
        found.append(call.given(memory))
    return found


def flat() -> list[Call]:
    """Rows without a slope where iterations begin: nudged."""
    return newton_calls(*_on_ellipse())[:1]


def failing() -> list[Call]:
    """Rows that cannot hold together, given up after a few iterations, and after a few short steps."""
    laws = [snapfm.Equality("circle", lambda u, p: u[0] ** 2 + 2.0 * u[1] ** 2 + p["more"])]
    more = torch.ones(2, 4, dtype=torch.float64)
    calls = newton_calls(snapfm.Projector(laws, (2, 4), {"more": -more[:1]}), _noise(2, 2, 4), {"more": more})[:1]
    short = [replace(call, limits=np.minimum(call.limits, 5)) for call in calls]
    return [call.given(**settings) for call in short for settings in ({}, {"patience": 2}, {"trials": 4})]


def _sharing(law: Callable[[Tensor, Tensor], Tensor], u_hat: Tensor, wanted: Tensor) -> list[Call]:
    """Nonlinear rows that share unknowns of constant slope, which are eliminated: their multipliers are coupled by G."""
    shares = _noise(3, 5, seed=2)
    laws = [snapfm.Equality("rows", lambda u, p: u[1] @ shares.T + law(u[0, :3], u[0, 1:4]) - p["wanted"])]
    project = snapfm.Projector(laws, (2, 5), {"wanted": wanted[:1]})
    return newton_calls(project, u_hat, {"wanted": wanted})[:1]


def pushed_off() -> list[Call]:
    """Rows that share eliminated unknowns, at a saddle: x = 0 has no slope, and the farthest of all x."""
    u_hat = torch.zeros(2, 2, 5, dtype=torch.float64)
    u_hat[:, 1] = 0.1 * _noise(2, 5)
    wanted = torch.tensor([[9.0, 8.0, 7.0], [18.0, 16.0, 14.0]], dtype=torch.float64)
    return _sharing(lambda x, beside: x**2 + 0.3 * beside**2, u_hat, wanted)


def halved() -> list[Call]:
    """Rows that share eliminated unknowns, far from where they hold: steps are halved again and again, and some given up."""
    wanted = 3.0 + _noise(2, 3, seed=11).abs()
    return _sharing(
        lambda x, beside: 10.0 * (torch.exp(2.0 * x) - 3.0 * x * beside + torch.sin(4.0 * beside)),
        4.0 * _noise(2, 2, 5, seed=5), wanted,
    )  # fmt: skip


def _with_gradients(laws: Callable[[], Laws]) -> list[Call]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kkt, "_cheaper", lambda *_: False)
        return newton_calls(*laws())[:FEW]


_NEWTON = (
    bounded, augmented, augmented_and_bounded, eliminated, coupled, filtered, saddles, flat, failing, pushed_off, halved,
)  # fmt: skip
_OTHERS = (bounded, augmented, augmented_and_bounded, eliminated, coupled, flat, failing, halved)
# The other loops from where Newton's method begins: a barrier, firm and with soft equalities, and the violation alone.
_LOOPS: dict[str, tuple[str, tuple[float, ...]]] = {
    "barrier": ("interior", (ORDINARY, 0)),
    "soft_barrier": ("interior", (ORDINARY, 1)),
    "restored": ("restore", (TOLERANCE,)),
}


def _other(case: Callable[[], list[Call]], loop: str) -> Callable[[], list[Call]]:
    """Return the case of another loop, with iterations enough for most."""
    return lambda: [replace(call, limits=np.full_like(call.limits, 40)).of(*_LOOPS[loop]) for call in case()]


CASES = {case.__name__: case for case in _NEWTON} | {
    f"{case.__name__}_{loop}": _other(case, loop) for case in _OTHERS for loop in _LOOPS
}
