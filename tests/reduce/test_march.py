"""March: steps share programs where their structure is the same; singular blocks are left out."""

import numpy as np
import pytest
import torch

import snapfm
from snapfm.compile import compile_laws
from snapfm.compile.sparsity.reads import reads
from snapfm.reduce import march
from snapfm.reduce.reduce import determined


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setattr(march, "_FEWEST_ROWS", 1)
    monkeypatch.setattr(march, "_FEWEST_EACH", 1)


def _step(u, p):
    new = u[1:]
    return new - u[:-1] - 0.1 * (torch.roll(new, 1, 1) - 2 * new + torch.roll(new, -1, 1)) + new**3


def _found(*laws, shape=(6, 5), params=None):
    compiled = compile_laws(laws, shape, params)
    tape, rows = compiled.scalar.tape, compiled.scalar.rows
    fixed, found = determined(tape, rows, reads(tape, rows), compiled.equality_rows.copy())
    return compiled, fixed, found


INITIAL = snapfm.Equality("initial", lambda u, p: u[0] - 1.0)


def test_time_steps_share_one_program():
    _, fixed, found = _found(INITIAL, snapfm.Equality("step", _step))
    assert (len(found.squares), len(found.steps), len(found.rows())) == (1, 5, 25)
    assert not fixed.free.any()
    (square,) = found.squares
    assert square.size == 5
    assert not square.affine
    for before, step in zip(found.steps[:-1], found.steps[1:]):
        assert np.array_equal(step.inputs[square.before], before.unknowns)
        assert np.array_equal(step.inputs[square.own], step.unknowns)


def test_steps_that_differ_have_programs_of_their_own():
    rate = torch.arange(1.0, 6.0, dtype=torch.float64)[:, None]
    _, _, found = _found(INITIAL, snapfm.Equality("step", lambda u, p: _step(u, p) + rate * u[1:]))
    assert len(found.squares) == 5


def test_affine_steps_are_known_to_be():
    law = snapfm.Equality("step", lambda u, p: u[1:] - u[:-1] - torch.roll(u[1:], 1, 1) / 2)
    _, _, found = _found(INITIAL, law)
    assert [square.affine for square in found.squares] == [True]


def test_a_singular_block_and_all_that_depends_on_it_are_left():
    def pressure(u, p):  # periodic: determined up to a constant only, though each row has an entry for each unknown
        new = u[1:, 5:]
        return torch.roll(new, 1, 1) - 2 * new + torch.roll(new, -1, 1) - u[1:, :5] ** 2

    laws = INITIAL, snapfm.Equality("step", lambda u, p: _step(u[:, :5], p)), snapfm.Equality("pressure", pressure)
    _, fixed, found = _found(*laws, shape=(4, 10))
    assert len(found.rows()) == 15  # of the steps alone
    assert fixed.free.reshape(4, 10)[1:, 5:].all()


def test_rows_over_determined_unknowns_are_implied():
    total = snapfm.Equality("total", lambda u, p: u[2:].sum(1) - 1.0)
    largest = snapfm.Inequality("largest", lambda u, p: u[-1] - 3.0)
    compiled, fixed, found = _found(INITIAL, snapfm.Equality("step", _step), total, largest)
    rows = compiled.slices()
    assert len(found.rows()) == 25
    assert set(fixed.implied) >= set(range(rows["largest"].start, rows["largest"].stop))
    assert len(fixed.implied) == 4 + 5


def test_too_few_rows_are_left_to_the_coupled_system(monkeypatch):
    monkeypatch.setattr(march, "_FEWEST_ROWS", 26)
    assert len(_found(INITIAL, snapfm.Equality("step", _step))[2]) == 0
    monkeypatch.setattr(march, "_FEWEST_ROWS", 25)
    monkeypatch.setattr(march, "_FEWEST_EACH", 6)
    assert len(_found(INITIAL, snapfm.Equality("step", _step))[2]) == 0


def test_the_description_counts_steps_and_blocks():
    project = snapfm.Projector([INITIAL, snapfm.Equality("step", _step)], (6, 5))
    text = " ".join(str(project.structure).split())
    assert "march: 25 unknowns determined in 5 steps, one after the other: 5 blocks of at most 5 rows" in text
