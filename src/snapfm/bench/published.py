"""What the SNAP-FM paper and its release published: runtimes, their scaling, and constraint errors.

Of other hardware and other networks than any machine this runs on. None is a run that did not finish within the paper's budget; a
key that is absent was not published. Imports nothing of snapfm.
"""

from __future__ import annotations

from dataclasses import dataclass

HARDWARE = "1× L40S + 4 cores"
STEPS = 100  # flow steps of every published run
TOLERANCE = 1e-5
BUDGET_HOURS = 6
BEST = "Exa+MadNLP GPU"  # the method the paper proposes

# problem: samples of its published runs
SAMPLES: dict[str, int] = {
    "heat-ic-mass": 32,
    "heat-ic-mass-pde-energy": 32,
    "burgers-bc-mass": 32,
    "burgers-ic-mass-flux": 32,
    "reaction-diffusion-ic-mass": 32,
    "navier-stokes-ic-mass-enstrophy": 2,
}

TITLES: dict[str, str] = {
    "heat-ic-mass": "Heat-1",
    "heat-ic-mass-pde-energy": "Heat-2",
    "burgers-bc-mass": "Burgers BC",
    "burgers-ic-mass-flux": "Burgers IC, flux 5",
    "reaction-diffusion-ic-mass": "Reaction–diffusion",
    "navier-stokes-ic-mass-enstrophy": "Navier–Stokes",
}

# problem: column: seconds of a whole run, network included
RUNTIMES: dict[str, dict[str, float | None]] = {
    "heat-ic-mass": {
        BEST: 11.73, "Exa+MadNLP CPU": 14.29, "JuMP+MadNLP": 137.94, "JuMP+Ipopt": 182.72, "IPNewton": 6225.35,
        "L-BFGS": 1623.98,
    },
    "heat-ic-mass-pde-energy": {
        BEST: 110.26, "Exa+MadNLP CPU": 3501.11, "JuMP+MadNLP": None, "JuMP+Ipopt": None, "IPNewton": None, "L-BFGS": 977.87,
    },
    "burgers-bc-mass": {
        BEST: 153.53, "Exa+MadNLP CPU": 109.74, "JuMP+MadNLP": 438.26, "JuMP+Ipopt": 1177.00, "IPNewton": None,
        "L-BFGS": 170.04,
    },
    "burgers-ic-mass-flux": {
        BEST: 38.83, "Exa+MadNLP CPU": 2048.83, "JuMP+MadNLP": None, "JuMP+Ipopt": None, "IPNewton": None, "L-BFGS": None,
    },
    "reaction-diffusion-ic-mass": {
        BEST: 35.68, "Exa+MadNLP CPU": 24.58, "JuMP+MadNLP": 173.15, "JuMP+Ipopt": 228.80, "IPNewton": 2314.20,
        "L-BFGS": 484.19,
    },
    "navier-stokes-ic-mass-enstrophy": {
        BEST: 45.69, "Exa+MadNLP CPU": 118.49, "JuMP+MadNLP": 79.20, "JuMP+Ipopt": 59.38, "IPNewton": None, "L-BFGS": 298.30,
    },
}  # fmt: skip

# problem: seconds of the network within these runs; the upper figure where the paper gives a range, which favors the
# published projection. Navier–Stokes: not published.
NETWORK: dict[str, float] = {
    "heat-ic-mass": 3.5,
    "heat-ic-mass-pde-energy": 3.5,
    "burgers-bc-mass": 3.9,
    "burgers-ic-mass-flux": 3.9,
    "reaction-diffusion-ic-mass": 2.0,
}

# problem: column: law: mean over samples of ‖R‖₂
ERRORS: dict[str, dict[str, dict[str, float]]] = {
    "heat-ic-mass": {
        BEST: {"initial": 7.7e-7, "mass": 6.6e-6},
        "Exa+MadNLP CPU": {"initial": 1.1e-6, "mass": 9.3e-6},
        "JuMP+Ipopt": {"initial": 7.4e-7, "mass": 1.4e-5},
        "L-BFGS": {"initial": 1.4e-6, "mass": 2.246},
    },
    "heat-ic-mass-pde-energy": {
        BEST: {"initial": 2.6e-6, "mass": 2.1e-6, "pde": 4.3e-5, "energy": 3.7e-5},
        "Exa+MadNLP CPU": {"initial": 7.4e-7, "mass": 3.6e-7, "pde": 4.1e-5, "energy": 0.0},
        "L-BFGS": {"initial": 1.4e-6, "mass": 4.8e-4, "pde": 1.4e-2, "energy": 0.0},
    },
    "burgers-bc-mass": {
        BEST: {"dirichlet": 0.0, "neumann": 0.0, "mass": 7.0e-7},
        "Exa+MadNLP CPU": {"dirichlet": 0.0, "neumann": 0.0, "mass": 6.7e-7},
        "JuMP+Ipopt": {"dirichlet": 0.0, "neumann": 0.0, "mass": 6.6e-7},
        "L-BFGS": {"dirichlet": 5.5e-5, "neumann": 7.8e-6, "mass": 3.5e-2},
    },
    "burgers-ic-mass-flux": {
        BEST: {"initial": 6.6e-6, "mass": 2.7e-5, "flux": 1.2e-5},
        "Exa+MadNLP CPU": {"initial": 9.8e-7, "mass": 6.1e-7, "flux": 2.5e-6},
    },
    "reaction-diffusion-ic-mass": {
        BEST: {"initial": 1.4e-6, "mass": 6.5e-5},
        "Exa+MadNLP CPU": {"initial": 6.3e-7, "mass": 9.2e-7},
        "JuMP+Ipopt": {"initial": 2.8e-32, "mass": 9.0e-7},
        "L-BFGS": {"initial": 8.4e-7, "mass": 4.5e-3},
    },
    "navier-stokes-ic-mass-enstrophy": {
        BEST: {"initial": 1.7e-10, "mass": 2.0e-5, "enstrophy": 6.8e-7},
        "Exa+MadNLP CPU": {"initial": 1.3e-6, "mass": 9.9e-6, "enstrophy": 6.0e-7},
        "JuMP+Ipopt": {"initial": 0.0, "mass": 8.9e-5, "enstrophy": 4.2e-7},
        "L-BFGS": {"initial": 2.647, "mass": 3.2e-4, "enstrophy": 0.25},
    },
}


@dataclass(frozen=True)
class Scaling:
    """Seconds of whole runs by column and size; `axis` is what grows."""

    problems: frozenset[str]
    axis: str
    unknowns: int
    samples: int | None  # None: they are what grows
    seconds: dict[str, dict[int, float | None]]


SCALING: tuple[Scaling, ...] = (
    Scaling(  # IC; IC and mass; flux 1, 5 and 10 with them
        frozenset(("burgers-ic", "burgers-ic-mass", "burgers-ic-mass-flux")),
        "rows",
        10_201,
        32,
        {
            BEST: {101: 6.90, 202: 19.32, 301: 24.23, 697: 39.03, 1192: 62.95},
            "Exa+MadNLP CPU": {101: 25.56, 202: 24.40, 301: 1632.12, 697: 2038.96, 1192: None},
            "JuMP+MadNLP": {101: 155.33, 202: 346.27, 301: None, 697: None, 1192: None},
            "JuMP+Ipopt": {101: 156.28, 202: None, 301: None, 697: None, 1192: None},
            "IPNewton": {101: 50.38, 202: None, 301: None, 697: None, 1192: None},
            "L-BFGS": {101: 3.92, 202: None, 301: None, 697: None, 1192: None},
        },
    ),
    Scaling(  # from the release's logs
        frozenset(("heat-ic-mass",)),
        "samples",
        10_000,
        None,
        {
            BEST: {8: 4.0, 16: 5.9, 32: 11.7, 64: 22.0, 128: 43.7, 256: 100.0},
            "Exa+MadNLP CPU": {8: 3.2, 16: 6.8, 32: 14.3, 64: 28.3, 128: 55.9, 256: 120.0},
            "JuMP+Ipopt": {8: 40.0, 16: 79.0, 32: 183.0, 64: 392.0, 128: 795.0, 256: 1700.0},
        },
    ),
)
