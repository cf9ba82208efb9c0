"""Who reads what in a program: the transposed operands."""

from __future__ import annotations

import numpy as np
import torch

import snapfm
from snapfm.compile.program import Program, build_program


def _program(law) -> Program:
    project = snapfm.Projector([snapfm.Equality("law", law)], (3, 5))
    tape, rows = project.structure.scalar.tape, project.structure.scalar.rows
    return build_program(tape, rows, np.arange(15))


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
        code = program.code
        operands = (code.a_ptr, code.a_cell, code.a_weight), (code.b_ptr, code.b_cell, code.b_weight)
        for side, (at, cells, share) in enumerate(operands):
            wanted += [
                (cells[p], -e, 5 * e + side, share[p])
                for e in range(program.operations)
                for p in range(at[e], at[e + 1])
            ]
        at, op, slope, share = code.reader_ptr, code.reader_op, code.reader_slope, code.reader_weight
        found = [(c, -op[p], slope[p], share[p]) for c in range(len(at) - 1) for p in range(at[c], at[c + 1])]
        assert found == sorted(wanted, key=lambda one: one[:3]), name
