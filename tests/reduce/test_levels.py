"""Programs of levels: entry by entry those that are built one at a time."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from snapfm import Equality, Projector
from snapfm.compile.program import Program, build_program
from snapfm.reduce import reduce as module
from snapfm.reduce.levels import level_programs


def explicit(u, p):
    old = u[:-1]
    return u[1:] - old - p["k"] * (torch.roll(old, 1, 1) - 2 * old) - torch.sin(old * u[0, 0]) * old


def equal(one: Program, other: Program) -> bool:
    parts = [np.array_equal(a, b) for a, b in zip(one.code, other.code)]
    for name in ("pattern", "hessian"):
        mine, theirs = getattr(one, name), getattr(other, name)
        parts += [np.array_equal(getattr(mine, f.name), getattr(theirs, f.name)) for f in fields(mine)]
    names = ("operations", "slots", "unknowns", "externals", "by", "constants", "varying")
    return all(parts) and all(np.array_equal(getattr(one, name), getattr(other, name)) for name in names)


@pytest.mark.parametrize("law", [explicit, lambda u, p: u[1:] - 2 * u[:-1] + p["k"]], ids=["operations", "affine"])
def test_levels_get_the_programs_of_their_rows(law, monkeypatch):
    seen = []

    def watched(tape, rows, levels):
        seen.append((tape, rows, levels))
        return level_programs(tape, rows, levels)

    monkeypatch.setattr(module, "level_programs", watched)
    laws = [Equality("initial", lambda u, p: u[0] - p["u0"] ** 2), Equality("step", law)]
    Projector(laws, (7, 5), {"u0": torch.rand(1, 5), "k": torch.rand(1)})
    ((tape, rows, levels),) = seen
    assert len(levels) == 7
    found = level_programs(tape, rows, levels)
    for one, level in zip(found, levels, strict=True):
        assert equal(one, build_program(tape, csr_array(rows[level]), np.zeros(0, np.int64)))


def test_no_levels_no_programs():
    laws = Projector([Equality("mass", lambda u, p: u.sum())], (3,)).structure
    assert level_programs(laws.scalar.tape, laws.scalar.rows, []) == ()
