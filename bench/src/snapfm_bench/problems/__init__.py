"""The benchmark problems by name, with a check of their settings against the builder's signature."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from snapfm.errors import SettingError, UnknownName
from snapfm.text import meant
from snapfm_bench.problems.base import Problem
from snapfm_bench.problems.burgers import (
    burgers_bc_mass,
    burgers_ic,
    burgers_ic_mass,
    burgers_ic_mass_entropy,
    burgers_ic_mass_flux,
)
from snapfm_bench.problems.heat import heat_ic_mass, heat_ic_mass_implicit, heat_ic_mass_pde_energy
from snapfm_bench.problems.navier_stokes import navier_stokes_ic_mass, navier_stokes_ic_mass_enstrophy
from snapfm_bench.problems.reaction_diffusion import reaction_diffusion_ic_mass, reaction_diffusion_ic_mass_bounds

_PROBLEMS: dict[str, Callable[..., Problem]] = {
    "heat-ic-mass": heat_ic_mass,
    "heat-ic-mass-pde-energy": heat_ic_mass_pde_energy,
    "heat-ic-mass-implicit": heat_ic_mass_implicit,
    "burgers-bc-mass": burgers_bc_mass,
    "burgers-ic": burgers_ic,
    "burgers-ic-mass": burgers_ic_mass,
    "burgers-ic-mass-flux": burgers_ic_mass_flux,
    "burgers-ic-mass-entropy": burgers_ic_mass_entropy,
    "reaction-diffusion-ic-mass": reaction_diffusion_ic_mass,
    "reaction-diffusion-ic-mass-bounds": reaction_diffusion_ic_mass_bounds,
    "navier-stokes-ic-mass": navier_stokes_ic_mass,
    "navier-stokes-ic-mass-enstrophy": navier_stokes_ic_mass_enstrophy,
}


def names() -> list[str]:
    """List the names `problem` accepts."""
    return sorted(_PROBLEMS)


def problem(name: str, **settings: Any) -> Problem:
    """Build a benchmark problem by name: grid, laws and a simulator.

    Settings (grid sizes, variants) are those of its builder; `defaults(name)` lists them. `problem.grid.shape` is the shape of
    ONE field, `problem.laws` the list for Projector, `problem.params(count)` what the laws read, (count, …) each, and
    `problem.simulate(count)` fields (count, *shape) of the training distribution.
    """
    if name not in _PROBLEMS:
        raise UnknownName(
            f"snapfm.problem(name) expects one of {names()}; got {name!r}. {meant(name, names())}`snapfm problems` lists them "
            "with sizes."
        )
    builder = _PROBLEMS[name]
    known, hints = _defaults(builder), get_type_hints(builder)
    for setting, value in settings.items():
        if setting not in known:
            raise UnknownName(
                f"problem '{name}' expects settings among {list(known)}; got {setting!r}. {meant(setting, known)}Use one of "
                "these names."
            )
        if not _fits(hints[setting], value):
            raise SettingError(
                f"problem '{name}' expects {setting} to be {_words(hints[setting])}; got {value!r}. "
                f"Give such a value, or leave it out for {known[setting]!r}."
            )
    return builder(**settings)


def defaults(name: str) -> dict[str, Any]:
    """Return the settings that a problem's builder takes, with their default values."""
    problem(name)  # refuses unknown names
    return _defaults(_PROBLEMS[name])


def _defaults(builder: Callable[..., Problem]) -> dict[str, Any]:
    return {name: parameter.default for name, parameter in inspect.signature(builder).parameters.items()}


def _fits(hint: Any, value: object) -> bool:
    """Return whether a value has the hinted type; the builder itself checks the names of variants, and lists them."""
    if get_origin(hint) in (Union, UnionType):
        return any(_fits(part, value) for part in get_args(hint))
    if get_origin(hint) is Literal:
        return isinstance(value, str)
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, hint) and not (hint is int and isinstance(value, bool))


def _words(hint: Any) -> str:
    if get_origin(hint) in (Union, UnionType):
        return " or ".join(map(_words, get_args(hint)))
    if get_origin(hint) is Literal:
        return f"one of {list(get_args(hint))}"
    return {int: "a whole number", float: "a number", bool: "true or false", NoneType: "none"}[hint]


__all__ = ["Problem", "defaults", "names", "problem"]
