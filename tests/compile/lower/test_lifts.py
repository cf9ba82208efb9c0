"""Transforms that factor by axis: found by acting on fields, never written out, and solved as closed forms are."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import snapfm
from snapfm.compile import CompiledLaws, compile_laws
from snapfm.errors import UnsupportedLaw

Map = Callable[[Tensor], Tensor]


def _cosines(count: int) -> Tensor:
    k, i = torch.arange(count, dtype=torch.float64)[:, None], torch.arange(count, dtype=torch.float64)[None]
    basis = torch.cos(torch.pi * k * (2 * i + 1) / (2 * count)) * (2.0 / count) ** 0.5
    basis[0] /= 2.0**0.5
    return basis


def _haar(u: Tensor) -> Tensor:
    """Coefficients of a plane along Haar wavelets: differences of ever coarser means."""
    parts = []
    while u.shape[-1] > 1:
        a, b, c, d = u[0::2, 0::2], u[1::2, 0::2], u[0::2, 1::2], u[1::2, 1::2]
        parts += [(a + b - c - d) / 2, (a - b + c - d) / 2, (a - b - c + d) / 2]
        u = (a + b + c + d) / 2
    return torch.cat([one.flatten() for one in (*parts, u)])


C, S = _cosines(12), _cosines(8)
MIX = torch.linalg.qr(torch.randn(9, 9, generator=torch.Generator().manual_seed(4), dtype=torch.float64))[0]
TRANSFORMS: dict[str, tuple[Map, tuple[int, ...]]] = {
    "plane": (lambda u: torch.view_as_real(torch.fft.fft2(u)), (10, 9)),
    "half plane": (lambda u: torch.view_as_real(torch.fft.rfft2(u, norm="ortho")), (9, 12)),
    "shifted": (lambda u: torch.view_as_real(torch.fft.fftshift(torch.fft.fft2(u))), (9, 9)),
    "volume": (lambda u: torch.view_as_real(torch.fft.fftn(u)), (6, 5, 4)),
    "lines": (lambda u: torch.view_as_real(torch.fft.fft(u, dim=1)), (5, 12)),
    "channels": (lambda u: torch.view_as_real(torch.fft.fft2(u)), (3, 9, 8)),
    "cosines": (lambda u: C @ u @ S.T, (12, 8)),
    "cosines by einsum": (lambda u: torch.einsum("ki,ij,lj->kl", C, u, S), (12, 8)),
    "mixed channels": (lambda u: torch.einsum("kc,cxy->kxy", MIX, u), (9, 4, 3)),
    "wavelets": (_haar, (16, 16)),
}


def _draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def _energies(name: str) -> tuple[snapfm.Equality, Map, tuple[int, ...]]:
    """Give the energies of three groups of a transform's numbers."""
    function, shape = TRANSFORMS[name]

    def energies(u: Tensor) -> Tensor:
        found = function(u).flatten()
        return torch.stack([(found[k::3] ** 2).sum() for k in range(3)]) / u.numel()

    return snapfm.Equality("energies", lambda u, p: energies(u) - p["e"]), energies, shape


@pytest.mark.parametrize("name", TRANSFORMS)
def test_a_transform_is_found_and_its_answers_are_stationary(name: str) -> None:
    law, energies, shape = _energies(name)
    true = _draw(3, *shape)
    params = {"e": torch.stack([energies(one) for one in true])}
    project = snapfm.Projector([law], shape, {"e": params["e"][:1]}, tolerance=1e-11)
    laws = project.structure
    assert isinstance(laws, CompiledLaws)
    assert laws.scalar.transform is not None
    assert laws.scalar.transform.matrix.nnz <= true[0].numel() ** 2 / 8
    u_hat = true + 0.1 * _draw(3, *shape, seed=1)
    result = project(u_hat, params).raise_for_status()
    for one, start, wanted, multipliers in zip(
        result.u, u_hat, params["e"], result.multipliers["energies"], strict=True
    ):
        torch.testing.assert_close(energies(one), wanted, rtol=0.0, atol=1e-10)
        pulled = torch.func.vjp(energies, one)[1](multipliers)[0]
        torch.testing.assert_close(one - start + pulled, torch.zeros_like(one), rtol=0.0, atol=1e-9)
    laws.verify(u_hat, params)


@pytest.mark.parametrize("name", ["plane", "volume", "lines", "cosines"])
def test_a_matrix_of_the_whole_field_is_never_written_out(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    law, _, shape = _energies(name)
    unknowns = int(torch.tensor(shape).prod())
    monkeypatch.setattr("snapfm.compile.lower.regions.ENTRY_LIMIT", 8 * unknowns - 1)
    laws = compile_laws([law], shape, {"e": torch.zeros(1, 3, dtype=torch.float64)})
    assert not laws.opaque
    transform = laws.scalar.transform
    assert transform is not None
    (lift,) = transform.lifts
    assert all(
        basis is None or basis.shape == (extent, extent) for basis, extent in zip(lift.bases, lift.shape, strict=True)
    )
    fields = _draw(3, *shape).flatten(1).numpy()
    around = transform.back(transform.forward(fields))
    torch.testing.assert_close(torch.from_numpy(around), torch.from_numpy(fields), rtol=0.0, atol=1e-13)


def test_one_channel_is_transformed_beside_others_that_are_not() -> None:
    _, energies, shape = _energies("plane")
    rises = lambda u: ((u[1, 1:] - u[1, :-1]) ** 2).sum(0)  # noqa: E731
    laws = [
        snapfm.Equality("energies", lambda u, p: energies(u[0]) - p["e"]),
        snapfm.Equality("rises", lambda u, p: rises(u) - p["r"]),
        snapfm.Equality("corner", lambda u, p: u[0, 0, 0] - p["c"]),
    ]
    true = _draw(3, 2, *shape)
    params = {"e": torch.stack([energies(one[0]) for one in true]), "r": torch.stack([rises(one) for one in true])}
    params["c"] = true[:, 0, 0, 0].clone()
    project = snapfm.Projector(
        laws, true.shape[1:], {name: value[:1] for name, value in params.items()}, tolerance=1e-11
    )
    assert "orthogonal coefficients" in str(project.structure)
    u_hat = true + 0.1 * _draw(*true.shape, seed=1)
    result = project(u_hat, params).raise_for_status()
    again = project(u_hat, params, warm=result).raise_for_status()
    assert int(again.iterations.max()) <= 1
    assert torch.equal(project(u_hat[2:], {name: value[2:] for name, value in params.items()}).u, result.u[2:])
    metric = snapfm.Metric(1.0, 0.1 * _draw(2, *true.shape[1:], seed=2), torch.ones(2, dtype=torch.float64))
    nearer = project(u_hat, params, metric=metric).raise_for_status()
    assert float((nearer.u - result.u).abs().max()) > 1e-6
    uneven = snapfm.Metric(
        0.5 + torch.rand(true.shape[1:], generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    )
    project(u_hat, params, metric=uneven).raise_for_status()


def test_gradients_go_through_a_lift() -> None:
    law, energies, shape = _energies("half plane")
    true = _draw(2, *shape)
    given = torch.stack([energies(one) for one in true]).requires_grad_()
    project = snapfm.Projector([law], shape, {"e": given[:1].detach()}, tolerance=1e-12)
    u_hat = (true + 0.1 * _draw(2, *shape, seed=1)).requires_grad_()
    torch.autograd.gradcheck(
        lambda u, e: project(u, {"e": e}).u, (u_hat, given), eps=1e-7, atol=1e-5, rtol=1e-4, fast_mode=True
    )


@pytest.mark.parametrize("beside", ["bounds", "squares"])
def test_what_reads_the_field_itself_is_solved_by_products(beside: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("snapfm.compile.compiled.PAIR_LIMIT", 100_000)
    law, energies, shape = _energies("plane")
    true = (1.0 + 0.5 * _draw(3, *shape)).clamp(min=0.05)
    params = {"e": torch.stack([energies(one) for one in true]), "s": (true**2).sum(2)}
    laws = {
        "bounds": [law, snapfm.Bounds(lower=0.0)],
        "squares": [law, snapfm.Inequality("squares", lambda u, p: u**2 - 20.0)],
    }[beside]
    project = snapfm.Projector(laws, shape, {name: value[:1] for name, value in params.items()})
    assert "matrix-free: second derivatives of transforms" in " ".join(str(project.structure).split())
    result = project(true + 0.2 * _draw(3, *shape, seed=1), params).raise_for_status()
    torch.testing.assert_close(torch.stack([energies(one) for one in result.u]), params["e"], rtol=0.0, atol=1e-8)
    assert beside != "bounds" or float(result.u.min()) >= 0.0


def test_quadratic_forms_of_low_rank_are_spanned() -> None:
    """Eighty directions at any angles, of six hundred unknowns: too many to be askew, few enough to be a basis."""
    mix = _draw(80, 600) / 600**0.5
    energies = lambda u: ((mix @ u) ** 2).reshape(8, 10).sum(1)  # noqa: E731
    true = _draw(3, 600, seed=1)
    params = {"e": torch.stack([energies(one) for one in true])}
    project = snapfm.Projector(
        [snapfm.Equality("groups", lambda u, p: energies(u) - p["e"])], (600,), {"e": params["e"][:1]}
    )
    assert "transform into 80 orthogonal coefficients" in str(project.structure)
    result = project(true + _draw(3, 600, seed=2), params).raise_for_status()
    torch.testing.assert_close(torch.stack([energies(one) for one in result.u]), params["e"], rtol=0.0, atol=1e-8)


def _shells(n: int) -> tuple[snapfm.Equality, torch.Tensor, dict[str, torch.Tensor]]:
    """Energies of the shells of the first of two channels, true fields, and their energies."""
    wave = torch.fft.fftfreq(n) * n
    shell = (wave[:, None].square() + wave.square()).sqrt().round().long()
    inside = torch.nn.functional.one_hot(shell).double()

    def energies(u: torch.Tensor) -> torch.Tensor:
        return torch.einsum("...ij,ijs->...s", torch.fft.fft2(u[..., 0, :, :]).abs().square(), inside)

    u = torch.randn(4, 2, n, n, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return snapfm.Equality("shells", lambda u, p: energies(u) - p["energy"]), u, {"energy": energies(u)}


def test_units_that_do_not_change_along_an_axis_keep_a_transform():
    law, u, params = _shells(8)
    channels = torch.tensor([4.0, 1e6], dtype=torch.float64)[:, None, None].expand(2, 8, 8)
    plain = snapfm.Projector([law], (2, 8, 8), params, 1e-7)
    scaled = snapfm.Projector([law], (2, 8, 8), params, 1e-7, metric=snapfm.Metric(channels.clone()))
    one, other = plain(1.3 * u, params), scaled(1.3 * u, params)
    assert one.converged.all()
    assert torch.equal(one.iterations, other.iterations)
    torch.testing.assert_close(one.u, other.u)
    torch.testing.assert_close(one.distance, 2.0 * other.distance)


def test_units_that_change_along_an_axis_do_without_it():
    law, u, params = _shells(8)
    variances = 0.5 + torch.rand(2, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    found = snapfm.Projector([law], (2, 8, 8), params, 1e-7, metric=snapfm.Metric(variances))(1.3 * u, params)
    assert found.converged.all()
    step = (found.u - 1.3 * u) / variances  # Σ⁻¹(u − û) = −Jᵀλ reads the first channel alone
    assert step[:, 1].abs().max() == 0.0
    transformed = torch.fft.fft2(step[:, 0]) / torch.fft.fft2(found.u[:, 0])  # one real factor for each shell
    wave = torch.fft.fftfreq(8) * 8
    shell = (wave[:, None].square() + wave.square()).sqrt().round().long()
    for number in range(int(shell.max()) + 1):
        mine = transformed[:, shell == number]
        assert float((mine - mine[:, :1].real).abs().max()) < 1e-6


def test_variances_of_a_call_for_which_laws_are_not_written_out_are_refused():
    law, u, params = _shells(24)
    project = snapfm.Projector([law], (2, 24, 24), params, 1e-6)
    variances = 0.5 + torch.rand(2, 24, 24, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    with pytest.raises(UnsupportedLaw, match=r"project\(metric=…\) expects variances .* Give them to Projector"):
        project(u, params, metric=snapfm.Metric(variances))
