"""Files computed by the actors of a Ray cluster: the bits of one process, whatever dies meanwhile; what fails is named."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from snapfm import errors
from snapfm.cli.app import app
from snapfm.errors import DataError, MissingDependency, ProjectionFailed, SettingError
from snapfm.files import stream
from snapfm.files.engines import BlockFailed, OnRay, Report
from snapfm.files.layout import Drawn, Layout, Variable
from snapfm_bench.files import DataRecipe, write

pytest.importorskip("zarr")


def tree(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_without_the_extra_the_message_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(errors.importlib, "import_module", absent)
    engine = OnRay()
    with pytest.raises(MissingDependency, match=r"ray is needed for --engine ray; .* pip install 'snapfm\[ray\]'"):
        engine.run(Countdown())


class Countdown:
    blocks = 1

    def units(self, block: int) -> int:
        return 1

    def finished(self) -> set[int]:
        return set()


def test_wrong_workers_are_refused() -> None:
    with pytest.raises(SettingError, match=r"--workers expects a whole number >= 1; got 0\."):
        OnRay(workers=0)
    with pytest.raises(SettingError, match=r"--cpus expects a positive number for each worker; got 0\."):
        OnRay(cpus=0.0)
    with pytest.raises(SettingError, match=r"--gpus expects a number >= 0 for each worker; got -1\."):
        OnRay(gpus=-1.0)


def test_as_many_workers_as_nodes_have_room_for() -> None:
    def node(alive: bool = True, **resources: float) -> dict[str, Any]:
        return {"Alive": alive, "Resources": {"memory": 1e9, "node:1.2.3.4": 1.0, **resources}}

    class Nodes:
        def nodes(self) -> list[dict[str, Any]]:
            return [
                node(CPU=3.0),
                node(CPU=5.0, GPU=1.0),
                node(CPU=8.0, GPU=4.0, fast=1.0),
                node(alive=False, CPU=64.0),
            ]

    assert OnRay()._room(Nodes()) == 16
    assert OnRay(cpus=2.0)._room(Nodes()) == 1 + 2 + 4  # a worker is on one node
    assert OnRay(gpus=0.5)._room(Nodes()) == 2 + 8
    assert OnRay(resources={"fast": 0.5})._room(Nodes()) == 2


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    ray = pytest.importorskip("ray", reason="the engine of a Ray cluster needs snapfm[ray], which is not installed")
    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
    yield ray
    ray.shutdown()


def numbers(folder: Path, bad: int | None = None, how: str = "") -> Any:
    """A source whose block with sample `bad` fails: always, or at the first try. Local, so that it travels by value."""
    SIGKILL = signal.SIGKILL

    class Numbers:
        command, dtype, seed, threads = "numbers", "float32", 7, 1
        shape = (3,)
        count, block = 10, 2

        def asked(self) -> dict[str, Any]:
            return {"fields": "numbers"}

        def identity(self) -> dict[str, Any]:
            return self.asked() | ({"processor": os.getpid()} if how == "other" else {})

        def layout(self) -> Layout:
            status = Variable("int8", {"long_name": "status"})
            return Layout({"title": "numbers"}, {"u": Variable("float32", {}, (3,), ("x",)), "status": status})

        def draw(self, start: int, stop: int, report: Report) -> Drawn:
            if bad is not None and start <= bad < stop:
                tries = len(list(folder.glob("try*")))
                (folder / f"try{tries}").touch()
                if how == "killed" or (how == "killed once" and not tries):
                    os.kill(os.getpid(), SIGKILL)
                if how == "waits":
                    (folder / "waiting").touch()
                    time.sleep(5.0)
                if how == "hangs once" and not tries:
                    time.sleep(600.0)
                if how == "refused":
                    raise ProjectionFailed(f"sample {bad}: law 'mass' is off")
                if how == "raises" or (how == "raises once" and not tries):
                    raise ArithmeticError("a law overflowed")
            found = np.arange(start, stop)
            u = np.broadcast_to(found[:, None], (len(found), 3))
            return Drawn({"u": u, "status": 0 * found}, {"seconds": 1.0})

    return Numbers()


def test_the_file_is_that_of_one_process(cluster: Any, tmp_path: Path) -> None:
    recipe = DataRecipe("heat-ic-mass-implicit", count=100, seed=3, settings={"nx": 7, "nt": 6})
    told: list[float] = []
    write(recipe, tmp_path / "ray.zarr", told.append, engine=OnRay())
    write(recipe, tmp_path / "here.zarr")
    assert tree(tmp_path / "ray.zarr") == tree(tmp_path / "here.zarr")
    assert (told[0], told[-1], len(told)) == (0, 100, 5)
    assert told == sorted(told)


def test_figures_are_added_up_and_a_stopped_run_goes_on(cluster: Any, tmp_path: Path) -> None:
    def stop(done: float) -> None:
        if done >= 6:
            raise KeyboardInterrupt

    out = tmp_path / "a.zarr"
    with pytest.raises(KeyboardInterrupt):
        stream(numbers(tmp_path), out, stop, engine=OnRay(workers=1))
    again = stream(numbers(tmp_path), out, engine=OnRay(workers=2))
    assert 6 <= again.found < 10  # a block that was under way may have been finished
    assert again.figures == {"seconds": (10 - again.found) / 2}
    assert tree(out) == tree(stream(numbers(tmp_path), tmp_path / "whole.zarr").path)


@pytest.mark.parametrize("how", ["killed once", "raises once"])
def test_a_block_is_tried_again_elsewhere(how: str, cluster: Any, tmp_path: Path) -> None:
    stream(numbers(tmp_path, bad=5, how=how), tmp_path / "a.zarr", engine=OnRay(workers=2))
    assert len(list(tmp_path.glob("try*"))) == 2
    assert tree(tmp_path / "a.zarr") == tree(stream(numbers(tmp_path), tmp_path / "whole.zarr").path)


@pytest.mark.parametrize(
    ("how", "why"), [("killed", "its worker died"), ("raises", "ArithmeticError: a law overflowed")]
)
def test_a_block_that_fails_three_times_is_named_or_kept(how: str, why: str, cluster: Any, tmp_path: Path) -> None:
    words: list[str] = []
    source, engine = numbers(tmp_path, bad=5, how=how), OnRay(workers=1, on_message=words.append)
    out = tmp_path / "a.zarr"
    with pytest.raises(
        BlockFailed, match=rf"block 2 \(samples 4 to 5\) .* failed 3 times: {why}.* Finished blocks are"
    ):
        stream(source, out, engine=engine)
    assert len(list(tmp_path.glob("try*"))) == 3
    assert not out.exists()
    kept = stream(source, out, engine=engine, keep_failed=True)
    assert kept.missing == 0
    (told,) = words
    assert told.startswith("block 2 (samples 4 to 5)")
    assert told.endswith("Its samples are marked as never computed.")
    xarray = pytest.importorskip("xarray")
    with xarray.open_zarr(out, mask_and_scale=False) as data:
        assert data.status.values.tolist() == [0, 0, 0, 0, -1, -1, 0, 0, 0, 0]
        assert np.isnan(data.u.values[4:6]).all()
        assert data.u.values[6:, 0].tolist() == [6, 7, 8, 9]
        assert data.sample.values.tolist() == list(range(10))


# In a process of its own, which has no other cluster.
LOST = """
import sys, time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from ray.cluster_utils import Cluster
from tests.files.engines.test_ray_engine import numbers
from snapfm.files import stream
from snapfm.files.engines import OnRay
import ray

folder = Path(sys.argv[1])
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
node = cluster.add_node(num_cpus=1)
ray.init(cluster.address, log_to_driver=False, configure_logging=False)

with ThreadPoolExecutor() as other:
    source = numbers(folder, bad=5, how="waits")
    written = other.submit(stream, source, folder / "a.zarr", engine=OnRay(workers=1))
    while not (folder / "waiting").exists():
        time.sleep(0.05)
    cluster.remove_node(node, allow_graceful=False)
    time.sleep(4.0)  # Ray misses the node only after some seconds
    cluster.add_node(num_cpus=1)
    assert written.result().missing == 0
ray.shutdown()
cluster.shutdown()
"""


def test_a_node_that_is_lost_costs_its_block_one_try(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="the engine of a Ray cluster needs snapfm[ray], which is not installed")
    run = subprocess.run([sys.executable, "-c", LOST, str(tmp_path)], capture_output=True, text=True, timeout=500)
    assert run.returncode == 0, run.stderr
    assert len(list(tmp_path.glob("try*"))) == 2
    assert tree(tmp_path / "a.zarr") == tree(stream(numbers(tmp_path), tmp_path / "whole.zarr").path)


def test_workers_that_find_no_room_hold_nobody_up(cluster: Any, tmp_path: Path) -> None:
    stream(numbers(tmp_path), tmp_path / "a.zarr", engine=OnRay(workers=4))  # on two processors
    assert tree(tmp_path / "a.zarr") == tree(stream(numbers(tmp_path), tmp_path / "whole.zarr").path)


def test_a_block_that_hangs_is_given_to_an_idle_worker_too(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("snapfm.files.engines.ray_engine._PATIENCE", 0.5)
    source = numbers(tmp_path, bad=5, how="hangs once")
    assert stream(source, tmp_path / "a.zarr", engine=OnRay(workers=2)).missing == 0
    assert len(list(tmp_path.glob("try*"))) == 2


def test_what_would_fail_again_is_not_tried_again(cluster: Any, tmp_path: Path) -> None:
    with pytest.raises(ProjectionFailed, match="sample 5: law 'mass' is off"):
        stream(numbers(tmp_path, bad=5, how="refused"), tmp_path / "a.zarr", engine=OnRay(workers=1))
    assert len(list(tmp_path.glob("try*"))) == 1


def test_a_worker_that_would_give_other_bits_is_refused(cluster: Any, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"an unfinished run with processor=\d+; got processor=\d+\."):
        stream(numbers(tmp_path, how="other"), tmp_path / "a.zarr", engine=OnRay(workers=1))


def test_a_cluster_without_room_is_refused(cluster: Any, tmp_path: Path) -> None:
    words = r"expect a cluster with room for one worker of \{'CPU': 1\.0, 'moon': 1\.0\}; its nodes have \[\{'CPU': 2\.0\}\]\."
    with pytest.raises(SettingError, match=words):
        stream(numbers(tmp_path), tmp_path / "a.zarr", engine=OnRay(resources={"moon": 1.0}))


def test_a_worker_that_cannot_start_says_why(cluster: Any, tmp_path: Path) -> None:
    class Unloadable:
        blocks = 1

        def units(self, block: int) -> int:
            return 1

        def finished(self) -> set[int]:
            return set()

        def __reduce__(self) -> tuple[Any, ...]:
            return __import__, ("a_package_of_another_machine",)

    words = r"workers are expected to start; one did not: ModuleNotFoundError: No module named 'a_package_of.*Look for"
    with pytest.raises(BlockFailed, match=words):
        OnRay(workers=1).run(Unloadable())


def test_a_suite_runs_on_it(cluster: Any, tmp_path: Path) -> None:
    command = ["quality", "exact", "--only", "mixture", "--count", "4", "--steps", "2", "--out", str(tmp_path / "out")]
    answer = CliRunner().invoke(app, [*command, "--engine", "ray", "--workers", "2"], catch_exceptions=False)
    assert answer.exit_code == 0, answer.output
    assert "Conditional, kept noise, 2" in answer.output
    before = (tmp_path / "out" / "records.jsonl").read_bytes()
    assert len(before.splitlines()) == 1 + 7
    CliRunner().invoke(app, command, catch_exceptions=False)  # nothing is left to do
    assert (tmp_path / "out" / "records.jsonl").read_bytes() == before
