"""Every problem by name: sizes as published, kinds of rows, variants, and what a wrong setting says."""

import pytest
import torch

import snapfm
from snapfm.compile import RowKind, compile_laws
from snapfm.errors import LawError, ShapeError, UnknownName
from snapfm_bench.problems import names

AFFINE, PARAMETRIC, SEPARABLE, GENERAL = RowKind

# name, settings, {law: (rows, non-zeros, kind of every row)}
SIZES = [
    ("heat-ic-mass", {}, {"initial": (100, 100, AFFINE), "mass": (99, 9801, AFFINE)}),
    (
        "heat-ic-mass-pde-energy",
        {},
        {
            "initial": (100, 100, AFFINE),
            "mass": (99, 9900, AFFINE),
            "pde": (490, 1960, AFFINE),
            "energy": (99, 19800, SEPARABLE),
        },
    ),
    (
        "heat-ic-mass-pde-energy",
        {"energy": "equality"},
        {
            "initial": (100, 100, AFFINE),
            "mass": (99, 9900, AFFINE),
            "pde": (490, 1960, AFFINE),
            "energy": (99, 19800, GENERAL),
        },
    ),
    (
        "heat-ic-mass-implicit",
        {},
        {
            "initial": (100, 100, AFFINE),
            "mass": (99, 9801, AFFINE),
            "periodic": (99, 198, AFFINE),
            "pde": (490, 2940, PARAMETRIC),
        },
    ),
    (
        "heat-ic-mass-implicit",
        {"scheme": "kernel"},
        {
            "initial": (100, 100, AFFINE),
            "mass": (99, 9801, AFFINE),
            "periodic": (99, 198, AFFINE),
            "pde": (490, 49000, PARAMETRIC),
        },
    ),
    (
        "burgers-bc-mass",
        {},
        {"dirichlet": (101, 101, AFFINE), "neumann": (101, 202, AFFINE), "mass": (100, 20200, SEPARABLE)},
    ),
    (
        "burgers-bc-mass",
        {"mass": "constant"},
        {"dirichlet": (101, 101, AFFINE), "neumann": (101, 202, AFFINE), "mass": (100, 20200, AFFINE)},
    ),
    (
        "burgers-bc-mass",
        {"mass": "flux"},
        {"dirichlet": (101, 101, AFFINE), "neumann": (101, 202, AFFINE), "mass": (100, 20000, SEPARABLE)},
    ),
    ("burgers-ic", {}, {"initial": (101, 101, AFFINE)}),
    ("burgers-ic-mass", {}, {"initial": (101, 101, AFFINE), "mass": (101, 10201, AFFINE)}),
    *(
        (
            "burgers-ic-mass-flux",
            {"flux_steps": steps, "flux": flux},
            {
                "initial": (101, 101, AFFINE),
                "mass": (101, 10201, AFFINE),
                "flux": (99 * steps, 4 * 99 * steps, SEPARABLE),
            },
        )
        for steps, flux in ((1, "smoothed"), (5, "smoothed"), (10, "smoothed"), (5, "godunov"))
    ),
    (
        "burgers-ic-mass-flux",
        {"mass": "flux"},
        {
            "initial": (101, 101, AFFINE),
            "mass": (95, 19000, SEPARABLE),
            "flux": (495, 1980, SEPARABLE),
        },
    ),
    (
        "burgers-ic-mass-entropy",
        {},
        {
            "initial": (101, 101, AFFINE),
            "mass": (100, 20000, SEPARABLE),
            "entropy": (10000, 20000, AFFINE),
        },
    ),
    ("reaction-diffusion-ic-mass-bounds", {}, {"initial": (64, 64, AFFINE), "mass": (99, 12672, SEPARABLE)}),
    ("reaction-diffusion-ic-mass", {}, {"initial": (64, 64, AFFINE), "mass": (99, 12672, SEPARABLE)}),
    ("reaction-diffusion-ic-mass", {"nx": 128}, {"initial": (128, 128, AFFINE), "mass": (99, 25344, SEPARABLE)}),
    ("navier-stokes-ic-mass", {}, {"initial": (256, 256, AFFINE), "mass": (49, 12544, AFFINE)}),
    (
        "navier-stokes-ic-mass-enstrophy",
        {},
        {"initial": (256, 256, AFFINE), "mass": (49, 12544, AFFINE), "enstrophy": (49, 12544, SEPARABLE)},
    ),
]

# The published totals: rows and non-zeros of the stacked Jacobian.
TOTALS = {
    ("heat-ic-mass", ()): (199, 9901),
    ("heat-ic-mass-pde-energy", ()): (689 + 99, 31760),
    ("burgers-bc-mass", ()): (302, 20503),
    ("burgers-ic", ()): (101, 101),
    ("burgers-ic-mass", ()): (202, 10302),
    ("burgers-ic-mass-flux", (("flux_steps", 1), ("flux", "smoothed"))): (301, 10698),
    ("burgers-ic-mass-flux", (("flux_steps", 5), ("flux", "smoothed"))): (697, 12282),
    ("burgers-ic-mass-flux", (("flux_steps", 10), ("flux", "smoothed"))): (1192, 14262),
    ("reaction-diffusion-ic-mass", ()): (163, 12736),
    ("reaction-diffusion-ic-mass", (("nx", 128),)): (227, 25472),
    ("navier-stokes-ic-mass-enstrophy", ()): (354, 25344),
}

# One small version of every problem and variant, for checks against dense derivatives.
SMALL = [
    ("heat-ic-mass", {"nx": 7, "nt": 5}),
    ("heat-ic-mass-pde-energy", {"nx": 7, "nt": 5, "pde_steps": 2}),
    ("heat-ic-mass-pde-energy", {"nx": 7, "nt": 5, "pde_steps": 2, "energy": "equality"}),
    ("heat-ic-mass-implicit", {"nx": 7, "nt": 5, "pde_steps": None}),
    ("heat-ic-mass-implicit", {"nx": 8, "nt": 5, "pde_steps": 2, "scheme": "kernel"}),
    *(("burgers-bc-mass", {"nx": 7, "nt": 5, "mass": mass}) for mass in ("balance", "constant", "flux")),
    *(("burgers-ic-mass", {"nx": 7, "nt": 5, "mass": mass}) for mass in ("balance", "constant", "flux")),
    *(("burgers-ic-mass-flux", {"nx": 7, "nt": 5, "flux_steps": 2, "flux": flux}) for flux in ("smoothed", "godunov")),
    ("burgers-ic-mass-entropy", {"nx": 7, "nt": 5}),
    ("reaction-diffusion-ic-mass", {"nx": 7, "nt": 5}),
    ("reaction-diffusion-ic-mass", {"nx": 7, "nt": 5, "inner": True}),
    ("navier-stokes-ic-mass-enstrophy", {"size": 4, "nt": 3, "resolution": 8}),
]


def seeded(number: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(number)


def test_the_registry_holds_the_benchmark():
    assert names() == sorted({name for name, _, _ in SIZES})
    for name in names():
        assert snapfm.problem(name).name == name


@pytest.mark.parametrize(("name", "settings", "laws"), SIZES)
def test_rows_non_zeros_and_kinds(name, settings, laws):
    problem = snapfm.problem(name, **settings)
    structure = compile_laws(problem.laws, problem.grid.shape, problem.params(1, seeded()))
    found = {
        law: (
            rows.stop - rows.start,
            int(structure.pattern.counts[rows].sum()),
            *map(RowKind, sorted(set(structure.kinds[rows].tolist()))),
        )
        for law, rows in structure.slices().items()
    }
    assert structure.opaque == {}  # all of them take the fast path
    assert found == laws
    total = TOTALS.get((name, tuple(settings.items())))
    assert total is None or (structure.rows, structure.nnz) == total


@pytest.mark.parametrize(("name", "settings"), SMALL)
def test_structure_agrees_with_dense_derivatives(name, settings):
    problem = snapfm.problem(name, **settings)
    params = problem.params(2, seeded())
    structure = compile_laws(problem.laws, problem.grid.shape, params)
    structure.verify(torch.randn(2, *problem.grid.shape, generator=seeded(), dtype=torch.float64), params)


def test_only_the_release_setting_runs_the_release_clock():
    for name in ("heat-ic-mass-pde-energy", "reaction-diffusion-ic-mass"):
        grid, release = snapfm.problem(name), snapfm.problem(name, discretization="release")
        assert grid.grid == release.grid
        u = torch.rand(grid.grid.shape, generator=seeded(), dtype=torch.float64)
        params = {"u0": grid.params(1, seeded())["u0"][0]}
        gaps = [
            (a.residual(u, params) - b.residual(u, params)).abs().max() > 0 for a, b in zip(grid.laws, release.laws)
        ]
        assert any(gaps)
        assert not gaps[0]  # the initial condition knows no clock


def test_the_release_measures_vorticity_on_both_ends():
    axis = snapfm.problem("navier-stokes-ic-mass", discretization="release").grid.axis("x")
    assert axis.spacing == pytest.approx(1 / 15)
    assert snapfm.problem("navier-stokes-ic-mass").grid.axis("x").spacing == pytest.approx(1 / 16)


@pytest.mark.parametrize(
    ("name", "settings", "error", "words"),
    [
        ("burgers", {}, UnknownName, r"snapfm\.problem\(name\) expects one of \[.*\]; got 'burgers'\."),
        (
            "burgers-bc-mass",
            {"mass": "exact"},
            UnknownName,
            r"burgers_bc_mass\(mass\) expects one of .*; got 'exact'\.",
        ),
        (
            "burgers-ic-mass-flux",
            {"flux_steps": 101},
            LawError,
            r"burgers_ic_mass_flux\(flux_steps\) expects a whole number from 1 to 100.*; got 101\. Leave the law out",
        ),
        ("burgers-ic-mass-flux", {"flux": "roe"}, LawError, r"flux expects one of .*; got 'roe'\."),
        ("heat-ic-mass-pde-energy", {"energy": "growth"}, UnknownName, r"\(energy\) expects one of .*; got 'growth'\."),
        ("heat-ic-mass-pde-energy", {"pde_steps": 0}, LawError, r"\(pde_steps\) expects .*; got 0\. Leave"),
        ("heat-ic-mass-implicit", {"scheme": "euler"}, UnknownName, r"\(scheme\) expects one of .*; got 'euler'\."),
        ("reaction-diffusion-ic-mass", {"discretization": "paper"}, UnknownName, r"\(discretization\) expects one of"),
        ("navier-stokes-ic-mass", {"state": "calm"}, UnknownName, r"\(state\) expects one of .*; got 'calm'\."),
        ("navier-stokes-ic-mass", {"resolution": 23}, ShapeError, r"\(resolution\) expects at least 24, .*; got 23\."),
    ],
)
def test_wrong_settings_say_what_was_expected_and_what_to_do(name, settings, error, words):
    with pytest.raises(error, match=words):
        snapfm.problem(name, **settings)


@pytest.mark.parametrize("count", [0, 1.5])
def test_counts_are_checked_at_the_door(count):
    problem = snapfm.problem("burgers-ic")
    for call in (problem.params, problem.simulate, problem.truth):
        with pytest.raises(ShapeError, match=r"expects a whole number >= 1; got .*\. Ask for at least one"):
            call(count)
