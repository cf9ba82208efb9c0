"""Runs of a suite with planted methods: what becomes of each, what is kept, what a kill loses, and what is not run again."""

from __future__ import annotations

import json
import random
import re
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from bench.tests.suites.projection.toys import NOTES, suite_file

from snapfm.errors import DataError, UnknownName
from snapfm_bench.judge import Verdict
from snapfm_bench.machine import source
from snapfm_bench.record import RECORDS, Now, load, suite_digest, to_line
from snapfm_bench.suites.projection import CellState, Kind, ProjectionCell, inputs, load_suite, run
from snapfm_bench.suites.projection.run import Cells, ours_failed
from snapfm_bench.suites.projection.suite import MethodTurn

pytestmark = pytest.mark.slow  # every cell is a process that loads torch

PLANTED = ["ours", "good", "lying", "leaving", "faulting", "raising", "missing", "refusing"]


def lines(out: Path) -> list[str]:
    return (out / RECORDS).read_text(encoding="utf-8").split("\n")[:-1]


def alive(pid: int) -> bool:
    try:
        words = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    except FileNotFoundError:
        return False
    return words[0] != "Z"


def gone(pid: int, within: float = 600.0) -> bool:
    end = time.monotonic() + within
    while alive(pid) and time.monotonic() < end:
        time.sleep(0.1)
    return not alive(pid)


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Cells, list[Now], str]:
    folder = tmp_path_factory.mktemp("planted")
    told: list[Now] = []
    suite = load_suite(str(suite_file(folder, PLANTED, 'kinds = ["projection", "curve"]')))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(NOTES, str(folder / "notes.txt"))
        cells = run(suite, folder / "out", progress=told.append)
    return folder / "out", cells, told, (folder / "notes.txt").read_text(encoding="utf-8")


def test_every_cell_has_a_record_and_a_reason(planted: tuple[Path, Cells, list[Now], str]):
    out, cells, told, _ = planted
    states = {method: cell.state for (_, method, kind), cell in cells.items() if kind == Kind.PROJECTION}
    assert states == {
        "ours": CellState.DONE, "good": CellState.DONE, "lying": CellState.DONE, "leaving": CellState.FAILED,
        "faulting": CellState.FAILED,
        "raising": CellState.FAILED, "missing": CellState.ABSENT, "refusing": CellState.REFUSED,
    }  # fmt: skip
    why = {method: cells["burgers", method, "projection"].why for method in PLANTED}
    assert why["leaving"] == "its process ended with code 3: redo from start"
    assert why["faulting"] == "its process died of SIGSEGV"
    assert why["raising"] == "RuntimeError: the pivot is zero"
    assert why["missing"] == "unobtainium is needed for it. Install it with: pip install unobtainium"
    assert why["refusing"] == "Refusing expects no laws; got some. Use another."
    assert [load(ProjectionCell, json.loads(line)) for line in lines(out)[1:]] == list(cells.values())
    assert [now.left for now in told if now.finished] == list(range(len(cells)))[::-1]
    assert not ours_failed(cells)


def test_cold_and_hot_times_are_apart(planted: tuple[Path, Cells, list[Now], str]):
    cell = planted[1]["burgers", "good", "projection"]
    assert set(cell.cold) == {"structure", "build", "first_call"}
    assert [turn.input for turn in cell.turns] == ["truth + noise"]
    assert len(cell.turns[0].seconds) == 2
    assert max(cell.turns[0].seconds) < cell.cold["first_call"] < cell.seconds
    assert (cell.samples, cell.unknowns, cell.rows, cell.problem) == (3, 99, 9 + 9 + 8, "burgers-bc-mass")
    assert cell.peak_bytes is None or cell.peak_bytes > 0
    assert cell.machine["versions"]["torch"]
    assert (cell.machine["commit"], cell.machine["dirty"]) == (source()["commit"], source()["dirty"])
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", cell.machine["date"])


def test_threads_are_those_of_the_suite(planted: tuple[Path, Cells, list[Now], str]):
    assert "prepare 1e-05 3 threads 1 1" in planted[3].splitlines()
    assert planted[1]["burgers", "good", "projection"].threads == 1


def test_a_false_claim_is_exposed(planted: tuple[Path, Cells, list[Now], str]):
    cells = planted[1]
    honest, lying = (cells["burgers", name, "projection"].turns[0].verdict for name in ("good", "lying"))
    assert (honest.claimed, honest.accepted, honest.false_claims, honest.lawful) == (3, 3, 0, 3)
    assert (lying.claimed, lying.accepted, lying.false_claims, lying.lawful) == (3, 0, 3, 0)
    assert lying.violation > 1e-3
    assert lying.distances == (None, None, None)
    liar = cells["burgers", "lying", "projection"]
    assert ours_failed({("burgers", "ours", "projection"): replace(liar, method="ours")})


def test_all_methods_are_given_the_same_bytes(planted: tuple[Path, Cells, list[Now], str]):
    out, cells, _, _ = planted
    kept = inputs.kept(out / "inputs" / "burgers.npz")
    assert kept is not None
    assert {cell.inputs for cell in cells.values()} == {kept.digest}  # each process compares what it read with it
    assert sorted(entry.name for entry in out.iterdir()) == ["fields", "inputs", RECORDS]


def test_fields_before_and_after_are_kept_for_ours(planted: tuple[Path, Cells, list[Now], str]):
    with np.load(planted[0] / "fields" / "burgers.npz") as packed:
        before, after = packed["before"], packed["after"]
        assert packed["axes"].tolist() == ["x", "t"]
    assert before.shape == after.shape == (2, 11, 9)
    distance = np.linalg.norm((after - before).reshape(2, -1), axis=1)
    assert distance == pytest.approx(
        planted[1]["burgers", "ours", "projection"].turns[0].verdict.distances[:2], rel=1e-4
    )


def test_curves_are_of_methods_that_can_be_stopped(planted: tuple[Path, Cells, list[Now], str]):
    cells = planted[1]
    assert [method for _, method, kind in cells if kind == Kind.CURVE] == ["ours"]
    points = cells["burgers", "ours", "curve"].curve
    assert [point.iterations for point in points] == [0, 1, 2, 3]  # it holds after the third
    assert points[2].violation > 1e-3 > 1e-5 > points[3].violation
    assert cells["burgers", "ours", "projection"].phases == {"derivatives": 0.25, "solve": 0.5}


def test_finished_cells_are_not_run_again_but_failed_ones_if_asked(planted: tuple[Path, Cells, list[Now], str]):
    out, cells, _, _ = planted
    suite = load_suite(str(out.parent / "tiny.toml"))
    before = lines(out)
    run(suite, out, progress=lambda now: pytest.fail("nothing is left to do"))
    (out / "inputs" / "burgers.npz").write_bytes(b"PK half a file")  # nobody needs it any more
    run(suite, out, progress=lambda now: pytest.fail("nothing is left to do"))
    ran: list[str] = []
    run(
        suite,
        out,
        chosen=["missing", "good"],
        again=True,
        progress=lambda now: ran.append(now.key[1]) if now.finished else None,
    )
    assert ran == ["missing"]
    assert lines(out)[: len(before)] == before
    again = inputs.kept(out / "inputs" / "burgers.npz")
    assert again is not None  # damaged inputs are made again
    assert again.digest == cells["burgers", "good", "projection"].inputs


WALK = {
    "noisy = 0.01": 'model = "heat-small"\nkinds = ["walk"]\nsteps = {steps}',
    "burgers-bc-mass": "heat-ic-mass",
    "settings = { nx = 11, nt = 9 }": "",
}


def test_a_hanging_method_is_killed_with_its_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(NOTES, str(tmp_path / "notes.txt"))
    # Long enough to be through the first call on a busy machine, which is what the record then says.
    suite = load_suite(str(suite_file(tmp_path, ["hanging"], changes={"budget = 120": "budget = 20"})))
    cell = run(suite, tmp_path / "out")["burgers", "hanging", "projection"]
    assert cell.state is CellState.DNF
    assert cell.why == "20 s were used up; it was at: judged call on truth + noise"
    assert set(cell.cold) == {"structure", "build", "first_call"}
    assert cell.turns == ()
    assert cell.seconds >= 20
    (child,) = [int(line.split()[1]) for line in (tmp_path / "notes.txt").read_text().splitlines() if "child" in line]
    assert gone(child)


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Cells, str]:
    folder = tmp_path_factory.mktemp("walked")
    changes = {**WALK, "{steps}": "3", "samples = 3": "samples = 2", "repeats = 2": "repeats = 2\nwalk_repeats = 2"}
    suite = load_suite(str(suite_file(folder, ["ours", "good", "warm"], changes=changes)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(NOTES, str(folder / "notes.txt"))
        cells = run(suite, folder / "out")
    return cells, (folder / "notes.txt").read_text(encoding="utf-8")


def test_walks_of_ours_and_of_a_peer_end_in_the_same_fields(walked: tuple[Cells, str]):
    cells, _ = walked
    ours, peer = cells["burgers", "ours", "walk"], cells["burgers", "good", "walk"]
    for cell in (ours, peer):
        assert (cell.state, cell.why, cell.steps, cell.steps_done) == (CellState.DONE, None, 3, 3)
        assert cell.verdict.converged == 2
        assert set(cell.walk) == {"velocity", "projection", "other", "total"}
        assert cell.walk["total"] >= cell.walk["velocity"] + cell.walk["projection"]
        assert "first_call" in cell.cold
    assert ours.verdict.laws == pytest.approx(peer.verdict.laws)


def test_a_peer_that_takes_warm_starts_gets_its_own_answers_wherever_ours_would(walked: tuple[Cells, str]):
    cells, notes = walked
    cell = cells["burgers", "warm", "walk"]
    assert (cell.state, cell.verdict.accepted) == (CellState.DONE, 2)
    # Before the walks a cold and a warm call; each walk begins cold, goes on warm, and ends with a certified call of its own.
    told = [line for line in notes.splitlines() if line in ("cold", "warm")]
    assert told == ["cold", "warm", *["cold", "warm", "warm", "cold"] * len(cell.walks)]
    assert len(cell.walks) == 2
    assert cell.walk["total"] == pytest.approx(sum(cell.walks) / 2, rel=1e-12)  # of two, the median is their mean


def test_a_walk_that_would_take_too_long_is_given_up_with_its_steps_and_repeated_if_asked(tmp_path: Path):
    changes = {**WALK, "{steps}": "1000", "samples = 3": "samples = 1"}
    suite, out = load_suite(str(suite_file(tmp_path, ["slow"], changes=changes))), tmp_path / "out"
    cell = run(suite, out)["burgers", "slow", "walk"]
    assert (cell.state, cell.steps, cell.steps_done) == (CellState.DNF, 1000, 3)
    assert cell.why.startswith("given up after step 3 of 1000: at its pace the walk would take ")
    assert cell.why.endswith(" s of 120 s")
    ran: list[str] = []
    run(suite, out, again=True, progress=lambda now: ran.append(now.key[1]) if now.finished else None)
    assert ran == ["slow"]


VERDICT = Verdict(3, 3, 3, 3, 1e-9, 1e-9, (1.0, 1.0, 1.0), 2.0, 3)
TRIED = {
    "did not end in 120 s": {"state": CellState.DNF, "cold": {"build": 1.0}, "seconds": 120.0},
    "took 5.5 s": {
        "state": CellState.DONE,
        "turns": (MethodTurn("a", (1.0, 2.0, 9.0), VERDICT), MethodTurn("b", (9.0,), VERDICT)),
    },
}


@pytest.mark.parametrize("words", TRIED)
def test_a_walk_is_not_begun_by_a_method_that_projects_too_slowly(tmp_path: Path, words: str):
    changes = {**WALK, 'kinds = ["walk"]': 'kinds = ["projection", "walk"]\nnoisy = 0.1', "{steps}": "50"}
    suite, out = load_suite(str(suite_file(tmp_path, ["good"], changes=changes))), tmp_path / "out"
    made, made_from = inputs.make(suite, suite.cases[0]), inputs.fingerprint(suite, suite.cases[0])
    (out / "inputs").mkdir(parents=True)
    (out / "inputs" / "burgers.npz").write_bytes(inputs.pack(made, made_from))
    tried = ProjectionCell(
        "burgers", "good", Kind.PROJECTION, inputs=made.digest(), suite=suite_digest(suite), **TRIED[words]
    )
    head = json.dumps({"suite": asdict(suite), "source": source()})
    (out / RECORDS).write_text(f"{head}\n{to_line(tried)}\n", encoding="utf-8")
    cell = run(suite, out)["burgers", "good", "walk"]
    assert (cell.state, cell.steps, cell.steps_done, cell.seconds) == (CellState.DNF, 50, 0, 0.0)
    assert cell.why == f"not begun: one projection of the batch {words}, and a walk of 50 steps has 120 s"


def test_a_missing_network_makes_cells_absent(tmp_path: Path):
    changes = {**WALK, "{steps}": "2", "heat-small": "moon"}
    cells = run(load_suite(str(suite_file(tmp_path, ["ours"], changes=changes))), tmp_path / "out")
    cell = cells["burgers", "ours", "walk"]
    assert (cell.state, cell.why) == (CellState.ABSENT, "model 'moon' is not shipped")
    assert not ours_failed(cells)


DRIVER = """
import sys
from pathlib import Path
from snapfm_bench.suites.projection import load_suite, run
run(load_suite(sys.argv[1]), Path(sys.argv[2]))
"""


def test_a_run_killed_at_random_moments_loses_nothing_and_repeats_nothing(tmp_path: Path):
    more = '\n[cases.heat]\nproblem = "heat-ic-mass"\nsettings = { nx = 8, nt = 6 }\nsamples = 2\nnoisy = 0.1\n'
    file, out = suite_file(tmp_path, ["ours"], more=more), tmp_path / "out"
    moments = random.Random(5)
    seen: list[str] = []
    for _ in range(2):
        driver = subprocess.Popen([sys.executable, "-c", DRIVER, str(file), str(out)])
        while not (out / ".running").is_dir() and driver.poll() is None:  # a slow machine starts slowly
            time.sleep(0.05)
        time.sleep(moments.uniform(0.0, 6.0))
        driver.kill()
        driver.wait()
        for kept in (out / "inputs").glob("*") if (out / "inputs").is_dir() else ():
            assert inputs.kept(kept) is not None
        found = lines(out) if (out / RECORDS).exists() else []
        assert found[: len(seen)] == seen
        seen = found
    with (out / RECORDS).open("a", encoding="utf-8") as torn:
        torn.write('{"case": "heat", "meth')  # as a kill within a write leaves it
    cells = run(load_suite(str(file)), out)
    assert {cell.state for cell in cells.values()} == {CellState.DONE}
    assert lines(out)[: len(seen)] == seen
    assert len(lines(out)) == 1 + len(cells) == 1 + 2
    assert sorted(entry.name for entry in out.iterdir()) == ["fields", "inputs", RECORDS]
    assert sorted(entry.name for entry in (out / "inputs").iterdir()) == ["burgers.npz", "heat.npz"]


def test_a_cell_ends_with_its_runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(NOTES, str(tmp_path / "notes.txt"))
    (tmp_path / "notes.armed").touch()
    file, out = suite_file(tmp_path, ["good", "killing"]), tmp_path / "out"
    killed = subprocess.run([sys.executable, "-c", DRIVER, str(file), str(out)], timeout=600)
    assert killed.returncode == -signal.SIGKILL
    assert len(lines(out)) == 2  # the suite and the cell before it
    (pid,) = [int(line.split()[1]) for line in (tmp_path / "notes.txt").read_text().splitlines() if "killing" in line]
    assert gone(pid)
    cells = run(load_suite(str(file)), out)
    assert [cell.state for cell in cells.values()] == [CellState.DONE, CellState.DONE]
    assert len(lines(out)) == 3


def test_other_suites_and_unknown_names_are_refused(tmp_path: Path):
    suite = load_suite(str(suite_file(tmp_path, ["ours"])))
    with pytest.raises(
        UnknownName, match=r"--only expects a case of suite 'tiny', one of \['burgers'\]; got 'moon'. Use"
    ):
        run(suite, tmp_path / "out", "moon")
    with pytest.raises(UnknownName, match=r"--method expects a method of suite 'tiny', one of \['ours'\]; got 'good'"):
        run(suite, tmp_path / "out", chosen=["good"])
    assert not (tmp_path / "out").exists()
    (tmp_path / "out").mkdir()
    other = replace(suite, repeats=9)
    (tmp_path / "out" / RECORDS).write_text(json.dumps({"suite": asdict(other)}) + "\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"got those of suite 'tiny' with another repeats. Choose another folder"):
        run(suite, tmp_path / "out")
