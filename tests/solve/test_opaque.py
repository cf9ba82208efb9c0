"""Laws without a scalar form, on the slow path; and transforms and convolutions, on the fast one. Judged from outside."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from tests.solve.hidden import assert_rounded, is_opaque, opaque
from torch import Tensor

import snapfm
from snapfm import Bounds, Equality, Inequality, Projector, Status
from snapfm.laws import Law

SHAPE = (3, 5)
NEAR = 1e-6  # stationarity asked of a converged sample
Params = dict[str, Tensor]


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def judged(laws: list[Law], u_hat: Tensor, result: snapfm.Projection, params: Params) -> tuple[float, float]:
    """Measure violation and stationarity with dense derivatives of the laws themselves."""
    violation, gap = 0.0, 0.0
    for i in range(len(u_hat)):
        sample = {name: value[i if len(value) > 1 else 0] for name, value in params.items()}
        u, rest = result.u[i].detach(), result.u[i].detach() - u_hat[i]
        for law in laws:
            if isinstance(law, Bounds):
                continue
            value = law.residual(u, sample).reshape(-1)
            weight = result.multipliers[law.name][i]
            slope = torch.func.jacrev(lambda x, law=law, s=sample: law.residual(x, s).reshape(-1))(u)
            rest = rest + torch.tensordot(weight, slope, dims=1)
            equal = isinstance(law, Equality)
            violation = max(violation, float(value.abs().max() if equal else value.max()))
            if not equal:
                gap = max(gap, float((-weight).clamp(min=0).max()), float((weight * value).abs().max()))
        for law in laws:
            if isinstance(law, Bounds):
                low = -math.inf if law.lower is None else law.lower
                high = math.inf if law.upper is None else law.upper
                violation = max(violation, float((low - u).max()), float((u - high).max()))
                rest = torch.where(u >= high, rest.clamp(min=0), torch.where(u <= low, rest.clamp(max=0), rest))
        gap = max(gap, float(rest.abs().max()))
    return violation, gap


SLOW: dict[str, Callable[[Tensor, Params], Tensor]] = {
    "cumprod": lambda u, p: torch.cumprod(1.0 + 0.3 * u, 0)[-1] - p["v"],
    "logsumexp": lambda u, p: torch.logsumexp(u, 0) - p["v"],
    "softmax": lambda u, p: torch.softmax(u, 0)[0] - 0.25 * p["v"].abs().clamp(0.2, 2.0),
    "norm": lambda u, p: torch.linalg.vector_norm(u, 3, dim=0) - p["v"].abs(),
    "erf": lambda u, p: torch.erf(u).sum(0) - 0.5 * p["v"].tanh(),
    "spectral phase": lambda u, p: torch.fft.fft(u, dim=1).exp().real[:, 1].tanh() - 0.3 * p["v"][:3].tanh(),
}


def slow(name: str, *more: Law, tolerance: float = 1e-8) -> tuple[Projector, list[Law]]:
    laws: list[Law] = [opaque(law) for law in (Equality("law", SLOW[name]), *more)]
    project = Projector(laws, SHAPE, {"v": torch.ones(1, 5, dtype=torch.float64)}, tolerance)
    assert is_opaque(project)
    return project, laws


@pytest.mark.parametrize("name", SLOW)
def test_slow_laws_are_certified_from_outside(name: str):
    project, laws = slow(name)
    u_hat, params = randn(7, *SHAPE), {"v": 1.0 + 0.3 * randn(7, 5, seed=1)}
    result = project(u_hat, params).raise_for_status()
    violation, gap = judged(laws, u_hat, result, params)
    assert violation <= project.tolerance
    assert gap <= NEAR
    assert torch.allclose(result.distance, (result.u - u_hat).flatten(1).norm(dim=1))


def test_the_structure_says_once_that_the_path_is_slow_and_why():
    laws = [opaque(Equality("law", SLOW["softmax"])), Equality("total", lambda u, p: u.sum() - 1.0)]
    told = " ".join(str(Projector(laws, SHAPE, {"v": torch.ones(1, 5, dtype=torch.float64)}).structure).split())
    assert told.count("slow path") == 1
    assert (
        told.count("slow path: law 'law' uses lgamma, which has no scalar form; projected with torch's derivatives")
        == 1
    )
    fast = Projector([Equality("total", lambda u, p: (u**2).sum() - 1.0)], SHAPE)
    assert "slow path" not in str(fast.structure)


@pytest.mark.parametrize(("name", "aim"), [("logsumexp", 1.5), ("norm", 0.9)])
def test_inequalities_and_bounds_on_the_slow_path(name: str, aim: float):
    bounds = Bounds(lower=0.05, upper=0.9)
    order = Inequality("order", lambda u, p: torch.erf(u[0] - u[1]).sum() + 0.5)
    project, laws = slow(name, order, bounds)
    u_hat, params = randn(6, *SHAPE), {"v": torch.full((1, 5), aim, dtype=torch.float64)}
    result = project(u_hat, params).raise_for_status()
    violation, gap = judged(laws, u_hat, result, params)
    assert violation <= project.tolerance
    assert gap <= NEAR
    assert ((result.u == 0.05) | (result.u == 0.9)).any()  # bounds that hold, hold exactly
    assert (result.multipliers["order"] > 0).any()


def test_unknowns_between_equal_bounds_do_not_move():
    low = torch.full(SHAPE, -10.0, dtype=torch.float64)
    low[0] = 0.5
    high = -low
    high[0] = 0.5
    project, _ = slow("logsumexp", Bounds(lower=low, upper=high))
    result = project(randn(3, *SHAPE), {"v": 1.5 + torch.rand(3, 5).double()}).raise_for_status()
    assert (result.u[:, 0] == 0.5).all()


def test_a_sample_that_is_not_finite_leaves_the_others_as_they_are():
    project, _ = slow("logsumexp")
    u_hat, params = randn(4, *SHAPE), {"v": 1.0 + 0.3 * randn(4, 5, seed=1)}
    clean = project(u_hat, params)
    u_hat[2, 1, 1] = math.nan
    result = project(u_hat, params)
    assert result.status.tolist() == [Status.CONVERGED, Status.CONVERGED, Status.NONFINITE, Status.CONVERGED]
    kept = torch.tensor([0, 1, 3])
    assert_rounded(result.select(kept), clean.select(kept))
    assert torch.allclose(result.multipliers["law"][kept], clean.multipliers["law"][kept], rtol=1e-8, atol=1e-8)


def test_params_that_are_not_finite_are_one_samples_trouble():
    project, _ = slow("logsumexp")
    u_hat, params = randn(3, *SHAPE), {"v": torch.ones(3, 5, dtype=torch.float64)}
    params["v"][1, 0] = math.inf
    assert project(u_hat, params).status.tolist() == [Status.CONVERGED, Status.NONFINITE, Status.CONVERGED]


@pytest.mark.parametrize("name", ["cumprod", "softmax"])
def test_a_permutation_of_the_batch_permutes_the_results(name: str):
    project, _ = slow(name, Inequality("room", lambda u, p: u.sum() - 3.0))
    u_hat, params = randn(5, *SHAPE), {"v": 1.0 + 0.3 * randn(5, 5, seed=1)}
    order = torch.tensor([3, 0, 4, 2, 1])
    one, other = project(u_hat, params), project(u_hat[order], {"v": params["v"][order]})
    assert_rounded(one.select(order), other)
    assert_rounded(one.select(torch.tensor([2])), project(u_hat[2:3], {"v": params["v"][2:3]}))


@pytest.mark.parametrize("name", SLOW)
def test_the_same_call_has_the_same_bits(name: str):
    """Also where the first call has nothing recorded and no idea of its time."""
    project, _ = slow(name)
    u_hat, params = randn(21, *SHAPE), {"v": 1.0 + 0.3 * randn(21, 5, seed=1)}
    one, two, three = (project(u_hat, params) for _ in range(3))
    for again in (two, three):
        assert torch.equal(one.u, again.u)
        assert torch.equal(one.multipliers["law"], again.multipliers["law"])
        assert torch.equal(one.iterations, again.iterations)


@pytest.mark.parametrize(
    "laws",
    [
        [Equality("above", lambda u, p: torch.softmax(u, 0).sum(1) - 6.0)],
        [Equality("one", lambda u, p: torch.logsumexp(u, 0)), Equality("two", lambda u, p: torch.logsumexp(u, 0) - 1)],
        [Equality("far", lambda u, p: torch.logsumexp(u, 0) - 9.0), Bounds(upper=1.0)],
        [Inequality("low", lambda u, p: torch.logsumexp(u, 0) + 9.0), Bounds(lower=-1.0)],
    ],
    ids=["softmax above 1", "contradiction", "bounds in the way", "inequality against bounds"],
)
def test_laws_that_cannot_hold_are_never_called_converged(laws: list[Law]):
    project = Projector([opaque(law) for law in laws], SHAPE)
    assert is_opaque(project)
    result = project(randn(2, *SHAPE), limit=100)  # attempts are shares of it: all of them are made
    assert set(result.status.tolist()) <= {Status.INFEASIBLE, Status.STALLED, Status.ITERATION_LIMIT}
    assert (result.violation > project.tolerance).all()
    assert result.u.isfinite().all()


def test_gradients_agree_with_differences():
    laws = [Equality("law", SLOW["logsumexp"]), Inequality("room", lambda u, p: u.sum() - 0.5)]
    project = Projector(
        [opaque(law) for law in laws], (2, 2), {"v": torch.ones(1, 2, dtype=torch.float64)}, tolerance=1e-11
    )
    u_hat = torch.tensor([[[0.6, 0.2], [0.3, -0.1]]], dtype=torch.float64, requires_grad=True)
    v = torch.tensor([[1.1, 0.7]], dtype=torch.float64, requires_grad=True)
    assert float(project(u_hat, {"v": v}).multipliers["room"]) > 0.0
    assert torch.autograd.gradcheck(lambda x, y: project(x, {"v": y}).u, (u_hat, v), eps=1e-5, atol=1e-5)


def test_float32_goes_in_and_comes_out():
    project, _ = slow("logsumexp")
    u_hat, params = randn(3, *SHAPE), {"v": torch.ones(1, 5, dtype=torch.float64)}
    result, exact = project(u_hat.float(), params).raise_for_status(), project(u_hat.float().double(), params)
    assert result.u.dtype == torch.float32
    assert torch.equal(result.u, exact.u.float())
    moved = project.move(u_hat.float(), params)
    assert torch.equal(moved.u, result.u)


def test_an_answer_is_where_iterations_may_begin():
    project, _ = slow("cumprod", Bounds(lower=-2.0))
    u_hat, params = randn(3, *SHAPE), {"v": 1.0 + 0.3 * randn(3, 5, seed=1)}
    cold = project(u_hat, params).raise_for_status()
    warm = project(u_hat, params, warm=cold).raise_for_status()
    assert torch.allclose(warm.u, cold.u, rtol=0, atol=NEAR)


def test_larger_systems_are_sparse():
    total = opaque(Equality("total", lambda u, p: torch.logsumexp(u, 0) - p["v"]))
    project = Projector([total], (40, 25), {"v": torch.ones(1, 25, dtype=torch.float64)})
    u_hat, params = randn(2, 40, 25), {"v": 4.0 + 0.1 * randn(2, 25, seed=1)}
    result = project(u_hat, params).raise_for_status()
    violation, gap = judged([total], u_hat, result, params)
    assert violation <= project.tolerance
    assert gap <= NEAR


def test_one_unknown_and_one_row():
    project = Projector([opaque(Equality("value", lambda u, p: torch.erf(u) - 0.5))], (1,))
    result = project(randn(3, 1)).raise_for_status()
    assert torch.allclose(result.u, torch.erfinv(torch.tensor(0.5, dtype=torch.float64)), rtol=0, atol=1e-7)


# The fast path: what is linear is probed.

WAVES = 1j * torch.arange(5, dtype=torch.float64)[:, None]


def slope(u: Tensor) -> Tensor:
    return torch.fft.irfft(WAVES * torch.fft.rfft(u, dim=0), n=9, dim=0)


def test_an_affine_spectral_law_equals_its_closed_form():
    project = Projector([Equality("slope", lambda u, p: slope(u)[2] - p["s"])], (9, 4), {"s": torch.ones(1, 4)}, 1e-11)
    assert project.structure.affine
    u_hat, aim = randn(3, 9, 4), randn(3, 4, seed=1)
    result = project(u_hat, {"s": aim}).raise_for_status()
    row = torch.func.jacrev(lambda x: slope(x[:, None])[2, 0])(torch.zeros(9, dtype=torch.float64))
    off = torch.einsum("x,bxt->bt", row, u_hat) - aim
    exact = u_hat - row[:, None] * (off / (row @ row))[:, None]
    assert torch.allclose(result.u, exact, rtol=0, atol=1e-11)


@pytest.mark.parametrize(
    ("name", "law"),
    [
        ("energy of the slope", lambda u, p: slope(u).square().sum(0) - p["e"]),
        ("burgers", lambda u, p: (u * slope(u))[2] - 0.1 * p["e"]),
        ("power", lambda u, p: torch.fft.rfft(u, dim=0).abs()[2] ** 2 - p["e"]),
        ("kernel of params", lambda u, p: F.conv1d(u.T[:, None], p["k"][None, None]).square().sum((1, 2)) - p["e"]),
    ],
)
def test_spectral_and_convolution_laws_are_lowered(name: str, law: Callable[[Tensor, Params], Tensor]):
    params = {
        "e": 1.0 + torch.rand(5, 4, generator=torch.Generator().manual_seed(2)).double(),
        "k": randn(5, 3, seed=3),
    }
    laws: list[Law] = [Equality(name, law), Equality("mean", lambda u, p: u.mean(0) - 0.1)]
    project = Projector(laws, (9, 4), {key: value[:1] for key, value in params.items()})
    assert not is_opaque(project)
    u_hat = randn(5, 9, 4)
    result = project(u_hat, params).raise_for_status()
    violation, gap = judged(laws, u_hat, result, params)
    assert violation <= project.tolerance
    assert gap <= NEAR


def test_a_convolution_gives_the_answer_of_its_stencil():
    taps = torch.tensor([1.0, -2.0, 1.0], dtype=torch.float64)
    by_kernel = Equality("bend", lambda u, p: F.conv1d(u.T[:, None], taps[None, None]).square().sum((1, 2)) - 1.0)
    by_slices = Equality("bend", lambda u, p: (u[2:] - 2 * u[1:-1] + u[:-2]).square().sum(0) - 1.0)
    one, other = (Projector([law], (9, 4), tolerance=1e-12) for law in (by_kernel, by_slices))
    dense = one.structure.pattern.csr(torch.ones(one.structure.nnz).double().numpy()).toarray()
    stencil = other.structure.pattern.csr(torch.ones(other.structure.nnz).double().numpy()).toarray()
    assert (dense >= stencil).all()
    u_hat = randn(4, 9, 4)
    assert torch.allclose(one(u_hat).u, other(u_hat).raise_for_status().u, rtol=0, atol=1e-12)


@pytest.mark.parametrize("curved", [False, True])
def test_divergence_through_planes_of_waves(curved: bool):
    across = 1j * torch.fft.fftfreq(3, 1 / 3).double()[:, None]
    along = 1j * torch.fft.fftfreq(5, 1 / 5).double()

    def divergence(u: Tensor, p: Params) -> Tensor:
        return torch.fft.ifft2(across * torch.fft.fft2(u[0]) + along * torch.fft.fft2(u[1])).real

    laws: list[Law] = [Equality("divergence", divergence)]
    if curved:
        laws.append(Equality("energy", lambda u, p: u.square().sum((1, 2)) - 3.0))
    project = Projector(laws, (2, 3, 5))
    assert project.structure.affine == (not curved)
    u_hat = randn(4, 2, 3, 5)
    result = project(u_hat).raise_for_status()
    violation, gap = judged(laws, u_hat, result, {})
    assert violation <= project.tolerance
    assert gap <= NEAR
    if not curved:  # the projection onto fields without divergence is known in Fourier space
        spectrum = torch.fft.fft2(u_hat)
        kx, ky = across.imag.expand(3, 5), along.imag.expand(3, 5)
        square = (kx**2 + ky**2).clamp(min=1.0)
        share = (kx * spectrum[:, 0] + ky * spectrum[:, 1]) / square
        exact = torch.fft.ifft2(spectrum - torch.stack([kx * share, ky * share], dim=1)).real
        assert torch.allclose(result.u, exact, rtol=0, atol=1e-9)
