"""Laws of operators that were hard to lower: sparse Jacobian and Hessian from scalar programs against dense ones of torch."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tests.compile import dense
from torch import Tensor, nn

import snapfm
from snapfm.compile import CompiledLaws, compile_laws
from snapfm.compile.lower import indexing, inverses
from snapfm.compile.lower.formulas import REAL
from snapfm.kernels.operators import Op
from snapfm.laws import Equality

DOUBLE = torch.float64
EYE = torch.eye(4, dtype=DOUBLE)
MASK = torch.tensor([True, False, False, True, False])
WEIGHTS = torch.tensor([0.0, 1.0, 2.0, 0.0, 3.0], dtype=DOUBLE)


def _stacked(u: Tensor) -> Tensor:
    """Make a 4 × 4 matrix of a (3, 5) field."""
    return torch.cat([u[:, :4], u[:1, 1:]])


LAWS = {
    "softplus": lambda u, p: F.softplus(9 * u - 3, beta=2.5, threshold=6.0),
    "gelu-tanh": lambda u, p: F.gelu(4 * u - 2, approximate="tanh"),
    "glu": lambda u, p: F.glu(u[:, :4]),
    "hardswish": lambda u, p: F.hardswish(8 * u - 4),
    "softsign": lambda u, p: F.softsign(u),
    "tanhshrink": lambda u, p: F.tanhshrink(u),
    "atan2": lambda u, p: torch.atan2(u - 0.5, u.flip(1) - 0.45),
    "hypot": lambda u, p: torch.hypot(u, u.roll(1, 0)),
    "logaddexp": lambda u, p: torch.logaddexp(u, u.flip(0)),
    "xlogy": lambda u, p: torch.xlogy(u, u.flip(0)),
    "xlogy-known": lambda u, p: torch.xlogy(WEIGHTS, u),
    "xlog1py": lambda u, p: torch.special.xlog1py(u, u.flip(0)),
    "lerp": lambda u, p: torch.lerp(u, u.flip(0), u.roll(1, 1)),
    "fmod": lambda u, p: torch.fmod(3 * u, u.flip(0)),
    "remainder": lambda u, p: torch.remainder(3 * u, p["p"]),
    "power-of-field": lambda u, p: u ** u.flip(0),
    "power-of-param": lambda u, p: u ** (p["p"] - 0.5),
    "power-of-base": lambda u, p: 2.0**u,
    "power-of-param-base": lambda u, p: p["p"] ** u,
    "powers-below-zero": lambda u, p: (u - 1) ** torch.tensor([0, 1, 2, 3, 4]),
    "norm-one": lambda u, p: u.norm(p=1, dim=0),
    "norm-largest": lambda u, p: u.norm(p=torch.inf, dim=1),
    "norm-three": lambda u, p: (u - 0.5).norm(p=3, dim=0),
    "norm-four": lambda u, p: torch.linalg.vector_norm(u, 4),
    "distances": lambda u, p: torch.linalg.vector_norm(u[:, None] - (u.flip(0) + 1), 2, -1),
    "variance": lambda u, p: u.var(dim=(0, 1), correction=0),
    "deviation": lambda u, p: u.std(),
    "layer-norm": lambda u, p: F.layer_norm(u, (5,)),
    "group-norm": lambda u, p: F.group_norm(u[None, :, :4].reshape(1, 4, 3), 2),
    "normalize": lambda u, p: F.normalize(u, dim=1),
    "cosine": lambda u, p: F.cosine_similarity(u[0], u[1], dim=0),
    "softmax-times": lambda u, p: (5 * u).softmax(0) * u,
    "log-softmax": lambda u, p: (10 * u).log_softmax(1),
    "logsumexp-all": lambda u, p: torch.logsumexp(u, (0, 1)),
    "softmax-masked": lambda u, p: u.masked_fill(MASK, -torch.inf).softmax(1),
    "attention": lambda u, p: F.scaled_dot_product_attention(u[None], 2 * u[None], u[None]),
    "masked-by-field": lambda u, p: u.masked_fill(u > 0.5, -3.0) * u,
    "masked-by-param": lambda u, p: u.masked_fill(p["p"] > 1, 7.0) ** 2,
    "scatter-param": lambda u, p: torch.scatter(u, 1, torch.tensor([[1, 2]]), p["p"][:2][None]) ** 2,
    "cross-entropy": lambda u, p: F.binary_cross_entropy_with_logits(u, u.flip(0)),
    "divergence": lambda u, p: F.kl_div(u.log(), u.flip(0), reduction="sum"),
    "running-largest": lambda u, p: u.cummax(1).values * u,
    "det-2": lambda u, p: torch.linalg.det(u[:2, :2] + EYE[:2, :2]),
    "det-3": lambda u, p: torch.det(u[:, :3]),
    "det-4": lambda u, p: torch.linalg.det(_stacked(u)),
    "det-blocks": lambda u, p: torch.linalg.det(u[:, :4].reshape(3, 2, 2)),
    "log-det": lambda u, p: torch.linalg.slogdet(u[:, :3] + 2 * EYE[:3, :3])[1],
    "inverse-3": lambda u, p: torch.linalg.inv(u[:, :3] + 2 * EYE[:3, :3]),
    "inverse-4": lambda u, p: torch.linalg.inv(_stacked(u) + 2 * EYE),
    "inverse-blocks": lambda u, p: torch.linalg.inv(u[:, :4].reshape(3, 2, 2) + 2 * EYE[:2, :2]),
    "solve": lambda u, p: torch.linalg.solve(u[:, :3] + 2 * EYE[:3, :3], u[:, 3]),
    "solve-columns": lambda u, p: torch.linalg.solve(u[:, :3] + 2 * EYE[:3, :3], u[:, 3:]),
    "solve-blocks": lambda u, p: torch.linalg.solve(u[:, :4].reshape(3, 2, 2) + 2 * EYE[:2, :2], u[:, 3:]),
    "solve-known": lambda u, p: torch.linalg.solve(EYE[:3, :3] + 0.2, u**2),
    "solve-param": lambda u, p: torch.linalg.solve(torch.diag(p["p"]) + 0.1, (u**2).T),
    "cross": lambda u, p: torch.linalg.cross(u[:, 0], u[:, 1]),
    "index-param": lambda u, p: u[0, p["i"]].sin() - p["p"][0],
    "index-lone": lambda u, p: u[0, p["n"]] ** 2,
    "index-lone-row": lambda u, p: u[p["n"]] ** 2,
    "index-lone-last": lambda u, p: u[..., -1 - p["n"]] ** 2,
    "index-lone-pair": lambda u, p: u[p["n"], None, p["n"] + 1] ** 2,
    "index-lone-beside": lambda u, p: u[p["j"], p["n"]] ** 2,
    "take-lone": lambda u, p: torch.take(u, p["n"] + 7) ** 2,
    "index-both": lambda u, p: u[p["j"], p["i"]] ** 2,
    "index-beside-known": lambda u, p: u[torch.tensor([2, 0]), p["i"]] * u[0, 0],
    "index-rows": lambda u, p: u[p["j"]] * u[:2],
    "index-negative": lambda u, p: u[:, -p["i"] - 1] ** 2,
    "index-select": lambda u, p: u.index_select(1, p["k"][0]) * 2,
    "gather": lambda u, p: u.gather(-1, p["k"]).exp(),
    "take": lambda u, p: torch.take(u, p["i"] + 3),
    "embedding": lambda u, p: F.embedding(p["k"], u.T) ** 2,
}  # fmt: skip


def fields() -> tuple[Tensor, dict[str, Tensor]]:
    """Two samples inside the domain of roots and logarithms, whose indices differ."""
    generator = torch.Generator().manual_seed(3)
    u = 0.1 + 0.8 * torch.rand(2, 3, 5, generator=generator, dtype=DOUBLE)
    k = torch.tensor([[0, 4, 4], [1, 1, 0], [2, 3, 3]])
    return u, {
        "p": 0.6 + torch.rand(2, 5, generator=generator, dtype=DOUBLE),
        "i": torch.tensor([[3, 1], [0, 4]]),
        "j": torch.tensor([[0, 2], [1, 1]]),
        "n": torch.tensor([2, 0]),
        "k": torch.stack([k, 4 - k]),
    }


def assert_lowered_and_right(compiled: CompiledLaws, law: Equality, u: Tensor, params: dict[str, Tensor]) -> None:
    assert not compiled.opaque, [one.reason for one in compiled.opaque.values()]
    jacobian = compiled.jacobian(u, params)
    weight = torch.randn(len(u), compiled.rows, generator=torch.Generator().manual_seed(7), dtype=DOUBLE)
    pattern = compiled.hessian_pattern
    assert pattern is not None
    hessian = compiled.hessian(u, params, weight)
    for i in range(len(u)):
        sample = {name: value[i] for name, value in params.items()}
        slopes = np.asarray(dense.jacobian(law.residual, u[i], sample).detach())
        found = compiled.pattern.csr(jacobian[i].numpy()).toarray()
        scale = max(1.0, np.abs(slopes).max(initial=0.0))
        assert np.abs(found - slopes).max(initial=0.0) <= 1e-12 * scale
        curved = np.asarray(dense.hessian(law.residual, u[i], sample, weight[i]).detach())
        scale = max(1.0, np.abs(curved).max(initial=0.0))
        assert np.abs(pattern.csr(hessian[i]).toarray() - curved).max(initial=0.0) <= 1e-11 * scale


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("name", LAWS)
def test_lowered_and_right(name: str) -> None:
    u, params = fields()
    law = Equality(name, LAWS[name])
    assert_lowered_and_right(compile_laws([law], (3, 5), params), law, u, params)


def _network(activation: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 7), activation, nn.Linear(7, 2)).double()


NETWORKS = [nn.Tanh(), nn.SiLU(), nn.GELU(), nn.GELU("tanh"), nn.Softplus(), nn.ELU(), nn.Mish(), nn.LeakyReLU()]


@pytest.mark.parametrize("activation", NETWORKS, ids=repr)
def test_a_trainable_network_is_a_law(activation: nn.Module) -> None:
    """Its weights are constants: nothing warns, and no gradient is left on them."""
    network = _network(activation)
    law = Equality("network", lambda u, p: network(u) - 0.1)
    u, _ = fields()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled = compile_laws([law], (3, 5), {})
    assert_lowered_and_right(compiled, law, u, {})
    assert not compiled.residual(u, {}).requires_grad
    assert all(weight.grad is None for weight in network.parameters())


def test_a_projection_obeys_a_network() -> None:
    network = _network(nn.SiLU())
    laws = [
        Equality("network", lambda u, p: network(u).sum(0)),
        Equality("weight", lambda u, p: (scale * u).sum() - 1.0),
    ]
    scale = nn.Parameter(torch.ones(3, 5, dtype=DOUBLE))
    u, _ = fields()
    found = snapfm.Projector(laws, (3, 5))(u)
    assert found.converged.all()
    with torch.no_grad():
        assert all(law.residual(one, {}).abs().max() < 1e-7 for law in laws for one in found.u)


def test_a_sensor_moves_with_its_param() -> None:
    law = Equality("sensor", lambda u, p: u[:, p["at"]].sum(0) - 2.0)
    u, _ = fields()
    params = {"at": torch.tensor([[1], [4]])}
    found = snapfm.Projector([law], (3, 5), params=params)(u, params)
    assert found.converged.all()
    for i, at in enumerate((1, 4)):
        assert abs(float(found.u[i, :, at].sum()) - 2.0) < 1e-7
        others = [column for column in range(5) if column != at]
        assert torch.equal(found.u[i][:, others], u[i][:, others])


def _refusal(function: object, params: dict[str, Tensor]) -> str:
    compiled = compile_laws([Equality("law", function)], (3, 5), params)  # type: ignore[arg-type]
    return compiled.opaque[0].reason


@pytest.mark.filterwarnings("ignore::snapfm.errors.StructureWarning")
def test_what_has_no_scalar_form_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    _, params = fields()
    assert "sort" in _refusal(lambda u, p: u.sort(1).values, {})
    assert "median" in _refusal(lambda u, p: u.median(1).values, {})
    assert "lgamma" in _refusal(lambda u, p: torch.lgamma(u), {})
    monkeypatch.setattr(inverses, "_LARGEST", 4)
    assert "size 5 (limit 4)" in _refusal(lambda u, p: torch.linalg.det(torch.cat([u, u[:2] ** 2])), {})
    monkeypatch.setattr(indexing, "_CANDIDATES", 4)
    assert (
        _refusal(lambda u, p: u[0, p["i"]] ** 2, params)
        == "indices from params with 5 candidates for each of 2 elements"
    )


def test_a_shift_by_the_largest_keeps_a_softmax_finite() -> None:
    law = Equality("softmax", lambda u, p: (2000.0 * u).softmax(1) - 0.2)
    u, _ = fields()
    compiled = compile_laws([law], (3, 5), {})
    assert np.isfinite(compiled.jacobian(u, {}).numpy()).all()
    assert compiled.pattern.nnz == 75


def test_variance_couples_its_elements_once() -> None:
    """One square of the mean joins all elements; the squares around it join none."""
    compiled = compile_laws([Equality("variance", lambda u, p: u.var(1))], (3, 5), {})
    program = compiled.scalar.program
    assert program.operations == 3 * (1 + 5 + 1)
    assert program.hessian.nnz == 3 * 15


def test_the_largest_is_found_by_halving() -> None:
    compiled = compile_laws([Equality("largest", lambda u, p: u.amax(1))], (3, 64), {})
    assert compiled.scalar.program.operations == 3 * 63
    assert len(compiled.scalar.tape.blocks) == 6


def test_every_name_in_the_table_is_one_of_torch() -> None:
    for op in Op:
        for name in op.aten:
            assert hasattr(torch.ops.aten, name), name
            assert name in REAL


def test_a_listing_survives_pickling() -> None:
    compiled = compile_laws([Equality("law", lambda u, p: torch.tan(u) + u.softmax(1))], (3, 5), {})
    blocks = compiled.scalar.tape.blocks
    assert [block.op for block in pickle.loads(pickle.dumps(blocks))] == [block.op for block in blocks]


@pytest.mark.parametrize(
    ("exponents", "nnz", "operations"),
    [
        ([0.0, 1.0, 2.0, 0.0, 1.0], 9, 3),
        ([3.0, 1.0, -1.5, 0.5, 2.0], 15, 12),
        ([1.0, 1.0, 1.0, 1.0, 0.0], 12, 0),
        ([2.0, 2.0, 2.0, 2.0, 2.0], 15, 15),
    ],
)
def test_known_exponents_are_used_element_by_element(exponents: list[float], nnz: int, operations: int) -> None:
    """To the power 0 an element is a constant, to the power 1 it is linear: neither needs an operation."""
    powers = torch.tensor(exponents, dtype=torch.float64)
    compiled = compile_laws([Equality("powers", lambda u, p: u**powers)], (3, 5))
    u = torch.rand(2, 3, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64) + 0.5
    assert compiled.opaque == {}
    assert (compiled.nnz, compiled.scalar.program.operations) == (nnz, operations)
    compiled.verify(u, {})


def test_no_elements_to_raise() -> None:
    assert compile_laws([Equality("none", lambda u, p: u[:0] ** torch.arange(5.0).double())], (3, 5)).rows == 0
