"""Linear operators without a lowering of their own: probed matrices, complex numbers, transforms, convolutions."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tests.compile import dense
from torch import Tensor

from snapfm.compile import CompiledLaws, compile_laws
from snapfm.compile.lower import regions
from snapfm.compile.lower.regions import NotLinear, probe
from snapfm.compile.lower.tape import ONE
from snapfm.compile.sparsity.pattern import Pattern
from snapfm.laws import Equality

EPS = np.finfo(np.float64).eps
SHAPE = (8, 5)
WAVES = 1j * torch.arange(5, dtype=torch.float64)[:, None]
PLANE = 1j * torch.fft.fftfreq(8, 1 / 8).double()[:, None]
TAPS = torch.tensor([1.0, -2.0, 1.0], dtype=torch.float64)
PARAMS = {"k": TAPS[None], "c": torch.linspace(0.5, 1.2, 8, dtype=torch.float64)[None]}


def _compiled(law: Callable[..., Tensor], shape: tuple[int, ...] = SHAPE) -> CompiledLaws:
    return compile_laws([Equality("law", law)], shape, PARAMS)


def _rows(law: Callable[..., Tensor]) -> tuple[np.ndarray, np.ndarray, CompiledLaws]:
    """The matrix and offset of an affine law's rows as lowered."""
    laws = _compiled(law)
    assert laws.opaque == {}
    matrix, tape = laws.scalar.rows.toarray(), laws.scalar.tape
    return matrix[:, tape.unknown_cells], matrix[:, ONE], laws


def _lines(u: Tensor) -> Tensor:
    """Columns of the field as a batch with one channel, for convolutions along x."""
    return u.T[:, None]


AFFINE = {
    "derivative": lambda u, p: torch.fft.irfft(WAVES * torch.fft.rfft(u, dim=0), n=8, dim=0) - 1.0,
    "derivative on planes": lambda u, p: torch.fft.ifft2(PLANE * torch.fft.fft2(u)).real,
    "spectrum": lambda u, p: torch.view_as_real(torch.fft.fft2(u) + 2j),
    "conjugate": lambda u, p: torch.fft.fft(u, dim=0).conj().imag,
    "joined": lambda u, p: torch.fft.fft(torch.complex(u, 2 * u), dim=0).real[3:],
    "shifted": lambda u, p: torch.fft.fftshift(torch.fft.fft(u, dim=0), dim=0).imag,
    "split": lambda u, p: torch.fft.fft(u, dim=0).split(3)[1].real,
    "convolution": lambda u, p: F.conv1d(_lines(u), TAPS[None, None], bias=TAPS[:1], padding=1),
    "convolution of planes": lambda u, p: F.conv2d(u[None, None], torch.outer(TAPS, TAPS)[None, None]),
    "interpolation": lambda u, p: F.interpolate(_lines(u), scale_factor=2, mode="linear"),
    "pooling": lambda u, p: F.avg_pool2d(u[None, None], 2),
    "filled": lambda u, p: F.pad(u, (1, 1), value=3.0),
    "masked": lambda u, p: u.masked_fill(torch.eye(8, 5, dtype=torch.bool), 2.0),
    "matrix of waves": lambda u, p: (torch.exp(WAVES[:, 0].outer(torch.arange(8.0))) @ u.to(torch.complex128)).real,
}


@pytest.mark.parametrize("name", AFFINE)
def test_an_affine_chain_becomes_the_rows_of_its_matrix(name: str):
    law = AFFINE[name]
    matrix, offset, laws = _rows(law)
    assert laws.scalar.tape.blocks == []
    assert laws.affine
    assert laws.nnz == np.count_nonzero(matrix)
    sample = {key: value[0] for key, value in PARAMS.items()}
    unit = torch.eye(40, dtype=torch.float64).reshape(40, *SHAPE)
    zero = law(torch.zeros(SHAPE, dtype=torch.float64), sample).reshape(-1)
    truth = torch.stack([law(one, sample).reshape(-1) - zero for one in unit], dim=1)
    tolerance = 1e2 * EPS * float(truth.abs().max())
    assert np.abs(matrix - truth.numpy()).max() <= tolerance
    assert np.abs(offset - zero.numpy()).max() <= tolerance


def test_a_derivative_through_planes_is_as_sparse_as_one_along_lines():
    along, _, _ = _rows(AFFINE["derivative"])
    planes, _, _ = _rows(lambda u, p: AFFINE["derivative on planes"](u, p) - 1.0)
    assert (np.count_nonzero(planes, axis=1) <= 8).all()
    assert np.count_nonzero(along) == np.count_nonzero(along.reshape(8, 5, 8, 5) * np.eye(5)[None, :, None])


def test_every_line_has_the_same_bits():
    matrix, _, _ = _rows(lambda u, p: torch.fft.irfft(WAVES * torch.fft.rfft(u, dim=0), n=8, dim=0))
    blocks = matrix.reshape(8, 5, 8, 5)
    for line in range(1, 5):
        assert np.array_equal(blocks[:, line, :, line], blocks[:, 0, :, 0])


def test_a_convolution_equals_the_stencil_by_slices():
    by_kernel, _, _ = _rows(lambda u, p: F.conv1d(_lines(u), TAPS[None, None])[:, 0].T)
    by_slices, _, _ = _rows(lambda u, p: u[2:] - 2 * u[1:-1] + u[:-2])
    assert np.array_equal(by_kernel, by_slices)


CURVED = {
    "energy": lambda u, p: AFFINE["derivative"](u, p).square().sum(0),
    "of a square": lambda u, p: torch.fft.irfft(WAVES * torch.fft.rfft(u**2, dim=0), n=8, dim=0),
    "magnitude": lambda u, p: torch.fft.rfft(u, dim=0).abs(),
    "power": lambda u, p: torch.fft.rfft(u, dim=0).abs() ** 2,
    "power by conjugates": lambda u, p: (torch.fft.fft(u, dim=0) * torch.fft.fft(u, dim=0).conj()).real,
    "complex square": lambda u, p: (torch.fft.fft(u, dim=0) ** 2).imag,
    "symbol of params": lambda u, p: (torch.fft.fft(u, dim=0) * torch.fft.fft(p["c"])[:, None]).real,
    "offset of params": lambda u, p: torch.fft.fft(u[:, 0] - p["c"]).imag + torch.fft.fft(p["c"]).real,
    "kernel of params": lambda u, p: F.conv1d(_lines(u), p["k"][None, None], bias=p["c"][:1], padding=1),
    "kernel of the field": lambda u, p: F.conv1d(_lines(u), u[None, None, :3, 0]),
}


@pytest.mark.parametrize("name", CURVED)
def test_nonlinear_operators_read_probed_maps(name: str):
    """Jacobian and Hessian at two samples with other params than the example's."""
    law, laws = CURVED[name], _compiled(CURVED[name])
    assert laws.opaque == {}
    assert laws.scalar.tape.blocks or laws.scalar.tape.params
    u = torch.randn(2, *SHAPE, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    params = {
        "k": torch.tensor([[0.3, 1.0, -0.2], [0.5, 0.0, 2.0]], dtype=torch.float64),
        "c": torch.stack([torch.arange(8.0).double() - 2.5, torch.linspace(0, 1, 8, dtype=torch.float64)]),
    }
    weight = torch.randn(2, laws.rows, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    slopes, curvature = laws.jacobian(u, params), torch.from_numpy(laws.hessian(u, params, weight))
    for i in range(2):
        sample = {key: value[i] for key, value in params.items()}
        dense.assert_agrees(
            "Jacobian", laws.pattern, slopes[i], dense.jacobian(law, u[i], sample), 1e3 * EPS, noisy=True
        )
        truth = dense.hessian(law, u[i], sample, weight[i])
        dense.assert_agrees("Hessian", laws.hessian_pattern, curvature[i], truth, 1e4 * EPS, noisy=True)


@pytest.mark.parametrize(
    ("law", "reason"),
    [
        (lambda u, p: u.sort(0).values, "sort"),
        (lambda u, p: u.median(0).values.cumsum(0), "median"),
        (lambda u, p: torch.fft.fft(u, dim=0).acos().real, "acos of complex numbers"),
        (lambda u, p: u.float().round().double() + u**2, "_to_copy in torch.float32"),
    ],
)
def test_what_has_no_scalar_form_says_which_operator(law: Callable[..., Tensor], reason: str):
    laws = _compiled(law)
    assert laws.opaque[0].reason == reason
    assert f"slow path: law 'law' uses {reason}, which has no scalar form" in str(laws)
    laws.check()


def test_the_law_that_cannot_be_lowered_is_known_by_its_place():
    laws = [Equality("first", lambda u, p: u.sum()), Equality("second", lambda u, p: u.sort(0).values)]
    compiled = compile_laws(laws, SHAPE)
    assert list(compiled.opaque) == [1]
    assert np.diff(compiled.scalar.rows.indptr).tolist() == [compiled.unknowns] + [0] * compiled.laws[1].rows


def test_a_map_too_dense_to_write_out_says_how_dense(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(regions, "ENTRY_LIMIT", 100)
    laws = _compiled(lambda u, p: AFFINE["derivative"](u, p) ** 2)
    reason = laws.opaque[0].reason
    assert re.fullmatch(r"_fft_r2c → .*, whose matrix of 320 entries is too dense to write out \(limit 100\)", reason)
    laws.check()
    laws.verify(torch.rand(1, *SHAPE, dtype=torch.float64), {key: value[:1] for key, value in PARAMS.items()})


def _dense(rows: int, columns: int) -> Pattern:
    row, column = np.indices((rows, columns))
    return Pattern.from_coordinates(row.ravel(), column.ravel(), (rows, columns))


def test_a_function_that_is_not_linear_is_found_out():
    with pytest.raises(NotLinear):
        probe(lambda x: x.relu() - (-x).relu() * 0.5, _dense(3, 3))


def test_a_pattern_that_lacks_an_entry_is_found_out():
    with pytest.raises(NotLinear):
        probe(lambda x: x.flip(0) + x, Pattern.from_coordinates([0, 1, 2], [0, 1, 2], (3, 3)))


def test_the_pattern_is_left_as_it_was():
    """Entries of a transform's pattern that turn out to be zero leave the matrix, not the pattern."""
    pattern = _dense(3, 3)
    matrix, _ = probe(lambda x: 2.0 * x, pattern)
    assert matrix.nnz == 3
    assert pattern.indptr.tolist() == [0, 3, 6, 9]


def test_a_map_that_is_read_twice():
    """What was written out once for a product goes on as a map: both see the same numbers."""

    def law(u: Tensor, p: object) -> Tensor:
        part = torch.polar(torch.ones_like(u), u).real
        return part.index_add(0, torch.tensor([2, 1, 2, 0]), part * part)

    laws = _compiled(law, (4, 2))
    laws.check()
    laws.verify(torch.rand(2, 4, 2, dtype=torch.float64), {key: value.expand(2, -1) for key, value in PARAMS.items()})


def test_no_rows_and_no_columns():
    matrix, offset = probe(lambda x: x[:0], Pattern.from_coordinates([], [], (0, 3)))
    assert matrix.shape == (0, 3)
    assert offset.shape == (0,)


def test_a_law_with_a_map_too_dense_is_left_to_torch_before_any_map_is_probed(monkeypatch: pytest.MonkeyPatch):
    """The second transform, of a product, reads two planes and is too dense; the first ones would have been probed in vain."""

    def law(u: Tensor, p: object) -> Tensor:
        slope = torch.fft.ifft2(PLANE * torch.fft.fft2(u)).real
        return torch.fft.ifft2(PLANE * torch.fft.fft2(u * slope) + torch.fft.fft2(u)).real

    assert _compiled(law).opaque == {}
    monkeypatch.setattr(regions, "ENTRY_LIMIT", 1600)  # of 40 × 40 entries
    monkeypatch.setattr(regions, "probe", lambda *_: pytest.fail("probed"))
    assert "too dense to write out" in _compiled(law).opaque[0].reason
