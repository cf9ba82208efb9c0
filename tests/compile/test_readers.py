"""Who reads what in a program: the transposed operands."""

from __future__ import annotations

import numpy as np
import torch

import snapfm
from snapfm.compile.program import Program, build_program
from snapfm.kernels.numba.sections import section
from snapfm.kernels.program import (
    A_CELL,
    A_PTR,
    B_CELL,
    B_PTR,
    READER,
    READER_OP,
    READER_PTR,
    READER_SLOPE,
    A,
    B,
)


def _program(law) -> Program:
    project = snapfm.Projector([snapfm.Equality("law", law)], (3, 5))
    tape, rows = project.structure.scalar.tape, project.structure.scalar.rows
    return build_program(tape, rows, np.arange(15))


def _table(program: Program, number: int):
    return section(program.code.table, program.code.table_at, number).astype(np.int64)


LAWS = {
    "squares": lambda u, p: (u**2).sum(0),
    "products of products": lambda u, p: (u[0] * u[1]) * u[2] - 1.0,
    "a chain": lambda u, p: torch.exp(torch.sin(torch.exp(0.1 * u[0]))) - 1.0,
    "independent chains": lambda u, p: torch.stack([torch.exp(u[0]) ** 2, torch.sin(u[1]) * u[2]]) - 1.0,
    "no operations": lambda u, p: u.sum(0),
}


def test_readers_are_the_operands_transposed_last_reader_first():
    for name, law in LAWS.items():
        program = _program(law)
        wanted = []
        for side, (ptr, cell, weight) in enumerate(((A_PTR, A_CELL, A), (B_PTR, B_CELL, B))):
            at, cells = _table(program, ptr), _table(program, cell)
            share = section(program.code.weight, program.code.weight_at, weight)
            wanted += [
                (cells[p], -e, 5 * e + side, share[p])
                for e in range(program.operations)
                for p in range(at[e], at[e + 1])
            ]
        at, op, slope = (_table(program, number) for number in (READER_PTR, READER_OP, READER_SLOPE))
        share = section(program.code.weight, program.code.weight_at, READER)
        found = [(c, -op[p], slope[p], share[p]) for c in range(len(at) - 1) for p in range(at[c], at[c + 1])]
        assert found == sorted(wanted, key=lambda one: one[:3]), name
