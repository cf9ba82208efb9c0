import math

import pytest
import torch

from snapfm.seeds import draw
from snapfm_bench.problems import names, problem
from snapfm_bench.problems.heat import exact
from snapfm_bench.problems.navier_stokes import FORCE_PHASE, navier_stokes_fields, navier_stokes_grid, wide_state
from snapfm_bench.problems.training import (
    IMAGES,
    PLAIN_SETS,
    PLAIN_SETTINGS,
    TRAINING_SETS,
    _flow_image,
    table,
    with_images,
)


@pytest.mark.parametrize("equation", sorted(TRAINING_SETS))
def test_rows_share_the_initial_state_and_columns_what_it_leaves_open(equation: str) -> None:
    fields = table(equation, 2, 3, torch.Generator().manual_seed(0))
    shape = next(problem(name).grid.shape for name in names() if problem(name).equation == equation)
    assert fields.shape == (6, *shape)
    assert fields.dtype == torch.float64
    cells = fields.view(2, 3, *shape)
    start = cells[..., 0]
    inside = start[:, :, 1:-1]  # the ends of a Burgers slice are boundary values
    torch.testing.assert_close(inside, inside[:, :1].expand_as(inside))
    assert not torch.allclose(start[0], start[1])
    assert not torch.allclose(cells[:, 0], cells[:, 1])
    if equation == "burgers":
        left = cells[:, :, 0, 1:]
        torch.testing.assert_close(left[0], left[1])
    assert torch.equal(fields, table(equation, 2, 3, torch.Generator().manual_seed(0)))
    assert not torch.allclose(fields, table(equation, 2, 3, torch.Generator().manual_seed(1)))


def test_plain_models_of_navier_stokes_see_wide_states_with_a_forcing_each() -> None:
    fields = table("navier-stokes", 2, 2, torch.Generator().manual_seed(0), plain=True)
    assert fields.shape == (4, 16, 16, 50)
    torch.testing.assert_close(fields[0, ..., 0], fields[1, ..., 0])
    assert not torch.allclose(fields[0, ..., 1], fields[1, ..., 1])
    assert not torch.allclose(fields, table("navier-stokes", 2, 2, torch.Generator().manual_seed(0)))


@pytest.mark.parametrize("equation", sorted(PLAIN_SETS))
def test_every_equation_has_a_plain_recipe(equation: str) -> None:
    recipe = PLAIN_SETS[equation]
    assert min(recipe.steps, recipe.rows, recipe.truth) > 1
    fields = table(equation, 2, 1, torch.Generator().manual_seed(0), plain=True)
    images = with_images(equation, fields, seed=0)
    assert images.shape == (2 * IMAGES[equation], *fields.shape[1:])
    assert torch.equal(images, with_images(equation, fields, seed=0))
    for name in names():
        if problem(name).equation == equation:
            problem(name, **PLAIN_SETTINGS.get(equation, {}))


def test_the_mirror_image_of_a_heat_field_is_that_of_another_phase() -> None:
    grid = problem("heat-ic-mass").grid
    alpha, phase = torch.tensor([2.0, 3.0], dtype=torch.float64), torch.tensor([0.4, 2.5], dtype=torch.float64)
    images = with_images("heat", exact(grid, alpha, phase), seed=0)
    torch.testing.assert_close(images[2:], exact(grid, alpha, math.pi - phase), rtol=0.0, atol=1e-12)


@pytest.mark.parametrize(("shift", "turn", "mirror"), [(3, 0, 0), (5, 1, 0), (2, 0, 1), (7, 1, 1)])
def test_images_of_flows_obey_the_equation(shift: int, turn: int, mirror: int) -> None:
    grid = navier_stokes_grid(8, 4)
    state = draw(0, 0, 1, lambda random: wide_state(random, 16))
    phase = torch.tensor([0.3], dtype=torch.float64)
    flow = navier_stokes_fields(state, phase, grid)[0]
    start = _flow_image(state[0][..., None], 2 * shift, turn, mirror)[..., 0]
    other = sum(FORCE_PHASE) - phase if turn else phase
    expected = navier_stokes_fields(start[None], other, grid)[0]
    torch.testing.assert_close(_flow_image(flow, shift, turn, mirror), expected, rtol=0.0, atol=1e-12)
