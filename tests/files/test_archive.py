"""Several processes into one store at once: whatever each of them computes, the file has the bits of one process alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from snapfm.errors import DataError
from snapfm.files import archive
from snapfm.files.engines import BlockPlan, Here, Progress, Share
from snapfm_bench.files import DataRecipe, write

pytest.importorskip("zarr")

RECIPE = DataRecipe("heat-ic-mass-implicit", count=300, seed=3, settings={"nx": 7, "nt": 6})
# Forks of one process, so that packages are imported once. All four wait for each other: they create the store, write and
# complete it at the same time.
PARTS = """
import os, sys, time
from pathlib import Path
from snapfm.cli import main
import snapfm.files, zarr, zarr.storage, zarr.codecs

folder, children = Path(sys.argv[1]), []
for part in "1234":
    child = os.fork()
    if child == 0:
        (folder / f"ready{part}").touch()
        while len(list(folder.glob("ready*"))) < 4:
            time.sleep(0.001)
        sys.argv = ["snapfm", "data", "heat-ic-mass-implicit", "--count", "300", "--seed", "3", "--set", "nx=7"]
        sys.argv += ["--set", "nt=6", "--out", str(folder / "a.zarr"), "--part", f"{part}/4"]
        main()
    children.append(child)
codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
assert codes == [0, 0, 0, 0], codes
"""


def tree(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(RECIPE, tmp_path_factory.mktemp("files") / "whole.zarr").path


def test_four_processes_at_once_write_the_file_of_one(whole: Path, tmp_path: Path) -> None:
    run = subprocess.run([sys.executable, "-c", PARTS, str(tmp_path)], capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    lines = run.stdout.splitlines()
    assert len(lines) == 4
    assert any(": 300 fields of 7×6" in line for line in lines)  # one of them completes it
    assert tree(tmp_path / "a.zarr") == tree(whole)
    assert not (tmp_path / "a.zarr.part").exists()


def test_parts_in_any_order_and_of_any_number_complete_each_other(whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "a.zarr"
    first = write(RECIPE, out, engine=Here(Share(2, 3)))
    assert (first.found, first.missing) == (0, 300 - 96)
    told: list[float] = []
    second = write(RECIPE, out, told.append, engine=Here(Share(1, 2)))  # even blocks; block 4 is there
    assert (second.found, second.missing) == (96, 300 - 96 - 32 * 3 - 32)
    assert told[0] == 32  # of its own share
    assert not out.exists()
    last = write(RECIPE, out)
    assert last.missing == 0
    assert tree(out) == tree(whole)


@pytest.mark.parametrize("when", [0, 1])
def test_a_file_that_another_part_completes_is_read_all_the_same(
    when: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, reads, plain = tmp_path / "a.zarr", list[str](), archive.read_variable
    first = write(RECIPE, out, engine=Here(Share(1, 2)))
    assert first.missing

    def read(store: object, name: str, some: slice) -> object:
        reads.append(name)
        if len(reads) == when + 1:
            write(RECIPE, out)
        return plain(store, name, some)

    monkeypatch.setattr(archive, "read_variable", read)
    seeds, samples, none = first.read(("seed", "sample", "no such variable"), slice(0, 300))
    assert none is None
    assert seeds is not None
    assert samples is not None
    assert seeds.tolist() == [3] * 300
    assert samples.tolist() == list(range(300))
    assert first.bytes > 0


def test_the_same_part_twice_and_a_whole_run_beside_parts_are_refused(tmp_path: Path) -> None:
    out, words = tmp_path / "a.zarr", r"one for each --part K/N; another one is at it\. Wait"

    def others(done: float) -> None:
        for share in (Share(1, 2), Share(1, 1)):
            with pytest.raises(DataError, match=words):
                write(RECIPE, out, engine=Here(share))
        if done == 0:
            assert write(RECIPE, out, engine=Here(Share(2, 2))).missing  # the other one may

    assert write(RECIPE, out, others, engine=Here(Share(1, 2))).missing == 0


def test_a_part_that_another_one_overtakes_sees_the_finished_file(tmp_path: Path) -> None:
    out = tmp_path / "a.zarr"

    class Overtaken:
        share, threads = Share(2, 2), None

        def run(self, plan: BlockPlan, progress: Progress | None = None) -> dict[str, float]:
            Here(self.share).run(plan, progress)
            assert write(RECIPE, out, engine=Here(Share(1, 2))).missing == 0  # which completes the file
            return {}

    assert write(RECIPE, out, engine=Overtaken()).missing == 0
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.zarr"]


def test_a_part_of_another_run_is_refused(tmp_path: Path) -> None:
    write(RECIPE, tmp_path / "a.zarr", engine=Here(Share(1, 2)))
    with pytest.raises(DataError, match=r"an unfinished run with seed=4; got seed=3\."):
        write(DataRecipe(**{**RECIPE.asked(), "seed": 4}), tmp_path / "a.zarr", engine=Here(Share(2, 2)))
