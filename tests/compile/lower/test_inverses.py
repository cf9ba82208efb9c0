"""Linear algebra on matrices that vary: values and two derivatives against dense ones, written out and left to torch."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from snapfm import Equality
from snapfm.compile import CompiledLaws, compile_laws
from snapfm.errors import StructureWarning

FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "det": torch.linalg.det,
    "slogdet": lambda u: torch.stack(tuple(torch.linalg.slogdet(u))),
    "inv": torch.linalg.inv,
    "solve": lambda u: torch.linalg.solve(u, u[..., 0]),
    "solve-matrix": lambda u: torch.linalg.solve(u + 1.0, u.mT[..., :2]),
    "cholesky": lambda u: torch.linalg.cholesky(u @ u.mT + torch.eye(u.shape[-1], dtype=u.dtype)),
}


def compiled(function: Callable[[Tensor], Tensor], shape: tuple[int, ...]) -> CompiledLaws:
    return compile_laws([Equality("law", lambda u, p: function(u))], shape)


def fields(*shape: int) -> Tensor:
    return torch.randn(2, *shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


@pytest.mark.filterwarnings("ignore::snapfm.errors.StructureWarning")
@pytest.mark.parametrize("shape", [(4, 4), (2, 5, 5), (6, 6)], ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_value_and_derivatives(name: str, shape: tuple[int, ...]):
    """Small matrices are compiled, larger ones left to torch; both are right."""
    laws = compiled(FUNCTIONS[name], shape)
    assert bool(laws.opaque) == (shape[-1] > 5)
    laws.verify(fields(*shape), {})


def test_no_element_has_to_be_a_pivot():
    """Each of these has a zero where elimination without pivots would divide."""
    u = torch.stack([torch.eye(5, dtype=torch.float64).roll(k, 0) for k in range(1, 5)])
    u = u + 0.1 * torch.triu(torch.ones(5, 5, dtype=torch.float64), 3)
    u[:, 0, 0] = 0.0
    laws = compiled(torch.linalg.det, (5, 5))
    laws.verify(u, {})
    assert (laws.jacobian(u, {}).abs() > 0.5).any(dim=1).all()


@pytest.mark.filterwarnings("ignore::snapfm.errors.StructureWarning")
def test_values_do_not_lose_digits_in_badly_conditioned_matrices():
    scales = torch.logspace(0, -8, 6, dtype=torch.float64)
    turn = torch.linalg.qr(fields(6, 6)[0]).Q
    u = (turn * scales) @ turn.mT
    slopes = compiled(lambda u: torch.linalg.slogdet(u)[1], (6, 6)).jacobian(u[None], {})[0]
    exact = (turn / scales) @ turn.mT
    assert float((slopes - exact.flatten()).abs().max()) < 1e-6 * float(exact.abs().max())


def test_too_large_matrices_say_so():
    with pytest.warns(StructureWarning, match="_linalg_det"):
        laws = compiled(torch.linalg.det, (6, 6))
    assert laws.opaque[0].reason == "linear algebra on varying matrices of size 6 (limit 5)"
