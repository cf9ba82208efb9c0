"""Laws whose Jacobian is too dense to write out: the same answers as with it, and the same contract."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import snapfm
from snapfm import Bounds, Equality, Inequality
from snapfm.compile import MatrixFreeLaws, TooDense, compile_laws, compiled
from snapfm.compile.lower import regions
from snapfm.compile.sparsity import pattern
from snapfm.errors import Status, UnsupportedLaw
from snapfm.laws import Law, Params
from snapfm.linear import Lanes

SIDE = 8
K = 2 * math.pi * torch.fft.fftfreq(SIDE, 1 / SIDE, dtype=torch.float64)
HALF = K[: SIDE // 2 + 1].abs()

Laws = tuple[list[Law], tuple[int, ...]]


def _poisson(u: Tensor, p: Params) -> Tensor:
    square = K[:, None] ** 2 + HALF[None] ** 2
    return torch.fft.irfft2(square * torch.fft.rfft2(u), s=(SIDE, SIDE)) - p["f"]


def _divergence(u: Tensor, p: Params) -> Tensor:
    return torch.view_as_real(K[:, None] * torch.fft.rfft2(u[0]) + HALF[None] * torch.fft.rfft2(u[1]))


def _advection(u: Tensor, p: Params) -> Tensor:
    slope = torch.fft.irfft2(1j * K[:, None] * torch.fft.rfft2(u[:-1]), s=(SIDE, SIDE))
    return u[1:] - u[:-1] + 0.01 * u[:-1] * slope


def _rolled(u: Tensor) -> Tensor:
    return torch.roll(u[0], -1, 0) - torch.roll(u[0], 1, 0) + torch.roll(u[1], -1, 1) - torch.roll(u[1], 1, 1)


DIVERGENCE = Equality("divergence", lambda u, p: _rolled(u))
CASES: dict[str, Laws] = {
    "spectral poisson": ([Equality("poisson", _poisson)], (SIDE, SIDE)),
    "spectral divergence": ([Equality("divergence", _divergence)], (2, SIDE, SIDE)),
    "spectral advection": ([Equality("advection", _advection)], (4, SIDE, SIDE)),
    "band limit": ([Equality("band", lambda u, p: torch.view_as_real(torch.fft.rfft2(u)[3:6, 2:]))], (SIDE, SIDE)),
    "weighted energy": (
        [DIVERGENCE, Equality("energy", lambda u, p: (torch.arange(1.0, 1.0 + SIDE) * u**2).sum() - 300.0)],
        (2, SIDE, SIDE),
    ),
    "bounds": ([DIVERGENCE, Bounds(lower=-0.5, upper=0.5)], (2, SIDE, SIDE)),
    "inequality": ([Inequality("monotone", lambda u, p: u[:-1] - u[1:])], (SIDE, 3)),
    "nonlinear inequality": (
        [Inequality("peak", lambda u, p: (u**4).mean() - 1.0), Equality("mean", lambda u, p: u.mean())], (SIDE, 3),
    ),
}  # fmt: skip


def _params(shape: tuple[int, ...]) -> dict[str, Tensor]:
    return {"f": torch.zeros(1, SIDE, SIDE, dtype=torch.float64)} if shape == (SIDE, SIDE) else {}


def _noise(count: int, shape: tuple[int, ...]) -> Tensor:
    return torch.randn(count, *shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> Callable[..., snapfm.Projector]:
    """Make projectors as for laws that are too dense."""

    def refuse(*_: object) -> None:
        raise TooDense("law expects fewer entries", 10**9)

    def build(*given: object, **settings: object) -> snapfm.Projector:
        with monkeypatch.context() as patch:
            patch.setattr("snapfm.project.projector.compile_laws", refuse)
            return snapfm.Projector(*given, **settings)  # type: ignore[arg-type]

    return build


@pytest.mark.parametrize("name", CASES)
def test_the_answer_is_that_of_the_written_out_jacobian(name: str, free: Callable[..., snapfm.Projector]) -> None:
    laws, shape = CASES[name]
    params, u = _params(shape), _noise(3, shape)
    truth, found = snapfm.Projector(laws, shape, params)(u, params), free(laws, shape, params)(u, params)
    assert found.converged.all()
    assert found.stationarity.max() <= 1e-8
    torch.testing.assert_close(found.u, truth.u, rtol=0.0, atol=1e-7)
    torch.testing.assert_close(found.distance, truth.distance)
    assert (found.second_order == 1).all()


def test_a_law_too_dense_to_write_out_is_matrix_free_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (regions, compiled, pattern):
        monkeypatch.setattr(module, "ENTRY_LIMIT", 1000)
    laws, shape = CASES["spectral advection"]
    with pytest.raises(TooDense, match="law 'advection'"):
        compile_laws(laws, shape)
    project = snapfm.Projector(laws, shape)
    assert isinstance(project.structure, MatrixFreeLaws)
    text = str(project.structure)
    assert "matrix-free" in text
    assert "4×8×8 field: 256 unknowns, 192 rows, nonlinear" in text
    assert project(_noise(2, shape)).converged.all()


def test_laws_whose_factors_would_fill_the_memory_are_matrix_free_and_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    laws, shape = CASES["spectral advection"]
    written, u = snapfm.Projector(laws, shape), _noise(2, shape)
    monkeypatch.setattr("snapfm.project.projector.LARGEST", 1e3)
    project = snapfm.Projector(laws, shape)
    assert isinstance(project.structure, MatrixFreeLaws)
    assert "GB are not computed" in str(project.structure)
    torch.testing.assert_close(project(u).u, written(u).u, rtol=0.0, atol=1e-7)
    assert not isinstance(snapfm.Projector(laws, shape, linear=Lanes()).structure, MatrixFreeLaws)  # as asked for


def test_affine_is_read_off_the_derivative(free: Callable[..., snapfm.Projector]) -> None:
    affine = {name for name, (laws, shape) in CASES.items() if free(laws, shape, _params(shape)).structure.affine}
    assert affine == {"spectral poisson", "spectral divergence", "band limit", "bounds", "inequality"}


def test_a_sample_keeps_its_bits_in_any_batch_and_beside_a_broken_one(free: Callable[..., snapfm.Projector]) -> None:
    laws, shape = CASES["spectral advection"]
    project, u = free(laws, shape), _noise(3, shape)
    alone = project(u[1:2])
    u[0, 0, 0, 0] = torch.nan
    found = project(u)
    assert found.status.tolist() == [Status.NONFINITE, Status.CONVERGED, Status.CONVERGED]
    assert torch.equal(found.u[1], alone.u[0])
    assert torch.equal(project(u).u[1:], found.u[1:])


def test_a_sample_ends_at_its_limits(free: Callable[..., snapfm.Projector]) -> None:
    laws, shape = CASES["spectral advection"]
    project, u = free(laws, shape), _noise(3, shape)
    assert (project(u, limit=1).status == Status.ITERATION_LIMIT).all()
    assert (project(u, seconds=1e-9).status == Status.ITERATION_LIMIT).all()


def test_laws_that_contradict_each_other_do_not_converge(free: Callable[..., snapfm.Projector]) -> None:
    square = K[:2, None] ** 2 + HALF[None, :2] ** 2
    law = Equality("poisson", lambda u, p: torch.fft.irfft2(square * torch.fft.rfft2(u), s=(2, 2)) - p["f"])
    params = {"f": torch.ones(1, 2, 2, dtype=torch.float64)}  # its mean is not that of a Laplacian
    found = free([law], (2, 2), params)(_noise(1, (2, 2)), params)
    assert (found.status == Status.STALLED).all()
    assert (found.violation > 0.5).all()


def test_a_saddle_has_not_converged(free: Callable[..., snapfm.Projector]) -> None:
    """Along its long axis the far end of an ellipse is stationary; the nearest points are beside it."""
    law = Equality("ellipse", lambda u, p: u[0] ** 2 / 4 + u[1] ** 2 - 1.0)
    found = free([law], (2,))(torch.tensor([[0.1, 0.0], [0.1, 0.5]], dtype=torch.float64))
    assert found.second_order.tolist() == [0, 1]
    assert found.status.tolist() == [Status.STALLED, Status.CONVERGED]


@pytest.mark.parametrize("name", ["spectral poisson", "spectral advection", "weighted energy", "bounds"])
def test_gradients_are_those_of_the_written_out_jacobian(name: str, free: Callable[..., snapfm.Projector]) -> None:
    laws, shape = CASES[name]
    params = {key: value.requires_grad_() for key, value in _params(shape).items()}
    slopes = []
    for project in (snapfm.Projector(laws, shape, params), free(laws, shape, params)):
        u = _noise(2, shape).requires_grad_()
        weight = torch.linspace(-1, 1, u.numel(), dtype=torch.float64).reshape(u.shape)
        slopes.append(torch.autograd.grad((weight * project(u, params).u).sum(), [u, *params.values()]))
    for truth, found in zip(*slopes):
        if name == "spectral poisson":  # dependent rows: a gradient in the mean of f has no meaning
            truth, found = truth - truth.mean((-1, -2), keepdim=True), found - found.mean((-1, -2), keepdim=True)
        torch.testing.assert_close(found, truth, rtol=1e-6, atol=1e-6)


def test_move_warm_start_and_float32(free: Callable[..., snapfm.Projector]) -> None:
    laws, shape = CASES["spectral advection"]
    project, u = free(laws, shape), _noise(2, shape)
    found = project(u)
    assert project(u, warm=found).iterations.max() <= 1
    torch.testing.assert_close(project.move(u).u, found.u, rtol=0.0, atol=1e-5)
    assert project.move(u.float(), warm=found).u.dtype == torch.float32
    single = project(u.float())
    assert single.converged.all()
    assert single.u.dtype == torch.float32


def test_a_metric_expects_a_sparse_jacobian(free: Callable[..., snapfm.Projector]) -> None:
    laws, shape = CASES["spectral advection"]
    with pytest.raises(UnsupportedLaw, match="matrix-free"):
        free(laws, shape)(_noise(1, shape), metric=snapfm.Metric(1.0, _noise(1, shape), torch.ones(1)))
