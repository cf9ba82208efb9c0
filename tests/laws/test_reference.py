"""Constraint errors of fields that the authors released, recomputed: a check of every discretization.

The arrays are not part of the repository; without them the tests are skipped. Expected values are given with the digits
they are known to, and must be met to half a unit of the last one.
"""

import math
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
import torch

import snapfm
from snapfm.metrics.scores import constraint_errors

DATA = Path(__file__).parents[2] / ".." / "shared" / "data"

pytestmark = [
    pytest.mark.reference,
    pytest.mark.skipif(not DATA.is_dir(), reason="the released arrays are not at ../shared/data"),
]


def load(file, array):
    """Read float64 fields (b, *space, t) from [sample, time, ..., x]."""
    with np.load(DATA / file) as arrays:
        values = torch.from_numpy(arrays[array].astype(np.float64))
    return values.permute(0, *range(values.ndim - 1, 0, -1))


def errors(problem, fields, params):
    """Give the constraint error of every law; all samples share the params."""
    shared = {name: value[None] for name, value in params.items()}
    return [one.error.value for one in constraint_errors(problem.laws, fields, shared)]


def assert_digits(found, listed):
    for value, expected in zip(found, listed, strict=True):
        unit = float(Decimal(1).scaleb(Decimal(expected).as_tuple().exponent))
        assert abs(value - float(expected)) <= 0.5 * unit, (found, listed)


@pytest.mark.parametrize(
    ("array", "listed"),
    [
        ("exa_gpu", ["2.563e-6", "2.04e-6", "4.334e-5", "3.728e-5"]),
        ("exa_cpu", ["7.444e-7", "2.9e-7", "4.057e-5", "0"]),
    ],
)
def test_heat_with_pde_and_energy(array, listed):
    problem = snapfm.problem("heat-ic-mass-pde-energy", discretization="release")
    # The release asked for this initial state, in float32 and on an axis that ends at 2·float32(π).
    x = torch.linspace(0.0, 2 * float(np.float32(math.pi)), 100, dtype=torch.float64)
    params = {"u0": torch.sin(x + math.pi / 4).float().double()}
    assert_digits(errors(problem, load("heat2.npz", array), params), listed)


@pytest.mark.parametrize(
    ("array", "listed"),
    # The raw network's first error is listed as 3.27, which is 3.2647 rounded twice.
    [("e5_exa_cpu", ["6.00e-7", "1.4e-7"]), ("ffm", ["3.265", "3.9e-2"])],
)
def test_reaction_diffusion(array, listed):
    problem = snapfm.problem("reaction-diffusion-ic-mass", discretization="release")
    with np.load(DATA / "rd.npz") as arrays:
        params = {"u0": torch.from_numpy(arrays["u0"].astype(np.float64))}
    assert_digits(errors(problem, load("rd.npz", array), params), listed)


def test_navier_stokes():
    problem = snapfm.problem("navier-stokes-ic-mass-enstrophy", discretization="release")
    params = {"u0": problem.params(1)["u0"][0]}
    assert_digits(errors(problem, load("ns.npz", "lbfgs"), params), ["2.647", "2.4e-4", "0.2489"])
