"""The benchmark problems by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from snapfm.errors import UnknownName
from snapfm.problems.base import Problem
from snapfm.problems.burgers import burgers_bc_mass, burgers_ic, burgers_ic_mass, burgers_ic_mass_flux
from snapfm.problems.heat import heat_ic_mass, heat_ic_mass_implicit, heat_ic_mass_pde_energy
from snapfm.problems.navier_stokes import navier_stokes_ic_mass, navier_stokes_ic_mass_enstrophy
from snapfm.problems.reaction_diffusion import reaction_diffusion_ic_mass
from snapfm.problems.settings import check_settings, default_settings

_PROBLEMS: dict[str, Callable[..., Problem]] = {
    "heat-ic-mass": heat_ic_mass,
    "heat-ic-mass-pde-energy": heat_ic_mass_pde_energy,
    "heat-ic-mass-implicit": heat_ic_mass_implicit,
    "burgers-bc-mass": burgers_bc_mass,
    "burgers-ic": burgers_ic,
    "burgers-ic-mass": burgers_ic_mass,
    "burgers-ic-mass-flux": burgers_ic_mass_flux,
    "reaction-diffusion-ic-mass": reaction_diffusion_ic_mass,
    "navier-stokes-ic-mass": navier_stokes_ic_mass,
    "navier-stokes-ic-mass-enstrophy": navier_stokes_ic_mass_enstrophy,
}


def names() -> list[str]:
    """List the names `problem` accepts."""
    return sorted(_PROBLEMS)


def problem(name: str, **settings: Any) -> Problem:
    """Build a benchmark problem by name; settings (grid sizes, variants) are those of its builder."""
    if name not in _PROBLEMS:
        raise UnknownName(
            f"snapfm.problem(name) expects one of {names()}; got {name!r}. `snapfm problems` lists them with sizes."
        )
    builder = _PROBLEMS[name]
    check_settings(name, builder, settings)
    return builder(**settings)


def defaults(name: str) -> dict[str, Any]:
    """Give the settings a problem's builder takes, with the values they have when left out."""
    problem(name)  # refuses names it does not know
    return default_settings(_PROBLEMS[name])


__all__ = ["Problem", "defaults", "names", "problem"]
