"""Subtapes: groups of rows that are cut out together get what each would get alone, and evaluate as the whole tape does."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from snapfm import Equality
from snapfm.compile import compile_laws
from snapfm.compile.lower.subtape import Subtape, cut
from snapfm.compile.program import build_program, program_of
from snapfm.kernels.batches import evaluate

NOTHING = np.zeros(0, np.int64)


def explicit(u, p):
    old = u[:-1]
    return u[1:] - old - p["k"] * (torch.roll(old, 1, 1) - 2 * old) - torch.sin(old * u[0, 0]) * old


def _compiled(law, **params):
    return compile_laws([Equality("law", law)], (7, 5), params).scalar


def equal(one: Subtape, other: Subtape) -> bool:
    where = ("params", "unknowns", "operations")
    same = all(np.array_equal(getattr(one, name), getattr(other, name)) for name in where)
    return same and one.kinds == other.kinds and one.fingerprint(NOTHING) == other.fingerprint(NOTHING)


@pytest.mark.parametrize("law", [explicit, lambda u, p: u[1:] - 2 * u[:-1] + p["k"]], ids=["operations", "affine"])
@pytest.mark.parametrize("sizes", [[30], [5] * 6, [1] * 30, [3, 0, 27]], ids=str)
def test_groups_cut_together_are_what_each_needs_alone(law, sizes):
    scalar = _compiled(law, k=torch.rand(1))
    found = cut(scalar.tape, scalar.rows, sizes)
    ends = np.cumsum([0, *sizes])
    for one, first, last in zip(found, ends[:-1], ends[1:], strict=True):
        assert equal(one, cut(scalar.tape, csr_array(scalar.rows[first:last]), [last - first])[0])


def test_no_groups():
    scalar = _compiled(explicit, k=torch.rand(1))
    assert cut(scalar.tape, csr_array(scalar.rows[:0]), []) == []


def test_cells_keep_the_order_of_the_tape():
    scalar = _compiled(
        lambda u, p: torch.sin(u[1:]) * p["k"] + torch.exp(u[:-1] * p["m"]) + 2.0, k=torch.rand(1), m=torch.rand(1)
    )
    tape = scalar.tape
    assert (tape.params, tape.first_unknown, tape.first_operation) == (2, 3, 38)
    assert [block.first for block in tape.blocks] == list(np.cumsum([38, *(block.size for block in tape.blocks[:-1])]))
    (part,) = cut(tape, csr_array(scalar.rows[[7]]), [1])
    assert part.params.tolist() == [0, 1]
    assert part.unknowns.tolist() == [7, 12]
    assert part.first == 5
    assert np.all(np.diff(part.operations) > 0)


def test_time_steps_have_one_fingerprint_and_others_have_another():
    scalar = _compiled(lambda u, p: u[1:] - u[:-1] - torch.sin(u[1:]), k=torch.rand(1))
    prints = {part.fingerprint(NOTHING) for part in cut(scalar.tape, scalar.rows, [5] * 6)}
    assert len(prints) == 1
    other = cut(scalar.tape, scalar.rows, [10] * 3)[0]
    assert other.fingerprint(NOTHING) not in prints


@pytest.mark.parametrize("wanted", [[0], [7, 3], list(range(25))])
def test_a_subtape_evaluates_its_rows_as_the_whole_tape_does(wanted):
    def law(u, p):
        new = u[1:6]
        return torch.sin(new**3 - u[:5]) * p["rate"][1] + torch.where(new > 0, new, p["rate"][2])

    scalar = _compiled(law, rate=torch.rand(1, 3, dtype=torch.float64))
    tape, rows = scalar.tape, csr_array(scalar.rows[wanted])
    (part,) = cut(tape, rows, [len(wanted)])
    random = np.random.default_rng(0)
    u, params = random.standard_normal((3, 35)), random.standard_normal((3, tape.params))
    results = []
    for program in (build_program(tape, scalar.rows, NOTHING), program_of(part, NOTHING)):
        out = np.empty((3, program.pattern.rows))
        evaluate(program.code, program.cells, program.unknowns[None], program.params[None], params, u, out)
        results.append(out)
    assert np.array_equal(results[0][:, wanted], results[1])
