"""Laws that read a field through orthogonal directions are solved over its coefficients, as closed forms are."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from torch import Tensor

import snapfm
from snapfm.compile import CompiledLaws
from snapfm.compile.lower.tape import Block, Tape
from snapfm.compile.lower.transform import transformed
from snapfm.kernels.operators import Op

N = 6
K = torch.fft.fftfreq(N) * N
SHELL = torch.sqrt(K[:, None] ** 2 + K[None] ** 2).round().long().clamp(max=3)


def _spectrum(u: Tensor) -> Tensor:
    energy = torch.fft.fft2(u).abs() ** 2 / N**4
    return torch.zeros(4, dtype=u.dtype).index_add(0, SHELL.flatten(), energy.flatten())


SHELLS = snapfm.Equality("shells", lambda u, p: _spectrum(u) - p["energy"])


def _fields(count: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    true = torch.randn(count, N, N, generator=generator, dtype=torch.float64)
    return true, true + 0.2 * torch.randn(count, N, N, generator=generator, dtype=torch.float64)


def _energies(fields: Tensor) -> Tensor:
    return torch.stack([_spectrum(one) for one in fields])


def test_every_shell_of_wave_numbers_is_scaled() -> None:
    true, u_hat = _fields(5)
    energy = _energies(true)
    project = snapfm.Projector([SHELLS], (N, N), {"energy": energy[:1]}, tolerance=1e-12)
    assert any("orthogonal coefficients" in line for line in str(project.structure).splitlines())
    result = project(u_hat, {"energy": energy}).raise_for_status()
    factor = (energy / _energies(u_hat)).sqrt()[:, SHELL.flatten()].reshape(u_hat.shape)
    nearest = torch.fft.ifft2(torch.fft.fft2(u_hat) * factor).real
    torch.testing.assert_close(result.u, nearest, rtol=0.0, atol=1e-9)
    torch.testing.assert_close(result.distance, (nearest - u_hat).flatten(1).norm(dim=1), rtol=1e-7, atol=0.0)
    assert float(result.stationarity.max()) <= 1e-9


def test_moduli_of_cosine_modes_keep_their_signs() -> None:
    """A cosine transform written as a product with an orthogonal matrix is found as well."""
    k, i = np.arange(9)[:, None], np.arange(9)[None]
    cosines = torch.from_numpy(np.cos(np.pi * k * (2 * i + 1) / 18) * np.where(k == 0, 1 / 3, np.sqrt(2) / 3))
    law = snapfm.Equality("moduli", lambda u, p: (cosines @ u) ** 2 - p["squares"])
    generator = torch.Generator().manual_seed(1)
    u_hat = torch.randn(4, 9, generator=generator, dtype=torch.float64)
    squares = torch.rand(4, 9, generator=generator, dtype=torch.float64) + 0.5
    project = snapfm.Projector([law], (9,), {"squares": squares[:1]}, tolerance=1e-12)
    assert "orthogonal coefficients" in str(project.structure)
    result = project(u_hat, {"squares": squares}).raise_for_status()
    along = u_hat @ cosines.T
    torch.testing.assert_close(result.u, (along.sign() * squares.sqrt()) @ cosines, rtol=0.0, atol=1e-9)


def test_few_rows_may_read_the_field_itself() -> None:
    corner = snapfm.Equality("corner", lambda u, p: u[0, 0] - p["corner"])
    true, u_hat = _fields(3)
    params = {"energy": _energies(true), "corner": true[:, 0, 0].clone()}
    project = snapfm.Projector([SHELLS, corner], (N, N), {k: v[:1] for k, v in params.items()}, tolerance=1e-11)
    assert "orthogonal coefficients" in str(project.structure)
    result = project(u_hat, params).raise_for_status()
    torch.testing.assert_close(result.u[:, 0, 0], params["corner"], rtol=0.0, atol=1e-11)


def test_gradients_in_the_field_and_in_params() -> None:
    true, u_hat = _fields(2, seed=3)
    energy = _energies(true).requires_grad_()
    project = snapfm.Projector([SHELLS], (N, N), {"energy": energy[:1].detach()}, tolerance=1e-11)

    def answer(u: Tensor, given: Tensor) -> Tensor:
        return project(u, {"energy": given}).u

    torch.autograd.gradcheck(answer, (u_hat.requires_grad_(), energy), eps=1e-7, atol=1e-5, rtol=1e-4)


def test_slopes_by_the_unknowns_are_those_of_torch() -> None:
    true, u_hat = _fields(2)
    energy = _energies(true)
    project = snapfm.Projector([SHELLS], (N, N), {"energy": energy[:1]})
    laws = project.structure
    assert isinstance(laws, CompiledLaws)
    laws.verify(u_hat, {"energy": energy})
    slopes = torch.func.jacrev(_spectrum)(u_hat[0]).reshape(4, -1)
    sizes = np.array([1.0, 0.0, 3.0, 0.5])
    pulled = laws.transpose_abs_product(u_hat[:1], {"energy": energy[:1]}, sizes)
    np.testing.assert_allclose(pulled, sizes @ slopes.abs().numpy(), rtol=1e-12)


def test_bits_do_not_depend_on_the_batch_nor_on_a_neighbor() -> None:
    true, u_hat = _fields(11)
    energy = _energies(true)
    project = snapfm.Projector([SHELLS], (N, N), {"energy": energy[:1]})
    whole = project(u_hat, {"energy": energy})
    alone = project(u_hat[6:7], {"energy": energy[6:7]})
    assert torch.equal(whole.u[6:7], alone.u)
    u_hat[3] = torch.nan
    spoiled = project(u_hat, {"energy": energy})
    assert spoiled.status[3] == snapfm.Status.NONFINITE
    assert torch.equal(spoiled.u[4:], whole.u[4:])


def test_float32_and_warm_starts() -> None:
    true, u_hat = _fields(3)
    energy = _energies(true)
    project = snapfm.Projector([SHELLS], (N, N), {"energy": energy[:1]})
    first = project(u_hat, {"energy": energy})
    moved = project.move(u_hat.float(), {"energy": energy}).u
    assert moved.dtype == torch.float32
    torch.testing.assert_close(moved.double(), first.u, rtol=0.0, atol=1e-5)
    again = project(u_hat, {"energy": energy}, warm=first).raise_for_status()
    assert int(again.iterations.max()) < int(first.iterations.max())


@pytest.mark.parametrize("law", ["bounded", "askew", "sparse"])
def test_laws_that_do_not_allow_it_keep_their_unknowns(law: str) -> None:
    mix = torch.randn(40, 36, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    laws = {
        "bounded": [SHELLS, snapfm.Bounds(lower=-9.0)],
        "askew": [snapfm.Equality("mixed", lambda u, p: ((mix @ u.flatten()) ** 2).sum() - p["energy"].sum())],
        "sparse": [snapfm.Equality("squares", lambda u, p: (u**2).sum(1)[:4] - p["energy"])],
    }[law]
    true, _ = _fields(1)
    project = snapfm.Projector(laws, (N, N), {"energy": _energies(true)})
    assert "orthogonal coefficients" not in str(project.structure)


def test_directions_that_differ_in_sign_and_size_are_one() -> None:
    """The tape's operands are ±c times orthogonal rows; a third one lies in their span."""
    rng = np.random.default_rng(4)
    basis = np.linalg.qr(rng.standard_normal((12, 12)))[0]
    forms = np.stack([2.0 * basis[0], -0.5 * basis[0], basis[1], 3.0 * basis[2]])
    tape = Tape(12, blocks=[Block(Op.SQUARE, 13, csr_array(np.concatenate([np.zeros((4, 1)), forms], axis=1)))])
    rows = csr_array((np.ones(4), (np.zeros(4, int), 13 + np.arange(4))), shape=(1, 17))
    over, new, transform = transformed(tape, rows)
    assert transform is not None
    assert transform.matrix.shape == (3, 12)
    found = over.blocks[0].a[:, over.unknown_cells].toarray() @ transform.matrix
    np.testing.assert_allclose(found, forms, atol=1e-13)
    assert new.shape == (1, 1 + 3 + 4)
