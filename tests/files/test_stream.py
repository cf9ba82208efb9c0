"""The writer with a source of its own: blocks of any size, and the words by which files of every kind are known."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from snapfm.errors import DataError
from snapfm.files import stream
from snapfm.files.engines import BlockFailed, Here, Report
from snapfm.files.layout import Drawn, Layout, Variable
from snapfm.files.place import Folder
from snapfm_bench.files import DataRecipe, write

xarray = pytest.importorskip("xarray")


class Numbers:
    """Fields that hold the number of their sample, and its square beside them."""

    command = "numbers"
    shape = (3, 2)
    dtype = "float32"
    seed = 7
    threads = None

    def __init__(self, count: int, block: int) -> None:
        self.count, self.block = count, block
        self.calls: list[tuple[int, int]] = []

    def asked(self) -> dict[str, Any]:
        return {"fields": "numbers", "count": self.count, "block": self.block}

    def identity(self) -> dict[str, Any]:
        return self.asked()

    def layout(self) -> Layout:
        square = Variable("int8", {"long_name": "square"})
        return Layout({"title": "numbers"}, {"u": Variable("float32", {}, (3, 2), ("x", "t")), "square": square})

    def draw(self, start: int, stop: int, report: Report) -> Drawn:
        self.calls.append((start, stop))
        numbers = np.arange(start, stop)
        u = np.broadcast_to(numbers[:, None, None], (len(numbers), 3, 2))
        return Drawn({"u": u, "square": numbers**2 % 100}, {"calls": 1.0})


@pytest.mark.parametrize("block", [1, 3, 4, 5, 6, 7, 11, 32])
@pytest.mark.parametrize("count", [1, 3, 5, 11, 12])
def test_blocks_of_any_size_hold_every_sample_once(count: int, block: int, tmp_path: Path) -> None:
    source = Numbers(count, block)
    written = stream(source, tmp_path / "a.zarr")
    assert (written.count, written.found, written.shape) == (count, 0, (3, 2))
    assert source.calls == [(start, min(start + block, count)) for start in range(0, count, block)]
    with xarray.open_zarr(written.path) as data:
        numbers = np.arange(count)
        assert np.array_equal(data.u.values, np.broadcast_to(numbers[:, None, None], (count, 3, 2)))
        assert np.array_equal(data.square.values, numbers**2 % 100)
        assert data.sample.values.tolist() == numbers.tolist()
        assert data.seed.values.tolist() == [7] * count


def test_a_run_that_fails_in_a_block_goes_on_with_that_block(tmp_path: Path) -> None:
    class Failing(Numbers):
        def draw(self, start: int, stop: int, report: Report) -> Drawn:
            if start == 6:
                raise ArithmeticError("a law overflowed")
            return super().draw(start, stop, report)

    words = (
        r"block 2 \(samples 6 to 8\) .* failed with ArithmeticError: a law overflowed \(test_stream\.py, line \d+\)\."
    )
    with pytest.raises(BlockFailed, match=words):
        stream(Failing(10, 3), tmp_path / "a.zarr")
    again = Numbers(10, 3)
    assert stream(again, tmp_path / "a.zarr").found == 6
    assert again.calls == [(6, 9), (9, 10)]


def test_a_block_that_fails_here_is_named_or_marked(tmp_path: Path) -> None:
    class Failing(Numbers):
        def layout(self) -> Layout:
            plain = super().layout()
            more = {"status": Variable("int8", {}), "mask": Variable("bool", {})}
            return Layout(plain.attributes, {**plain.variables, **more})

        def draw(self, start: int, stop: int, report: Report) -> Drawn:
            if start == 6:
                raise ArithmeticError("a law overflowed")
            drawn, ones = super().draw(start, stop, report), np.ones(stop - start)
            return Drawn({**drawn.values, "status": 0 * ones, "mask": ones})

    words: list[str] = []
    written = stream(Failing(10, 3), tmp_path / "a.zarr", engine=Here(on_message=words.append), keep_failed=True)
    assert written.missing == 0
    (told,) = words
    assert told.startswith("block 2 (samples 6 to 8) is expected to be computed; it failed with ArithmeticError")
    with xarray.open_zarr(written.path, mask_and_scale=False) as data:
        assert data.status.values.tolist() == [0] * 6 + [-1] * 3 + [0]
        assert np.isnan(data.u.values[6:9]).all()
        assert data["mask"].values.tolist() == [True] * 6 + [False] * 3 + [True]
        assert data.sample.values.tolist() == list(range(10))


def test_what_progress_raises_is_no_failure_of_a_block(tmp_path: Path) -> None:
    class Reporting(Numbers):
        def draw(self, start: int, stop: int, report: Report) -> Drawn:
            report(0.5)
            return super().draw(start, stop, report)

    def stop(done: float) -> None:
        if done == 1.5:
            raise ArithmeticError("enough")

    with pytest.raises(ArithmeticError, match="enough"):
        stream(Reporting(10, 3), tmp_path / "a.zarr", stop, keep_failed=True)


def test_a_mark_that_gets_its_name_meanwhile_hides_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Folder(tmp_path / "a.zarr")
    marks = place.growing / "sample" / "c"
    marks.mkdir(parents=True)
    for name in ("0", "1.partial", "2"):
        (marks / name).write_bytes(b"1")
    listed = list(os.scandir(marks))
    (marks / "1.partial").unlink()
    monkeypatch.setattr("snapfm.files.place.os.scandir", lambda folder: listed)
    assert sorted(place.listed("sample/c")) == ["0", "2"]


def test_messages_name_the_command_of_the_source(tmp_path: Path) -> None:
    stream(Numbers(3, 3), tmp_path / "a.zarr")
    with pytest.raises(DataError, match=r"numbers\(out\) expects .* a run with count=4; got count=3\."):
        stream(Numbers(4, 3), tmp_path / "a.zarr")
    with pytest.raises(DataError, match=r"data\(out\) expects .* with fields='simulated'; got fields='numbers'\."):
        write(DataRecipe("heat-ic-mass", 3), tmp_path / "a.zarr")
