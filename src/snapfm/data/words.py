"""What the variables of a data file are called in words. All quantities are dimensionless, as the equations are."""

from __future__ import annotations

UNITS = "1"  # dimensionless, as CF conventions write it

FIELDS = {
    "heat": "temperature",
    "burgers": "velocity",
    "reaction-diffusion": "concentration",
    "navier-stokes": "vorticity",
}

AXES = {"x": "position along x", "y": "position along y", "t": "physical time"}

PARAMS = {
    "u0": "initial state",
    "alpha": "diffusivity",
    "phase": "phase of the initial sine",
    "position": "position of the initial step",
    "left": "value at the left end",
    "flux_left": "diffusive flux at the left end, along x",
    "flux_right": "diffusive flux at the right end, along x",
    "force_phase": "phase of the forcing",
}
