"""Kinks as smooth pieces: with states on the right sides the rewritten rows are the law's own, values and slopes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array, vstack
from torch import Tensor

from snapfm import Equality
from snapfm.arrays import Values
from snapfm.compile import compile_laws
from snapfm.compile.kinks import Kinks, find_kinks
from snapfm.compile.program import Program, build_program
from snapfm.kernels import batches
from snapfm.kernels.operators import Op

SHAPE = (3, 5)

LAWS: dict[str, Callable[..., Tensor]] = {
    "abs": lambda u, p: u.abs().sum(0),
    "relu": lambda u, p: torch.relu(u - p["b"]) * u,
    "max and min": lambda u, p: torch.maximum(u, u.flip(0)) * torch.minimum(u, u.flip(1)),
    "clamp": lambda u, p: u.clamp(-0.5, 0.7) ** 2,
    "amax": lambda u, p: u.amax(1) - u.amin(0).sum(),
    "leaky": lambda u, p: torch.nn.functional.leaky_relu(u, 0.1),
    "where": lambda u, p: torch.where(u > 0.2, 3.0 * u - 0.6, (u - 0.2) * u.flip(0)),
    "where below": lambda u, p: torch.where(u <= 0.2, 3.0 * u, u.flip(0)),
    "not": lambda u, p: torch.where(~(u > 0.2), 3.0 * u, u.flip(0)),
    "product": lambda u, p: 2.0 * u * (0.5 * torch.where(u > 0.0, u.flip(0), u.flip(1)) + u.sum()),
    "product reversed": lambda u, p: torch.where(-u > 0.0, u.flip(0), u.flip(1)) * (3.0 * u),
    "nested": lambda u, p: torch.relu(u.abs() - 0.5),
    "masks": lambda u, p: torch.where((u > 0.0) & (u < 0.5), u, u.flip(0)) + u.abs(),
}


def rewritten(law: Callable[..., Tensor]) -> tuple[Kinks, Program, Program, Values]:
    """Return the kinks, the program of the law, that of the rewritten law with its switches, and cells of params."""
    compiled = compile_laws([Equality("law", law)], SHAPE, {"b": torch.zeros(1, *SHAPE)})
    scalar = compiled.scalar
    kinks = find_kinks(scalar.tape)
    assert kinks is not None
    n = scalar.tape.unknowns
    whole = csr_array(vstack([csr_array(scalar.rows @ kinks.forms), kinks.switch], format="csr"))
    return (
        kinks,
        build_program(scalar.tape, scalar.rows, np.arange(n)),
        build_program(kinks.tape, whole, np.arange(n), second=False),
        np.zeros((1, kinks.tape.params)),
    )


def evaluated(program: Program, field: Values, params: Values) -> tuple[Values, Values]:
    """Evaluate rows and Jacobian."""
    read = (program.unknowns[None], program.params[None], params)
    rows = np.empty((1, program.pattern.rows))
    batches.evaluate(program.code, program.cells, *read, field, rows)
    entries = program.constants[None].copy()
    batches.derivatives(
        program.code, program.cells, program.slots, *read, field, np.zeros_like(rows), entries, np.empty((1, 0))
    )
    return rows[0], program.pattern.csr(entries[0]).toarray()


@pytest.mark.parametrize("name", LAWS)
def test_on_the_right_sides_rows_and_slopes_are_the_laws_own(name: str):
    kinks, plain, smooth, params = rewritten(LAWS[name])
    random = np.random.default_rng(0)
    for _ in range(5):
        field = random.normal(size=(1, 15))
        count = len(kinks.state)
        rows, slopes = evaluated(plain, field, params)
        for _ in range(4):  # switches of kinks within kinks follow
            found, jacobian = evaluated(smooth, field, params)
            params[0, kinks.state - 1] = -1.0 - (found[-count:] > 0.0)
        np.testing.assert_allclose(found[:-count], rows, rtol=1e-13, atol=1e-13)
        np.testing.assert_allclose(jacobian[:-count], slopes, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize(
    ("name", "count"), [("abs", 15), ("amax", 12 + 10), ("clamp", 30), ("product", 15), ("where", 15)]
)
def test_every_kink_that_rows_depend_on_is_found_once(name: str, count: int):
    kinks, _, smooth, _ = rewritten(LAWS[name])
    used = set((1 + smooth.params).tolist()) & set(kinks.state.tolist())
    assert len(used) == count  # of a product with a choice, the ramps alone: the choice itself is not read


def test_a_product_with_a_jump_needs_no_step():
    law = LAWS["product"]
    compiled = compile_laws([Equality("law", law)], SHAPE, {"b": torch.zeros(1, *SHAPE)})
    kinks = find_kinks(compiled.scalar.tape)
    assert kinks is not None
    rows = compiled.scalar.rows @ kinks.forms
    program = build_program(kinks.tape, rows.tocsr(), np.arange(15))
    assert len(set((1 + program.params).tolist()) & set(kinks.state.tolist())) == 15  # ramps alone


def test_laws_without_kinks_are_left_alone():
    smooth = compile_laws([Equality("law", lambda u, p: u.exp().sum() + u.softmax(0)[0].sum() + (u > 0).sum())], SHAPE)
    assert find_kinks(smooth.scalar.tape) is None
    # The largest element that softmax subtracts has no slope, so its comparisons are no kinks.
    mixed = compile_laws([Equality("law", lambda u, p: u.softmax(0) + u.abs())], SHAPE)
    kinks = find_kinks(mixed.scalar.tape)
    assert kinks is not None
    assert len(kinks.state) == 15
    assert any(block.op == Op.MAX for block in kinks.tape.blocks)
