"""Laws composed at random: no non-zero is ever missing, values equal the dense ones, and row kinds keep their promise."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, given, note, settings
from tests.compile import dense, random_laws
from tests.compile.random_laws import FAMILIES, Chain

from snapfm.compile import RowKind, compile_laws
from snapfm.errors import LawError
from snapfm.laws import Equality

# Of each of the seven families. A family has about ten operators, in chains of up to five: more laws repeat the same paths.
EXAMPLES = 30
# Rounding of a chain of five steps, each a sum of at most 48 terms of size at most 30, differentiated twice; torch's JVP
# of logcumsumexp alone loses four digits. A float32 on the way leaves fewer digits to lose.
ROUNDINGS = {torch.float64: 1e5, torch.float32: 1e3}


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("family", FAMILIES)
def test_random_laws(family: str) -> None:
    @settings(
        max_examples=EXAMPLES, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(random_laws.laws(family))
    def every_law(chain: Chain) -> None:
        note(repr(chain))
        check(chain)

    every_law()


def check(chain: Chain) -> None:
    """Compare structure and values with dense derivatives of the law itself; points 0 and 1 share their params."""
    params = {name: value[:3] for name, value in chain.params.items()}
    u = chain.fields[:3]
    samples = [{name: value[i] for name, value in params.items()} for i in range(3)]
    try:
        laws = compile_laws([Equality("random", chain.residual)], chain.shape, params)
    except LawError as refusal:  # of a chain that lost the field on its way, with x**0 or a mask of zeros
        if "law 'random' expects a residual that changes with u" not in str(refusal):
            raise
        assert not any(dense.jacobian(chain.residual, u[i], samples[i]).any() for i in range(3))
        return
    dtype = torch.float32 if chain.coarse else torch.float64
    tolerance = ROUNDINGS[dtype] * torch.finfo(dtype).eps

    truth = [dense.jacobian(chain.residual, u[i], samples[i]) for i in range(3)]
    oracle = dense.oracle(laws)
    slopes, sides = laws.jacobian(u, params), dense.by_side(oracle, u, params)
    for i in range(3):
        dense.assert_agrees("Jacobian", laws.pattern, slopes[i], truth[i], tolerance, noisy=probed(chain))
        for side, values in sides.items():
            dense.assert_agrees(f"Jacobian {side}", oracle.pattern, values[i], truth[i], tolerance)

    kinds = torch.from_numpy(laws.kinds)
    scale = max(1.0, *(float(one.abs().max()) if one.numel() else 0.0 for one in truth))
    steady, affine = kinds <= RowKind.PARAMETRIC, kinds == RowKind.AFFINE
    dense.assert_close("slope of a row affine in u", truth[0][steady], truth[1][steady], tolerance * scale)
    dense.assert_close("slope of an affine row", truth[0][affine], truth[2][affine], tolerance * scale)
    constants = torch.from_numpy(laws.pattern.csr(laws.constants).toarray())
    dense.assert_close("constant slope", constants[affine], truth[2][affine], tolerance * scale)

    pattern = laws.hessian_pattern
    assert pattern is not None
    if not (kinds > RowKind.PARAMETRIC).any():
        assert pattern.nnz == 0
        return  # curvature is zero because slopes are the same everywhere: just asserted
    weight = torch.randn(3, laws.rows, generator=chain.generator, dtype=torch.float64)
    curvature, passed = torch.from_numpy(laws.hessian(u, params, weight)), oracle.hessian(u, params, weight)
    for i in (0, 2):
        hessian = dense.hessian(chain.residual, u[i], samples[i], weight[i])
        dense.assert_agrees("Hessian", pattern, curvature[i], hessian, tolerance, noisy=True)
        dense.assert_agrees("Hessian by passes", oracle.hessian_pattern, passed[i], hessian, tolerance, noisy=True)
    if (kinds == RowKind.SEPARABLE).any():
        hessian = dense.hessian(chain.residual, u[2], samples[2], weight[2] * (kinds <= RowKind.SEPARABLE))
        dense.assert_close(
            "coupling in separable rows",
            hessian,
            hessian.diag().diag(),
            tolerance * max(1.0, float(hessian.abs().max())),
        )


def probed(chain: Chain) -> bool:
    """Whether a matrix is read off a transform, which leaves roundings where it is zero."""
    return any("fft" in text for text, _ in chain.steps)
