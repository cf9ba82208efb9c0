"""Released fields are read in the order that is said, scored as samples are, and refused by name where they do not fit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from snapfm.errors import DataError, ParamsError
from snapfm_bench.record import CellState
from snapfm_bench.suites.quality.stored import Stored, fields, parse
from snapfm_bench.suites.quality.suite import QualityCell, stored_rows

AXES, SHAPE = ("x", "t"), (5, 3)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    there = np.arange(2 * 5 * 3, dtype=np.float32).reshape(2, 5, 3)
    np.savez(tmp_path / "released.npz", ours=there, theirs=there.transpose(0, 2, 1))
    return tmp_path / "released.npz"


def test_axes_are_brought_into_the_order_of_the_grid(file: Path):
    ours, theirs = (parse(f"heat={file}:{name}") for name in ("ours", "theirs:t,x"))
    assert (ours.task, ours.axes, theirs.axes) == ("heat", (), ("t", "x"))
    assert (fields(ours, AXES, SHAPE) == fields(theirs, AXES, SHAPE)).all()
    assert fields(ours, AXES, SHAPE).dtype.is_floating_point


def test_what_does_not_fit_is_refused_by_name(file: Path):
    with pytest.raises(
        DataError, match=r"expects fields of shape \(5, 3\), axes x, t; got \(3, 5\)\. Say their order, as in"
    ):
        fields(Stored("heat", file, "theirs"), AXES, SHAPE)
    with pytest.raises(DataError, match=r"expects an array 'moon' in .*released\.npz; got none"):
        fields(Stored("heat", file, "moon"), AXES, SHAPE)
    with pytest.raises(ParamsError, match=r"expects the axes x, t in some order; got t, y\. Name each once"):
        fields(Stored("heat", file, "ours", ("t", "y")), AXES, SHAPE)
    with pytest.raises(ParamsError, match=r"--stored expects TASK=FILE:ARRAY.*; got 'heat'\. Write"):
        parse("heat")


def test_rows_of_stored_files_say_that_they_are(file: Path):
    name = parse(f"heat={file}:ours").name
    cells = {("heat", name): QualityCell("heat", name, CellState.DONE, 2)}
    assert stored_rows(cells) == {name: "Stored files: released.ours"}
