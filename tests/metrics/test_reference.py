"""The metrics on fields that the authors released: noise and failed solves are flagged, good fields are not.

The arrays are not part of the repository; without them the tests are skipped.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import snapfm
from snapfm.metrics.scores import Scores, scores
from snapfm.seeds import stream
from snapfm_bench.problems.base import uniform
from snapfm_bench.problems.reaction_diffusion import DIFFUSIVITY, LEFT_FLUX, RATE, RIGHT_FLUX, strang_fields

DATA = Path(__file__).parents[2] / ".." / "shared" / "data"
TRUTH = 12

pytestmark = [
    pytest.mark.reference,
    pytest.mark.skipif(not DATA.is_dir(), reason="the released arrays are not at ../shared/data"),
]

PROBLEMS = {
    "heat2": ("heat-ic-mass-pde-energy", {"discretization": "release"}),
    "rd": ("reaction-diffusion-ic-mass", {"discretization": "release"}),
    "ns": ("navier-stokes-ic-mass-enstrophy", {"discretization": "release", "resolution": 32}),
    "burgers": ("burgers-ic-mass-flux", {}),
}


def judged(file: str, array: str) -> Scores:
    """Score released fields [sample, time, ..., x] with the problem of their name."""
    kind = (array if file.startswith("failed") else file).split("_")[0].removesuffix(".npz")
    name, settings = PROBLEMS[kind]
    problem = snapfm.problem(name, **settings)
    truth, params = problem.draw_truth(1, 0, TRUTH)
    with np.load(DATA / file) as arrays:
        values = torch.from_numpy(arrays[array].astype(np.float64))
    if kind == "rd":  # its initial state is one of the authors' own: true fields start from it too
        with np.load(DATA / "rd.npz") as arrays:
            start = torch.from_numpy(arrays["u0"].astype(np.float64)).expand(TRUTH, -1)
        random = stream(0, 0)
        flux = torch.stack(
            [torch.stack([uniform(random, LEFT_FLUX), uniform(random, RIGHT_FLUX)]) for _ in range(TRUTH)]
        )
        truth, params = strang_fields(problem.grid, start, flux, RATE, DIFFUSIVITY), {"u0": start}
    if array == "ffm":  # a network without any law draws its own initial states, as training did
        truth = problem.draw_fields(1, 0, TRUTH)
    fields = values.permute(0, *range(values.ndim - 1, 0, -1))
    return scores(problem.laws, fields, {name: value[:1] for name, value in params.items()}, truth)


@pytest.mark.parametrize(
    ("file", "array"),
    [("heat2.npz", "exa_gpu"), ("rd.npz", "e5_exa_cpu"), ("ns.npz", "jump_ipopt"), ("rd.npz", "ffm")],
)
def test_good_fields_look_like_true_ones(file: str, array: str) -> None:
    assert judged(file, array).texture.alike


def test_feasible_white_noise_is_flagged() -> None:
    found = judged("ns.npz", "exa_cpu")
    assert max(law.error.value for law in found.laws) < 1e-4  # it obeys every law
    assert found.texture.noise.all()


@pytest.mark.parametrize(
    "array",
    [
        "heat2_june_exa_gpu", "heat2_june_exa_cpu", "ns_july_exa_gpu", "ns_june_exa_cpu", "burgers_k1_june_exa_cpu",
        "burgers_k5_june_exa_cpu", "rd_july_e5_exa_gpu", "heat2_july_e5_exa_gpu",
    ],
)  # fmt: skip
def test_failed_solves_are_flagged(array: str) -> None:
    found = judged("failed_outputs.npz", array)
    assert max(law.error.value for law in found.laws) > 1e-2 or not found.texture.alike
