"""A sample depends on (seed, index) alone, for every problem; truth and params belong together."""

import pytest
import torch

import snapfm

# Odd sizes: vector instructions and their remainders must not tell places in a batch apart.
PROBLEMS = [
    ("heat-ic-mass", {"nx": 23, "nt": 11, "phase": None}),
    ("heat-ic-mass-implicit", {"nx": 23, "nt": 11}),
    ("burgers-bc-mass", {"nx": 23, "nt": 11}),
    ("burgers-ic-mass-flux", {"nx": 23, "nt": 11, "position": None}),
    ("reaction-diffusion-ic-mass", {"nx": 23, "nt": 11, "initial_seed": None}),
    ("navier-stokes-ic-mass", {"size": 7, "nt": 3, "resolution": 11, "state": "random"}),
    ("navier-stokes-ic-mass-enstrophy", {"size": 8, "nt": 3, "resolution": 16, "discretization": "release"}),
]
every = pytest.mark.parametrize(("name", "settings"), PROBLEMS, ids=[name for name, _ in PROBLEMS])


@every
def test_a_sample_is_the_same_alone_and_among_others(name, settings):
    problem = snapfm.problem(name, **settings)
    fields, (truth, params) = problem.draw_fields(7, 0, 5), problem.draw_truth(7, 0, 5)
    assert fields.shape == truth.shape == (5, *problem.grid.shape)
    assert fields.dtype == truth.dtype == torch.float64
    for index in range(5):
        alone, conditions = problem.draw_truth(7, index, 1)
        assert torch.equal(problem.draw_fields(7, index, 1)[0], fields[index])
        assert torch.equal(alone[0], truth[index])
        assert all(torch.equal(conditions[key][0], params[key][index]) for key in params)
    assert torch.equal(problem.draw_fields(7, 2, 2), fields[2:4])


@every
def test_samples_and_seeds_differ(name, settings):
    problem = snapfm.problem(name, **settings)
    fields = problem.draw_fields(7, 0, 2)
    assert not torch.equal(fields[0], fields[1])
    assert not torch.equal(fields, problem.draw_fields(8, 0, 2))


@every
def test_truth_comes_with_the_params_of_the_same_seed(name, settings):
    problem = snapfm.problem(name, **settings)
    fields, params = problem.truth(3, torch.Generator().manual_seed(5))
    asked = problem.params(3, torch.Generator().manual_seed(5))
    assert params.keys() == asked.keys()
    assert all(torch.equal(params[key], asked[key]) for key in asked)
    for law in problem.laws:
        if law.name == "initial":
            assert torch.equal(fields[..., 0], params["u0"])
        if law.name == "dirichlet":
            assert torch.equal(fields[:, 0], params["left"][:, None].expand(-1, problem.grid.axis("t").size))


def test_fixed_conditions_are_those_asked_of_every_sample():
    for name in ("heat-ic-mass", "burgers-ic", "reaction-diffusion-ic-mass", "navier-stokes-ic-mass"):
        start = snapfm.problem(name).params(3)["u0"]
        assert torch.equal(start, start[:1].expand_as(start)), name


@every
def test_training_fields_come_with_all_that_was_drawn_for_them(name, settings):
    problem = snapfm.problem(name, **settings)
    fields, drawn = problem.draw_training(7, 0, 3)
    assert torch.equal(fields, problem.draw_fields(7, 0, 3))
    assert set(problem.params(1)) <= set(drawn)
    for key, value in drawn.items():
        assert len(value) == 3
        assert torch.equal(problem.draw_training(7, 1, 1)[1][key][0], value[1])
    for law in problem.laws:  # the conditions hold with the params drawn, not with those asked at inference
        if law.name in ("initial", "dirichlet"):
            rows = [law.residual(fields[i], {key: value[i] for key, value in drawn.items()}) for i in range(3)]
            assert torch.stack(rows).abs().max() == 0.0
