"""The battery of all methods of the catalog, ours included: known answers, refusals, broken samples, honest statuses."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from snapfm import Bounds, Equality, Inequality, Projector, Status
from snapfm.errors import MissingDependency, SnapfmError, UnknownName, UnsupportedLaw
from snapfm.laws import Law
from snapfm.project.judge import judge
from snapfm.solve.budget import STATIONARITY
from snapfm_bench.peers.catalog import METHODS, PeerMethod, PeerSolver, method
from snapfm_bench.peers.certificate import Answer
from snapfm_bench.peers.ipopt_processes import started

SHAPE = (3, 5)
TOLERANCE = 1e-6
# What violation and stationarity of TOLERANCE leave open in the field: multipliers and slopes here are of order ten at most.
CLOSE = 1e2 * TOLERANCE
EQUALITIES_ONLY = (
    "rootfinder-1", "rootfinder-2", "rootfinder-search", "rootfinder-start", "schur-newton", "gauss-newton", "torch-sla", "pinet",
)  # fmt: skip
AFFINE_ONLY = ("pinet",)
# One stop for a whole batch, a factorisation that remembers, batched products: others change them within the tolerance.
SHARED = ("ipopt-fused", "pounce", "gauss-newton", "pinet")


def randn(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


WEIGHT = torch.arange(1.0, 16.0, dtype=torch.float64).reshape(SHAPE) / 10.0


@dataclass(frozen=True)
class Known:
    """Laws, a batch of inputs, and the nearest lawful fields in closed form."""

    laws: list[Law]
    u_hat: Tensor
    params: dict[str, Tensor]
    answer: Tensor


def _plane() -> Known:
    u_hat, level = randn(3, *SHAPE, seed=1), torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    excess = ((WEIGHT * u_hat).sum((1, 2)) - level) / (WEIGHT**2).sum()
    laws = [Equality("plane", lambda u, p: (WEIGHT * u).sum() - p["level"])]
    return Known(laws, u_hat, {"level": level}, u_hat - excess[:, None, None] * WEIGHT)


def _sphere(law: type[Equality] | type[Inequality]) -> Known:
    u_hat = 0.5 * randn(3, *SHAPE, seed=2)
    radius = torch.tensor([1.2, 1.7, 2.2], dtype=torch.float64)
    size = u_hat.flatten(1).norm(dim=1)
    scale = radius / size if law is Equality else (radius / size).clamp(max=1.0)
    laws: list[Law] = [law("sphere", lambda u, p: (u**2).sum() - p["radius"] ** 2)]
    return Known(laws, u_hat, {"radius": radius}, scale[:, None, None] * u_hat)


def _box() -> Known:
    u_hat = randn(3, *SHAPE, seed=3)
    u_hat[:, 1, :2] *= 0.1  # so that the pair stays inside
    answer = u_hat.clamp(-0.5, 0.7)
    answer[:, 1, :2] = u_hat[:, 1, :2] - 0.5 * (u_hat[:, 1, :2].sum(1, keepdim=True) - 0.2)
    answer[:, 2, 4] = 0.25
    laws = [
        Equality("pair", lambda u, p: u[1, :2].sum() - 0.2),
        Equality("pin", lambda u, p: 2.0 * (u[2, 4] - 0.25)),
        Bounds(lower=-0.5, upper=0.7),
    ]
    return Known(laws, u_hat, {}, answer)


def _pins() -> Known:
    u_hat, start = randn(3, *SHAPE, seed=5), randn(3, SHAPE[0], seed=6)
    answer = u_hat.clone()
    answer[:, :, 0] = start
    return Known([Equality("start", lambda u, p: 2.0 * (u[:, 0] - p["start"]))], u_hat, {"start": start}, answer)


PROBLEMS: dict[str, Callable[[], Known]] = {
    "pins": _pins,  # presolve leaves no row
    "plane": _plane,
    "sphere": lambda: _sphere(Equality),
    "ball": lambda: _sphere(Inequality),
    "box": _box,
}


def build(one: PeerMethod, project: Projector) -> PeerSolver:
    try:
        return one.build(project)
    except MissingDependency as cause:
        pytest.skip(str(cause))
    except UnsupportedLaw as cause:
        if one.name in AFFINE_ONLY and "expects laws whose rows are affine" in str(cause):
            pytest.skip(str(cause))
        raise


def projector(known: Known) -> Projector:
    return Projector(known.laws, SHAPE, known.params, tolerance=TOLERANCE)


@pytest.fixture(params=METHODS.values(), ids=METHODS.keys())
def one(request) -> PeerMethod:
    return request.param


def test_the_catalog_is_complete():
    assert tuple(METHODS) == (
        "ours", "rootfinder-1", "rootfinder-2", "rootfinder-search", "rootfinder-start", "schur-newton", "ipopt",
        "ipopt-tuned", "ipopt-2", "ipopt-start", "ipopt-fused", "sqp-piqp", "sqp-2", "madnlp", "trust-constr", "lbfgs",
        "gauss-newton", "pounce", "pounce-layer", "torch-sla", "pinet", "jaxipm",
    )  # fmt: skip
    assert all(name == one.name and one.about.endswith(".") and one.got and one.lacks for name, one in METHODS.items())
    assert {one.published for one in METHODS.values()} == {None, "JuMP+Ipopt", "JuMP+MadNLP", "IPNewton", "L-BFGS"}


@pytest.mark.parametrize("problem", PROBLEMS)
def test_known_answers_are_found_or_laws_refused(one, problem):
    known = PROBLEMS[problem]()
    project = projector(known)
    if one.name in EQUALITIES_ONLY and problem in ("ball", "box"):
        with pytest.raises(UnsupportedLaw, match=r" expects laws that are all Equality; got .*\. Use the Ipopt peer"):
            build(one, project)
        return
    solver = build(one, project)
    solver.prepare(TOLERANCE, 3)
    solved = solver.solve(known.u_hat, known.params, TOLERANCE)
    judged = judge(project.structure, solved.residual, project.limits, solved.u)
    assert solved.status.tolist() == [Status.CONVERGED] * 3
    assert float(judged.violation.max()) <= TOLERANCE
    assert float(solved.stationarity.max()) <= STATIONARITY
    torch.testing.assert_close(solved.u.reshape(known.answer.shape), known.answer, rtol=0, atol=CLOSE)
    ours = project(known.u_hat, known.params).raise_for_status()
    weight = torch.cat(list(ours.multipliers.values()), dim=1)
    torch.testing.assert_close(solved.multipliers, weight, rtol=0, atol=10 * CLOSE)
    torch.testing.assert_close(solved.distance, ours.distance, rtol=0, atol=CLOSE)


@pytest.mark.parametrize("name", ["redundant", "mixed"])
def test_answers_are_ours_where_none_is_known(ask, one, name):
    question = ask(name, tolerance=TOLERANCE)
    near = question.ours.u + 0.1 * (question.u_hat - question.ours.u)  # near, so that there is one answer to agree on
    ours = question.project(near, question.params).raise_for_status()
    solved = build(one, question.project).solve(near, question.params, TOLERANCE)
    if one.name == "lbfgs":  # rows of several sizes are too stiff for it at times: then it has to say so
        assert set(solved.status.tolist()) <= {Status.CONVERGED, Status.STALLED}
    else:
        assert solved.status.tolist() == [Status.CONVERGED] * 3
    torch.testing.assert_close(solved.distance, ours.distance, rtol=0, atol=CLOSE)


def test_a_batch_of_one_is_answered_as_among_others(one):
    known = _sphere(Equality)
    solver = build(one, projector(known))
    solved = solver.solve(known.u_hat[:1], {"radius": known.params["radius"][:1]}, TOLERANCE)
    assert solved.status.tolist() == [Status.CONVERGED]
    torch.testing.assert_close(solved.u.reshape(1, *SHAPE), known.answer[:1], rtol=0, atol=CLOSE)


def test_a_broken_sample_is_told_and_leaves_the_others_alone(one):
    known = _sphere(Equality)
    solver = build(one, projector(known))
    whole = solver.solve(known.u_hat, known.params, TOLERANCE)
    damaged = known.u_hat.clone()
    damaged[1, 2, 3] = torch.nan
    solved = solver.solve(damaged, known.params, TOLERANCE)
    assert solved.status.tolist() == [Status.CONVERGED, Status.NONFINITE, Status.CONVERGED]
    if one.name in SHARED:
        torch.testing.assert_close(solved.u[[0, 2]], whole.u[[0, 2]], rtol=0, atol=CLOSE)
    else:
        assert torch.equal(solved.u[[0, 2]], whole.u[[0, 2]])


def test_a_batch_of_broken_samples_is_told(one):
    known = _sphere(Equality)
    solver = build(one, projector(known))
    solved = solver.solve(torch.full_like(known.u_hat, torch.nan), known.params, TOLERANCE)
    assert solved.status.tolist() == [Status.NONFINITE] * 3


def test_running_out_of_iterations_is_told(ask, one):
    if not one.curve:
        pytest.skip(f"{one.name} makes no curve")
    question = ask("mixed", tolerance=TOLERANCE)
    near = question.ours.u + 0.1 * (question.u_hat - question.ours.u)
    solver = build(one, question.project)
    short = solver.limited(near, question.params, TOLERANCE, 1)
    assert (short.status != Status.CONVERGED).all()
    assert (short.iterations <= 1).all()
    enough = solver.limited(near, question.params, TOLERANCE, 500)
    violation = [
        judge(question.project.structure, solved.residual, question.project.limits, solved.u).violation
        for solved in (short, enough)
    ]
    assert (violation[1] <= TOLERANCE).all()
    assert (violation[0] > violation[1]).all()


def test_laws_nothing_obeys_do_not_count_as_solved(one):
    laws = [Equality("impossible", lambda u, p: (u**2).sum() + 1.0)]
    solved = build(one, Projector(laws, SHAPE)).solve(randn(2, *SHAPE, seed=4), {}, TOLERANCE)
    assert (solved.status != Status.CONVERGED).all()


def test_a_law_outside_its_domain_does_not_count_as_solved(one):
    laws = [Equality("log", lambda u, p: torch.log(u).sum() - 1.0)]
    solved = build(one, Projector(laws, SHAPE)).solve(-0.1 - randn(2, *SHAPE, seed=4).abs(), {}, TOLERANCE)
    assert (solved.status != Status.CONVERGED).all()


def test_output_stays_silent(one, capfd):
    known = _sphere(Equality)
    build(one, projector(known)).solve(known.u_hat, known.params, TOLERANCE)
    assert capfd.readouterr() == ("", "")


def test_a_lost_process_is_told_and_replaced():
    known = _plane()
    solver = method("ipopt-2").build(projector(known))
    solver.prepare(TOLERANCE, 3)
    started(2).members[1].kill()
    with pytest.raises(
        SnapfmError, match=r"expects 2 processes that answer; one ended \(exit codes .*\)\. .*try again"
    ):
        solver.run(known.u_hat, known.params, TOLERANCE)
    solved = solver.solve(known.u_hat, known.params, TOLERANCE)
    assert solved.status.tolist() == [Status.CONVERGED] * 3


def test_curvature_that_cannot_be_written_out_is_refused(monkeypatch):
    monkeypatch.setattr("snapfm.compile.program.PAIR_LIMIT", 10)
    project = Projector([Equality("plane", lambda u, p: (WEIGHT * u).sum() - 1.0)], SHAPE)
    dense = Projector([Equality("square", lambda u, p: u.sum() ** 2 - 1.0)], SHAPE)
    for name in ("trust-constr", "pounce"):
        build(method(name), project)
        with pytest.raises(UnsupportedLaw, match=r"expects laws that couple few unknowns; .*\. Use the lbfgs"):
            method(name).build(dense)


def test_absent_madnlp_says_how_to_get_it():
    project = projector(_plane())
    try:
        method("madnlp").build(project)
    except MissingDependency as cause:
        wanted, got, todo = str(cause).replace("; ", ". ").split(". ", 2)
        assert wanted == "libMad is needed for the MadNLP peer"
        assert got == "casadi's plugin does not find it"
        assert todo == "Build it with Julia from github.com/apozharski/libmad and add its folder to LD_LIBRARY_PATH."
    else:
        pytest.skip("libMad is there")


@pytest.mark.parametrize("name", ["mixed", "inequality"])
def test_a_warm_start_leads_to_the_same_answers_in_no_more_iterations_together(ask, one, name):
    question = ask(name, tolerance=TOLERANCE)
    if one.name in EQUALITIES_ONLY and name == "inequality":
        pytest.skip("equalities only")
    solver = build(one, question.project)
    if not hasattr(solver, "again"):
        assert "last fields" not in one.got or one.name.startswith("ours")
        pytest.skip(f"{one.name} takes no warm start")
    assert "last fields" in one.got or one.name == "lbfgs"
    near = question.ours.u + 0.1 * (question.u_hat - question.ours.u)
    moved = near + 0.01 * randn(*near.shape, seed=7)
    cold = solver.run(near, question.params, TOLERANCE)
    there, warm = solver.run(moved, question.params, TOLERANCE), solver.again(moved, question.params, TOLERANCE, cold)
    torch.testing.assert_close(
        torch.as_tensor(warm.u).flatten(1), torch.as_tensor(there.u).flatten(1), rtol=0, atol=CLOSE
    )
    known = torch.as_tensor(there.iterations)
    if (known >= 0).all() and one.name not in ("trust-constr", "lbfgs"):  # these begin with steps of their own choice
        assert torch.as_tensor(warm.iterations).sum() <= known.sum()


def test_a_warm_start_from_a_lost_sample_begins_at_the_input(ask):
    question = ask("mixed", tolerance=TOLERANCE)
    near = question.ours.u + 0.1 * (question.u_hat - question.ours.u)
    solver = method("rootfinder-2").build(question.project)
    cold = solver.run(near, question.params, TOLERANCE)
    lost = Answer(cold.u.copy(), cold.multipliers.copy(), cold.iterations, cold.status)
    lost.u[1] = float("nan")
    lost.multipliers[2] = 1e9
    assert torch.equal(
        torch.from_numpy(solver.again(near, question.params, TOLERANCE, lost).u[1:]), torch.from_numpy(cold.u[1:])
    )


@pytest.mark.parametrize("name", ["ipopt-start", "rootfinder-start"])
def test_presolve_hands_over_a_field_that_obeys_what_it_can(name):
    laws = [
        Equality("start", lambda u, p: u[:, 0] - p["start"]),
        Equality("steps", lambda u, p: u[:, 1] - u[:, 0] ** 2),  # determined one after the other
        Equality("total", lambda u, p: u[:, 3:].sum() - 1.0),  # affine, and apart from the others
        Equality("square", lambda u, p: (u[:, 2] ** 2).sum() - 1.0),
    ]
    u_hat, params = randn(3, *SHAPE, seed=8), {"start": randn(3, SHAPE[0], seed=9)}
    project = Projector(laws, SHAPE, params, tolerance=TOLERANCE)
    solver = build(method(name), project)
    begin = solver.begin(u_hat, params)
    torch.testing.assert_close(begin[:, :, 2], u_hat[:, :, 2])  # left to the iteration
    torch.testing.assert_close(begin[:, :, 0], params["start"])
    torch.testing.assert_close(begin[:, :, 1], params["start"] ** 2)
    torch.testing.assert_close(begin[:, :, 3:].sum((1, 2)), torch.ones(3, dtype=torch.float64))
    solved = solver.solve(u_hat, params, TOLERANCE)
    assert solved.status.tolist() == [Status.CONVERGED] * 3
    torch.testing.assert_close(solved.distance, project(u_hat, params).distance, rtol=0, atol=CLOSE)


def test_what_was_never_run_says_so():
    with pytest.raises(
        MissingDependency, match=r"jaxipm is needed for this row; it wants Python 3.12 and CUDA. No adapter"
    ):
        method("jaxipm").build(projector(_plane()))


@pytest.mark.parametrize(
    ("package", "names"),
    [
        ("casadi", set(METHODS) - {"ours", "gauss-newton", "pounce-layer", "torch-sla", "pinet", "jaxipm"}),
        ("pounce", {"pounce", "pounce-layer"}),
    ],
)
def test_absent_packages_are_told_by_those_that_need_them(monkeypatch, package, names):
    monkeypatch.setitem(sys.modules, package, None)
    project = projector(_plane())
    said = {}
    for one in METHODS.values():
        try:
            one.build(project).prepare(TOLERANCE, 1)
        except MissingDependency as cause:
            said[one.name] = str(cause)
    absent = {name: text for name, text in said.items() if text.startswith(f"{package} is needed for ")}
    assert set(absent) - {"torch-sla"} == names  # which says first that torch-sla is absent, where it is
    assert all(
        text.endswith("; it is not installed. Install it with: pip install 'snapfm-bench[peers]'")
        for text in absent.values()
    )


def test_unknown_methods_are_named():
    with pytest.raises(
        UnknownName, match=r"method\(name=…\) expects one of ours, rootfinder-1, .*; got 'knitro'\. Choose"
    ):
        method("knitro")
