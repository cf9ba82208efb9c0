"""Every law of every problem, the paper's and the release's readings included, each listed once.

A variant names the settings that differ from the problem's own and the laws they change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Variant:
    """One reading of a problem; `laws` are those to look at, None for all."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    laws: tuple[str, ...] | None = None


_OWN = Variant()

VARIANTS: dict[str, tuple[Variant, ...]] = {
    "heat-ic-mass": (_OWN,),
    "heat-ic-mass-pde-energy": (
        _OWN,
        Variant({"discretization": "release"}, ("pde",)),
        Variant({"energy": "equality"}, ("energy",)),
    ),
    "heat-ic-mass-implicit": (_OWN, Variant({"pde_steps": None}, ("pde",)), Variant({"scheme": "kernel"}, ("pde",))),
    "burgers-bc-mass": (_OWN, Variant({"mass": "constant"}, ("mass",)), Variant({"mass": "flux"}, ("mass",))),
    "burgers-ic": (_OWN,),
    "burgers-ic-mass": (_OWN, Variant({"mass": "balance"}, ("mass",)), Variant({"mass": "flux"}, ("mass",))),
    "burgers-ic-mass-flux": (
        _OWN,
        Variant({"mass": "flux"}, ("mass",)),
        Variant({"flux": "godunov"}, ("flux",)),
        Variant({"flux_steps": None}, ("flux",)),
    ),
    "reaction-diffusion-ic-mass": (
        _OWN,
        Variant({"nx": 128}, ("mass",)),
        Variant({"inner": True}, ("mass",)),
        Variant({"discretization": "release"}, ("mass",)),
    ),
    "navier-stokes-ic-mass": (
        _OWN,
        Variant({"state": "random"}, ("mass",)),
        Variant({"discretization": "release"}, ("mass",)),
    ),
    "navier-stokes-ic-mass-enstrophy": (
        _OWN,
        Variant({"state": "random"}, ("enstrophy",)),
        Variant({"discretization": "release"}, ("enstrophy",)),
    ),
}
