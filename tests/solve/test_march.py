"""The march against the coupled system: same fields, same multipliers; one bad sample harms no other; budgets; gradients."""

import threading

import numpy as np
import pytest
import torch
from tests.solve.marching_laws import CASES, DT, example, initial, reaction_diffusion

import snapfm
from snapfm.errors import Status
from snapfm.kernels.threads import Clock, Deadline
from snapfm.reduce import march, reduce
from snapfm.solve.budget import certified
from snapfm.solve.march import MarchState
from snapfm.solve.stage import State


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setattr(march, "_FEWEST_ROWS", 1)
    monkeypatch.setattr(march, "_FEWEST_EACH", 1)


@pytest.fixture(params=["tiles", "systems"])
def engine(request, monkeypatch):
    if request.param == "systems":
        monkeypatch.setattr(march, "_WRITTEN_OUT", -1)
    return request.param


def _projector(laws, shape, params, **settings):
    return snapfm.Projector(laws, shape, {name: value[:1] for name, value in params.items()}, **settings)


def _coupled(laws, shape, params):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reduce, "find_march", lambda *_: march.March())
        return _projector(laws, shape, params)


def _stationarity(laws, u, u_hat, params, multipliers):
    """‖u − û + Jᵀλ‖∞ per sample, by autograd of the laws as written."""
    found = []
    for i in range(len(u)):
        field = u[i].clone().requires_grad_()
        mine = {name: value[i] for name, value in params.items()}
        total = sum((multipliers[law.name][i] * law.residual(field, mine).flatten()).sum() for law in laws)
        (pull,) = torch.autograd.grad(total, field)
        found.append(float((u[i] - u_hat[i] + pull).abs().max()))
    return max(found)


@pytest.mark.parametrize("name", CASES)
def test_the_same_answer_as_the_coupled_system(name, engine):
    laws, shape, params, u = example(name, 3)
    project, coupled = _projector(laws, shape, params), _coupled(laws, shape, params)
    assert len(project.method.plan.reduction.march.rows()) == CASES[name][2]
    assert len(coupled.method.plan.reduction.march) == 0
    one, other = project(u, params), coupled(u, params)
    assert one.converged.all()
    assert other.converged.all()
    assert (one.u - other.u).abs().max() <= 1e-9
    assert _stationarity(laws, one.u, u, params, one.multipliers) <= 1e-9
    assert one.stationarity.max() <= 1e-9
    assert one.violation.max() <= 1e-9
    for law in laws:
        assert (one.multipliers[law.name] - other.multipliers[law.name]).abs().max() <= 1e-7


@pytest.mark.parametrize("name", ["reaction–diffusion", "partial condition", "Crank–Nicolson"])
def test_a_sample_does_not_depend_on_its_batch(name, engine):
    laws, shape, params, u = example(name, 9)
    project = _projector(laws, shape, params)
    whole = project(u, params)
    assert whole.converged.all()
    for i in (0, 4, 8):
        alone = project(u[i : i + 1], {key: value[i : i + 1] for key, value in params.items()})
        assert torch.equal(alone.u[0], whole.u[i])
        assert torch.equal(alone.multipliers["step"][0], whole.multipliers["step"][i])
    assert torch.equal(project(u, params).u, whole.u)


@pytest.mark.parametrize("where", ["field", "params"])
def test_a_sample_that_is_not_finite_harms_no_other(where, engine):
    laws, shape, params, u = example("reaction–diffusion", 5)
    project = _projector(laws, shape, params)
    clean = project(u, params)
    u, params = u.clone(), {"u0": params["u0"].clone()}
    (u if where == "field" else params["u0"])[2, 3, 3] = torch.nan
    spoilt = project(u, params)
    assert spoilt.status.tolist() == [0, 0, int(Status.NONFINITE), 0, 0]
    others = [0, 1, 3, 4]
    assert torch.equal(spoilt.u[others], clean.u[others])
    assert torch.equal(spoilt.stationarity[others], clean.stationarity[others])


def _decay(shape=(4, 6)):
    """u² + u = u_before − 1: no real solution once u_before < 3/4."""
    return [initial(), snapfm.Equality("step", lambda u, p: u[1:] ** 2 + u[1:] - u[:-1] + 1.0)]


def test_a_step_without_a_solution_harms_no_other(engine):
    params = {"u0": torch.full((4, 6), 40.0, dtype=torch.float64)}
    params["u0"][1] = 0.5  # the first step has no solution, whatever comes before
    params["u0"][3, 2] = 4.0  # u = 1.303 after one step; none after the second
    u = torch.ones(4, 4, 6, dtype=torch.float64)
    project = _projector(_decay(), (4, 6), params)
    assert len(project.method.plan.reduction.march) == 3
    ended = project(u, params)
    assert ended.status[0] == ended.status[2] == Status.CONVERGED
    assert ended.status[1] == Status.INFEASIBLE
    assert ended.status[3] in (Status.STALLED, Status.INFEASIBLE)
    alone = project(u[:1], {"u0": params["u0"][:1]})
    assert torch.equal(alone.u[0], ended.u[0])


def test_a_flat_start_is_left(engine):
    """u³ = 1 + u_before from u = û = 0, where the slope is zero."""
    laws = [initial(), snapfm.Equality("step", lambda u, p: u[1:] ** 3 - u[:-1] - 1.0)]
    params = {"u0": torch.zeros(2, 5, dtype=torch.float64)}
    ended = _projector(laws, (3, 5), params)(torch.zeros(2, 3, 5, dtype=torch.float64), params)
    assert ended.converged.all()
    assert torch.allclose(ended.u[:, 1], torch.ones(2, 5, dtype=torch.float64))
    assert torch.allclose(ended.u[:, 2], torch.full((2, 5), 2.0 ** (1 / 3), dtype=torch.float64))


@pytest.mark.parametrize("scale", [1e-3, 1e3])
def test_inputs_of_other_sizes(scale, engine):
    laws, shape, params, u = example("reaction–diffusion", 2)
    ended = _projector(laws, shape, params)(scale * u, params)
    assert ended.converged.all()
    assert _stationarity(laws, ended.u, scale * u, params, ended.multipliers) <= 1e-9 * scale


def test_of_several_solutions_the_one_next_to_the_input():
    """u² = 4 + u_before has two roots in every step; which one is nearer is for û to say where nothing else is."""
    laws = [initial(), snapfm.Equality("step", lambda u, p: u[1:] ** 2 - 4.0 - 0.1 * u[:-1])]
    params = {"u0": torch.zeros(2, 5, dtype=torch.float64)}
    u = torch.full((2, 2, 5), 1.9, dtype=torch.float64)
    u[1] *= -1
    ended = _projector(laws, (2, 5), params)(u, params)
    assert ended.converged.all()
    assert (ended.u[0, 1] > 0).all()
    assert (ended.u[1, 1] < 0).all()


@pytest.mark.parametrize("offset", [0.0, 0.1])
def test_rows_left_over_are_judged(offset, engine):
    """Heat between insulated ends keeps its total: a law that says so is implied, one that says otherwise contradicts."""

    def step(u, p):
        new = u[1:]
        return (new - u[:-1]) / DT - (torch.roll(new, 1, 1) - 2 * new + torch.roll(new, -1, 1))

    total = snapfm.Equality("total", lambda u, p: u[1:].sum(1) - p["u0"].sum() - offset)
    laws = [initial(), snapfm.Equality("step", step), total]
    params = {"u0": torch.rand(2, 9, dtype=torch.float64)}
    project = _projector(laws, (5, 9), params)
    ended = project(torch.rand(2, 5, 9, dtype=torch.float64), params)
    assert (ended.status == (Status.INFEASIBLE if offset else Status.CONVERGED)).all()


def test_rows_left_over_from_nonlinear_steps_are_judged():
    laws, shape, params, u = example("reaction–diffusion", 2)
    true = _projector(laws, shape, params)(u, params).u[:, -1].sum((1, 2))
    laws = [*laws, snapfm.Equality("total", lambda u, p: u[-1].sum() - p["total"])]
    right = params | {"total": true}
    project = _projector(laws, shape, right)
    assert len(project.method.plan.reduction.march) == 5
    assert project(u, right).converged.all()
    wrong = project(u, params | {"total": true + torch.tensor([0.0, 1.0])})
    assert wrong.status.tolist() == [int(Status.CONVERGED), int(Status.INFEASIBLE)]


def test_a_bound_that_determined_unknowns_break_is_reported(engine):
    laws, shape, params, u = example("Crank–Nicolson", 2)
    params["u0"][0] = params["u0"][0].abs()
    params["u0"][1, 5] = -1.0
    ended = _projector([*laws, snapfm.Bounds(lower=-0.5)], shape, params)(u, params)
    assert ended.status[0] == Status.CONVERGED
    assert ended.status[1] != Status.CONVERGED
    assert float(ended.violation[1]) == pytest.approx(0.5)


def test_float32_in_and_out(engine):
    laws, shape, params, u = example("predator and prey", 3)
    project = _projector(laws, shape, params)
    exact, rounded = project(u, params), project(u.float(), params)
    assert rounded.u.dtype == torch.float32
    assert rounded.converged.all()
    assert (rounded.u - exact.u).abs().max() <= 1e-5


def test_budgets_end_the_march(engine):
    laws, shape, params, u = example("reaction–diffusion", 3)
    project = _projector(laws, shape, params)
    project(u, params)
    assert (project(u, params, limit=1).status == Status.ITERATION_LIMIT).all()
    assert (project(u, params, seconds=1e-9).status == Status.ITERATION_LIMIT).all()


class _Late(Deadline):
    """A deadline that is over when it has been asked a few times."""

    @property
    def over(self):
        self.stop[1] += 1
        return bool(self.stop[1] > self.stop[2])


@pytest.mark.parametrize("looks", [0, 1, 40])
def test_time_that_ends_during_the_march(looks, engine):
    laws, shape, params, u = example("reaction–diffusion", 3)
    method = _projector(laws, shape, params).method
    field = u.reshape(3, -1).numpy()
    answer, known = field.copy(), params["u0"].reshape(3, -1).numpy()
    answer[:, :64] = known
    deadline = _Late(Clock(60.0), stop=np.array([0, 0, looks]))
    state = State(field, answer, known, np.zeros((3, 0)), certified(1e-8), None, 100, deadline)
    ended = MarchState(method.plan.march, 3).solve(state)
    moved = (answer != field).reshape(3, *shape).any(axis=(0, 2, 3))
    if looks < 2:
        assert (ended.status == Status.ITERATION_LIMIT).all()
        assert not moved[2:].any()
    elif engine == "tiles":  # the clock is looked at between steps
        assert (ended.status == Status.CONVERGED).all()
        assert moved.all()


def test_threads_share_a_projector():
    laws, shape, params, u = example("reaction–diffusion", 9)
    project = _projector(laws, shape, params)
    expected = project(u, params).u
    found = [None] * 4

    def call(i):
        found[i] = project(u, params).u

    threads = [threading.Thread(target=call, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(one, expected) for one in found)


def test_moving_and_warm_starts(engine):
    laws, shape, params, u = example("partial condition", 3)
    project = _projector(laws, shape, params)
    cold = project(u, params)
    moved = project.move(u, params)
    assert (moved.u - cold.u).abs().max() <= 1e-6
    warm = project(u, params, warm=cold)
    assert warm.converged.all()
    assert (warm.u - cold.u).abs().max() <= 1e-9


@pytest.mark.parametrize("name", ["predator and prey", "partial condition"])
def test_gradients_are_those_of_the_coupled_system(name):
    laws, shape, params, u = example(name, 2)
    weight = torch.randn(u.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found = []
    for project in (_projector(laws, shape, params), _coupled(laws, shape, params)):
        inputs = [u.clone().requires_grad_(), *(value.clone().requires_grad_() for value in params.values())]
        answer = project(inputs[0], dict(zip(params, inputs[1:]))).u
        found.append(torch.autograd.grad((weight * answer).sum(), inputs))
    for one, other in zip(*found):
        assert (one - other).abs().max() <= 1e-8


def test_cost_is_linear_in_the_number_of_steps():
    """Twice the steps: twice the rows to march through, the same programs and the same factors."""
    sizes = []
    for steps in (5, 9):
        project = _projector(reaction_diffusion(), (steps, 4, 4), {"u0": torch.zeros(1, 4, 4, dtype=torch.float64)})
        found = project.method.plan.reduction.march
        sizes.append((len(found.squares), found.squares[0].plan.fill, len(found.steps)))
    assert sizes[0][:2] == sizes[1][:2]
    assert (sizes[0][2], sizes[1][2]) == (4, 8)


def test_coefficients_that_change_with_every_step(engine):
    """Each step has a program of its own; one order of elimination and the factors of one step serve them all."""
    rate = 1.0 + torch.arange(6.0, dtype=torch.float64)[:, None]

    def step(u, p):
        new = u[1:]
        return (new - u[:-1]) / DT - rate * (torch.roll(new, 1, 1) - 2 * new + torch.roll(new, -1, 1)) + new**3

    laws, params = [initial(), snapfm.Equality("step", step)], {"u0": torch.rand(3, 9, dtype=torch.float64)}
    u = torch.rand(3, 7, 9, dtype=torch.float64)
    project = _projector(laws, (7, 9), params)
    assert len(project.method.plan.reduction.march.squares) == 6
    one, other = project(u, params), _coupled(laws, (7, 9), params)(u, params)
    assert one.converged.all()
    assert (one.u - other.u).abs().max() <= 1e-9
    assert _stationarity(laws, one.u, u, params, one.multipliers) <= 1e-9
    if engine == "tiles":
        assert len({id(solver.structure.plan) for solver in project.method.plan.march.solvers}) == 1


def test_hard_steps_end_within_the_budget_whoever_shares_the_batch(engine):
    """A bistable reaction with a step too long for a unique solution: solved or not, each sample within its limit."""

    def step(u, p):
        new = u[1:]
        return (
            (new - u[:-1]) / 0.1 - 10 * (torch.roll(new, 1, 1) - 2 * new + torch.roll(new, -1, 1)) + 50 * (new**3 - new)
        )

    generator = torch.Generator().manual_seed(0)
    params = {"u0": 3 * torch.randn(5, 12, generator=generator, dtype=torch.float64)}
    u = torch.randn(5, 4, 12, generator=generator, dtype=torch.float64)
    project = _projector([initial(), snapfm.Equality("step", step)], (4, 12), params)
    ended = project(u, params, limit=60)
    assert ended.iterations.max() <= 60
    assert (ended.violation[ended.converged] <= 1e-8).all()
    for i in range(5):
        alone = project(u[i : i + 1], {"u0": params["u0"][i : i + 1]}, limit=60)
        assert alone.status[0] == ended.status[i]
        assert torch.equal(alone.u[0], ended.u[i])


def test_where_a_step_has_no_solution_all_steps_are_solved_together():
    """x² = 4 has two roots, and y² = x goes on from one of them only."""
    laws = [
        snapfm.Equality("first", lambda u, p: u[:1] ** 2 - p["square"]),
        snapfm.Equality("second", lambda u, p: u[1:] ** 2 - u[:1]),
    ]
    params = {"square": torch.full((2, 1), 4.0, dtype=torch.float64)}
    u_hat = torch.tensor([[2.1, 1.5], [-2.1, 1.5]], dtype=torch.float64)
    project = _projector(laws, (2,), params)
    assert len(project.method.plan.reduction.march) == 2
    found = project(u_hat, params)
    assert found.converged.all()
    torch.testing.assert_close(found.u[:, 0], torch.full((2,), 2.0, dtype=torch.float64))
    torch.testing.assert_close(found.u[:, 1] ** 2, found.u[:, 0])  # either root
    assert _stationarity(laws, found.u, u_hat, params, found.multipliers) < 1e-6
    for i in range(2):
        alone = project(u_hat[i : i + 1], {"square": params["square"][:1]})
        assert torch.equal(alone.u[0], found.u[i])
