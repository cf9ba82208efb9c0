"""Projections and flows on a device that is emulated: its tensors refuse to leave it, its kernels are the shipped PTX."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from tests.device.emulated.machine import CHECKED
from tests.device.far import CUDA, Copied, Emulated, Far, emulated, far, near
from tests.project.device_laws import CASES, COUNT, Case, Drift, noise

import snapfm
from snapfm.errors import Status, StructureWarning
from snapfm.project import Projection
from snapfm.project.on_device import OnDevice
from snapfm.sampling import ECI, PCFM, Projected
from snapfm.solve.base import WarmThere
from snapfm.solve.newton import Newton
from snapfm_bench.peers.catalog import method

CLOSE = 1e-8  # of fields whose iterations end at a tolerance of 1e-8 on both sides
STEPS = 20


@pytest.fixture(scope="module", params=CASES)
def case(request) -> Case:
    return CASES[request.param]()


@pytest.fixture(scope="module")
def project(case) -> snapfm.Projector:
    return case.projector()


def test_cases_reach_every_step():
    methods = [CASES[name]().projector().method for name in CASES]
    assert all(isinstance(one, Newton) for one in methods)
    assert any(one.substitutions for one in methods)
    assert any(one.marches for one in methods)
    assert any(len(one.reduction.aggregates) for one in methods)
    assert {one.affine.gram is None or one.affine.gram.diagonal is None for one in methods} == {True, False}
    assert any(one.affine.gram is not None and one.affine.gram.diagonal is None for one in methods)
    assert any(len(part.eliminated.place) for one in methods for part in one.parts)
    assert any(part.inequalities for one in methods for part in one.parts)


@pytest.mark.parametrize(
    "sampler", [PCFM(), ECI(mixing=1, renew=None), Projected()], ids=lambda one: type(one).__name__
)
def test_a_flow_of_twenty_steps_never_leaves_its_device(case, project, sampler):
    if not isinstance(sampler, PCFM) and case.shape != (6, 5):
        pytest.skip("one sampler runs on all laws; the others on some")

    def run(weight, params):
        generator = torch.Generator().manual_seed(5)
        return snapfm.sample(
            Drift(weight), project, params, COUNT, STEPS, generator, sampler=sampler, dtype=torch.float64, on_failure="keep"
        )  # fmt: skip

    one = torch.ones((), dtype=torch.float64)
    here = run(one, case.params)
    with emulated() as machine:
        there = run(Far(one.clone()), far(case.params))
    assert isinstance(there.u, Far)
    assert machine.reads == 1  # the certificate of the last projection
    assert near(there.projection.converged).all()
    assert np.allclose(near(there.u), here.u, rtol=CLOSE, atol=1e-6)


def test_the_certificate_is_that_of_the_cpu(case, project):
    u_hat = case.fields(seed=9)
    here = project(u_hat, case.params)
    with emulated() as machine:
        there = project(far(u_hat), far(case.params))
    assert machine.reads == 1
    assert isinstance(there.u, Far)
    assert torch.equal(near(there.status), here.status)
    assert torch.equal(near(there.iterations), here.iterations)
    assert torch.equal(near(there.second_order), here.second_order)
    assert torch.allclose(near(there.u), here.u, rtol=1e-10, atol=1e-10)
    assert torch.allclose(near(there.distance), here.distance, rtol=1e-10)
    for name, value in here.multipliers.items():
        assert torch.allclose(near(there.multipliers[name]), value, rtol=1e-8, atol=1e-8), name
    assert float(near(there.violation).max()) <= project.tolerance
    assert float(near(there.stationarity).max()) <= 1e-8


def test_the_row_of_the_benchmark_times_the_device(case, project, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    u_hat, row = case.fields(seed=9), method("ours-gpu").build(project)
    with emulated() as machine:
        made = row.run(u_hat, case.params, project.tolerance)
    assert machine.launches
    assert machine.reads == 1  # the eight numbers of each sample, for the certificate
    assert isinstance(made.u, Far)
    assert torch.equal(near(made.status), project(u_hat, case.params).status)


def test_moves_wait_for_nothing_and_warm_starts_stay_there(case, project):
    u_hat = case.fields(seed=10)
    with emulated() as machine:
        u, params = far(u_hat), far(case.params)
        first = project.move(u, params)
        second = project.move(u + 0.01, params, warm=first)
    assert machine.reads == 0
    assert isinstance(first.warm, WarmThere)
    here = project.move(u_hat + 0.01, case.params, warm=project.move(u_hat, case.params))
    assert torch.allclose(near(second.u), here.u, rtol=1e-6, atol=1e-6)


def test_a_sample_has_the_same_bits_in_any_batch(case, project):
    u_hat = case.fields(seed=11)
    with emulated():
        whole = project(far(u_hat), far(case.params))
        for i in range(COUNT):
            alone = project(far(u_hat[i : i + 1]), far({name: value[i : i + 1] for name, value in case.params.items()}))
            assert torch.equal(near(alone.u)[0], near(whole.u)[i])
            for name, value in whole.multipliers.items():
                assert torch.equal(near(alone.multipliers[name])[0], near(value)[i]), name


def test_no_access_leaves_the_memory_of_a_launch_and_threads_do_not_race(case, project):
    with emulated(CHECKED) as machine:
        case.projector()(far(case.fields(seed=12)), far(case.params))
    assert machine.launches
    assert all(report.strays == 0 for report in machine.reports), machine.launches
    assert all(report.races == 0 for report in machine.reports), machine.launches


def test_a_sample_that_fails_goes_to_the_cpu_and_leaves_the_others(case, project):
    u_hat = case.fields(seed=13)
    spoiled = u_hat.clone()
    spoiled[1].view(-1)[-1] = torch.nan
    with emulated() as machine:
        fine = project(far(u_hat), far(case.params))
        before = machine.reads
        found = project(far(spoiled), far(case.params))
    assert machine.reads - before == 2 + len(case.params)  # the certificate; the field and the params of what failed
    here = project(spoiled, case.params)
    assert torch.equal(near(found.status), here.status)
    assert int(near(found.status)[1]) == Status.NONFINITE
    for i in (0, 2):
        assert torch.equal(near(found.u)[i], near(fine.u)[i])


def test_float32_comes_back_as_float32(case, project):
    u_hat = case.fields(seed=14).float()
    here = project(u_hat, case.params)
    with emulated():
        there = project(far(u_hat), far(case.params))
        moved = project.move(far(u_hat), far(case.params))
    assert there.u.dtype == moved.u.dtype == torch.float32
    assert torch.equal(near(there.status), here.status)
    assert torch.allclose(near(there.violation), here.violation, rtol=0.1, atol=1e-7)
    assert torch.allclose(near(there.rounding), here.rounding, rtol=0.1, atol=1e-7)
    done = near(moved.warm.usable)  # the others are as the first attempt left them
    assert done.any()
    assert torch.allclose(near(moved.u)[done], here.u[done], rtol=1e-4, atol=1e-4)


def test_laws_are_judged_where_the_fields_are(case, project):
    u = case.fields(seed=15)
    here, excess = project.check(u, case.params), project.excess(u, case.params)
    with emulated() as machine:
        there, far_excess = project.check(far(u), far(case.params)), project.excess(far(u), far(case.params))
    assert machine.reads == 0
    assert torch.allclose(near(there.violation), here.violation, rtol=1e-12)
    assert torch.allclose(near(far_excess), excess, rtol=1e-10, atol=1e-12)


def test_params_that_change_in_place_are_seen():
    case = CASES["totals"]()
    project, u_hat = case.projector(), case.fields(seed=16)
    with emulated():
        params = far(case.params)
        first = project.move(far(u_hat), params)
        params["u0"] += 1.0
        second = project.move(far(u_hat), params)
    assert torch.allclose(near(second.u)[:, :, 0], near(first.u)[:, :, 0] + 1.0)


def test_params_may_stay_on_the_cpu():
    case = CASES["coupled_affine"]()
    project, u_hat = case.projector(), case.fields(seed=17)
    with emulated():
        found = project(far(u_hat), case.params)
    assert torch.allclose(near(found.u), project(u_hat, case.params).u, rtol=1e-10, atol=1e-10)


def test_an_empty_batch_is_returned_empty(case, project):
    with emulated() as machine:
        found = project(far(case.fields(count=0)), far({name: value[:0] for name, value in case.params.items()}))
    assert found.u.shape == (0, *case.shape)
    assert not machine.launches


def _opaque() -> snapfm.Projector:
    """A law that only torch can evaluate."""
    return snapfm.Projector([snapfm.Equality("bessel", lambda u, p: torch.special.i0(u).sum() - 4.5)], (3,))


def test_what_has_no_form_on_the_device_is_done_by_the_cpu_and_said_once():
    u_hat, project = 1.0 + 0.1 * noise(18, 3), _opaque()
    here = project.move(u_hat).u
    with emulated() as machine:
        with pytest.warns(StructureWarning, match="projected by the CPU: torch has to evaluate"):
            first = project.move(far(u_hat))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            second = project.move(far(u_hat), warm=first)
    assert not machine.launches
    assert isinstance(second.u, Far)
    assert torch.equal(near(first.u), here)


def test_copies_to_the_cpu_and_back_go_on_while_it_works():
    project = _opaque()
    with emulated() as machine, pytest.warns(StructureWarning):
        project.move(far(1.0 + 0.1 * noise(18, 3)))
    arrived = [k for k, (what, _) in enumerate(machine.events) if what == "arrived"]
    left = [k for k, (what, _) in enumerate(machine.events) if what == "left"]
    assert len(arrived) == len(left) > 1
    assert left[0] < arrived[-1]  # the first results are on their way before the last fields are asked for


def test_the_emulated_device_lets_nothing_out():
    x = Far(torch.ones(3, 4))
    for leave in (
        lambda: x.cpu(), lambda: x.sum().item(), lambda: x.numpy(), lambda: bool((x > 0).all()), lambda: x.tolist(),
        lambda: x + torch.ones(3, 4), lambda: x.to("cpu"), lambda: x[x > 0], lambda: torch.equal(x, x), lambda: x.nonzero(),
        lambda: torch.ones(3, 4).copy_(x), lambda: float(x[0, 0]),
    ):  # fmt: skip
        with pytest.raises(Copied):
            leave()
    with emulated() as machine:
        assert isinstance(machine, Emulated)
        assert isinstance(torch.ones(2).to(CUDA), Far)
        assert isinstance(torch.zeros(2, device=CUDA), Far)


def test_prepared_once_for_a_device(project, case):
    with emulated():
        project.move(far(case.fields()), far(case.params))
        made = project._devices[CUDA]
        assert isinstance(made, OnDevice)
        project.move(far(case.fields()), far(case.params))
        assert project._devices[CUDA] is made
    assert isinstance(project(case.fields(), case.params), Projection)
