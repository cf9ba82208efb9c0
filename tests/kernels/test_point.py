"""What Newton's kernel sees of a point: NaN is never forgotten behind a finite row."""

from __future__ import annotations

import numpy as np
import pytest

from snapfm import Bounds, Equality, Inequality, Projector
from snapfm.kernels import layout as core
from snapfm.kernels.operations import LANES
from snapfm.kernels.point import choose_sets, derivatives_at, gap_of, merit_parts, residual_at, size_rows
from snapfm.project.newton import Newton
from snapfm.project.part import Part


def curved(*more) -> Part:
    method = Projector(
        [Equality("curved", lambda u, p: u**2 - 1.0), Equality("sum", lambda u, p: u.sum() - 2.0), *more], (4,)
    ).method
    assert isinstance(method, Newton)
    return method.parts[0]


@pytest.mark.parametrize("place", [0, 1, 2, 3])
@pytest.mark.parametrize(
    "more",
    [(), (Bounds(lower=-9.0),), (Inequality("low", lambda u, p: u.sum() - 50.0),)],
    ids=["equalities", "bounds", "inequality"],
)
def test_nan_of_one_unknown_reaches_violation_and_gap_of_its_lane_alone(place: int, more):
    part = curved(*more)
    space = np.zeros((1, int(part.at[-1])))
    memory, at = space[0], part.at

    def section(number: int) -> np.ndarray:
        return memory[at[number] : at[number + 1]]

    section(core.X)[:] = 0.5
    section(core.TARGET)[:] = 0.25
    section(core.CELLS)[:LANES] = 1.0
    section(core.UNIT)[:] = 1.0
    section(core.JACOBIAN)[:] = np.repeat(part.system.program.constants, LANES)
    section(core.LOWER)[:], section(core.UPPER)[:] = -9.0, 9.0
    section(core.X)[place * LANES + 3] = np.nan
    code, frame = part.system.program.code, part.prepared.frame
    theta, objective, violation, gap = (np.zeros(LANES) for _ in range(4))
    residual_at(code, frame, memory, at)
    derivatives_at(code, frame, memory, at)
    size_rows(memory, at, 1e-3)
    merit_parts(frame, memory, at, theta, objective, violation)
    choose_sets(frame, memory, at)
    gap_of(frame, memory, at, gap)
    lanes = np.arange(LANES) == 3
    for seen in (theta, violation, gap):
        assert np.isnan(seen[lanes]).all()
        assert np.isfinite(seen[~lanes]).all()
