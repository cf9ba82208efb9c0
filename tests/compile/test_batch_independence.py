"""Which laws are evaluated a batch at a time: those of which no bit depends on it, tried on fields of all sizes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from tests.solve.hidden import hidden
from torch import Tensor

from snapfm import Equality, Oracle
from snapfm.compile import compile_laws
from snapfm.compile.batch_independence import Together

YES, NO = Together(True, True, True), Together()


@pytest.mark.parametrize(
    ("law", "expected"),
    [
        (lambda u: hidden(u).pow(2).sum(0), YES),
        (lambda u: torch.logsumexp(hidden(u), 0), YES),
        (lambda u: hidden(u) @ torch.ones(5, dtype=torch.float64), NO),  # a product of matrices in a batch
        (lambda u: torch.fft.fft(hidden(u)).real.sum(0), NO),
        (lambda u: torch.linalg.eigvalsh(u[:, :3] + u[:, :3].T), NO),
    ],
    ids=["sum", "logsumexp", "product", "transform", "eigenvalues"],
)
@pytest.mark.filterwarnings("ignore::snapfm.errors.StructureWarning")
def test_laws_that_call_no_library_are_evaluated_together(law: Callable[[Tensor], Tensor], expected: Together):
    laws = compile_laws([Equality("law", lambda u, p: law(u))], (3, 5))
    assert laws.opaque
    assert laws.together == expected


def test_large_laws_are_evaluated_one_by_one():
    laws = compile_laws([Equality("law", lambda u, p: torch.logsumexp(hidden(u), 0))], (300, 300))
    assert laws.together == NO


def test_a_law_that_rounds_by_its_neighbors_is_found(monkeypatch: pytest.MonkeyPatch):
    laws = compile_laws([Equality("law", lambda u, p: hidden(u).sum(0))], (3, 5))
    evaluate = type(laws).residual

    def rounds(self: object, u: Tensor, params: dict[str, Tensor]) -> Tensor:
        return evaluate(laws, u, params) * (1.0 + (len(u) > 1) * 2.3e-16)

    monkeypatch.setattr(type(laws), "residual", rounds)
    assert laws.together == Together(False, True, True)


def test_oracles_alone_are_together():
    law = Oracle("law", lambda u, p: u.sum(keepdims=True), lambda u, p: u[None] * 0.0 + 1.0, hessian_pattern=([], []))
    assert compile_laws([law], (4,)).together == YES
