"""Runs of a suite: what is kept, what a kill loses, and what becomes of cells that cannot be done."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from bench.tests.suites.quality.toys import Still, tiny
from torch import Tensor

from snapfm.errors import DataError, UnknownName
from snapfm.files.engines import Share
from snapfm_bench.record import RECORDS, Now, Records, load
from snapfm_bench.suites.quality import CellState, QualityCell, run
from snapfm_bench.suites.quality import cell as cells
from snapfm_bench.suites.quality import suite as suites
from snapfm_bench.suites.quality.run import write_pages

CELLS = 8  # two reference rows and two samplers on two tasks
EPS = torch.finfo(torch.float64).eps


class Broken:
    """A sampler that fails after a step."""

    def run(self, task: object) -> tuple[Tensor, None]:
        raise RuntimeError("the flow ran dry\nand a second line")


class Wild:
    """A sampler whose second sample is not a number."""

    def run(self, task: object) -> tuple[Tensor, None]:
        u = task.noise.clone()  # type: ignore[attr-defined]
        u[1] = torch.nan
        return u, None


def lines(folder: Path) -> list[str]:
    return (folder / RECORDS).read_text(encoding="utf-8").splitlines()


@pytest.mark.usefixtures("toy_model")
def test_every_cell_is_scored_kept_and_pictured(tmp_path: Path):
    told: list[Now] = []
    found = run(tiny(tmp_path), tmp_path / "out", progress=told.append)
    assert len(found) == CELLS
    assert {cell.status for cell in found.values()} == {CellState.DONE}
    pcfm = found["heat", "pcfm"]
    assert (pcfm.samples, pcfm.steps, pcfm.steps_done, pcfm.calls, pcfm.converged) == (3, 2, 2, 2, 3)
    assert [law.law for law in pcfm.laws] == ["initial", "mass"]
    # 11 values of a slice are summed: rounding of so many numbers of order one.
    assert max(law.worst_row for law in pcfm.laws) <= 11 * 4 * EPS
    assert set(pcfm.seconds) == {"velocity", "projection", "other", "total"}
    assert pcfm.mmse.low <= pcfm.mmse.value <= pcfm.mmse.high
    flow = found["heat", "flow"]
    assert flow.converged is None
    assert (flow.smallest, flow.largest) == (0.0, 0.0)
    assert flow.laws[0].largest == pytest.approx(
        float(torch.sin(torch.linspace(0, 2 * torch.pi, 12) + torch.pi / 4).norm())
    )
    mean = found["heat", "true-mean"]
    assert mean.mmse.value == pytest.approx(0.0, abs=EPS)
    assert found["heat", "true-fields"].smse.value < mean.smse.value
    assert [load(QualityCell, json.loads(line)) for line in lines(tmp_path / "out")[1:]] == list(found.values())
    with np.load(tmp_path / "out" / "moments" / "heat.flow.npz") as kept:
        assert kept["mean"].dtype == np.float32
        assert not kept["mean"].any()
    finished = [now for now in told if now.finished is not None]
    assert [now.left for now in finished] == list(range(CELLS))[::-1]
    assert any((now.key[1], now.doing, now.share) == ("pcfm", "sampling", 0.5) for now in told)


@pytest.mark.usefixtures("toy_model")
def test_finished_cells_are_not_run_again(tmp_path: Path):
    suite = tiny(tmp_path)
    run(suite, tmp_path / "out", only="heat")
    before = lines(tmp_path / "out")
    assert len(before) == 1 + CELLS // 2
    told: list[Now] = []
    run(suite, tmp_path / "out", progress=told.append)
    assert lines(tmp_path / "out")[: len(before)] == before
    assert {now.key[0] for now in told} == {"flow-past"}
    run(suite, tmp_path / "out", progress=lambda now: pytest.fail("nothing is left to do"))


DRIVER = """
import os, signal, sys
from pathlib import Path
import torch
torch.set_num_threads(1)
from snapfm_bench.suites.quality import cell, load_suite, run
sys.path.insert(0, sys.argv[3])  # not every `tests` on the path is ours
from toys import Still
cell.shipped_names, cell.shipped = (lambda: ["toy"]), (lambda name: Still())
def tell(now):
    if now.key == ("heat", "pcfm") and now.share == 0.5:
        os.kill(os.getpid(), signal.SIGKILL)
run(load_suite(sys.argv[1]), Path(sys.argv[2]), progress=tell)
"""


@pytest.mark.usefixtures("toy_model")
def test_a_killed_run_goes_on_where_it_was(tmp_path: Path):
    suite, out = tiny(tmp_path), tmp_path / "out"
    argv = [sys.executable, "-c", DRIVER, str(tmp_path / "tiny.toml"), str(out), str(Path(__file__).parent)]
    killed = subprocess.run(argv, capture_output=True, text=True, timeout=600)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    before = lines(out)
    assert len(before) == 1 + 6  # the suite, four reference rows, the flow on both tasks
    with (out / RECORDS).open("a") as file:
        file.write('{"task": "heat", "sam')  # as a kill within a write leaves it
    ran: list[tuple[str, str]] = []
    run(suite, out, progress=lambda now: ran.append(now.key) if now.finished else None)
    assert ran == [("heat", "pcfm"), ("flow-past", "pcfm")]
    assert lines(out)[: len(before)] == before
    assert len(lines(out)) == 1 + CELLS


@pytest.mark.usefixtures("toy_model")
def test_a_missing_model_is_absent_and_run_when_it_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    suite = tiny(tmp_path)
    monkeypatch.setattr(cells, "shipped_names", lambda: [])
    found = run(suite, tmp_path / "out")
    assert found["heat", "true-fields"].status is CellState.DONE
    assert found["heat", "pcfm"].status is CellState.ABSENT
    assert found["heat", "pcfm"].error == "model 'toy' is not shipped"
    text = (tmp_path / "out" / "quality.md").read_text(encoding="utf-8")
    assert "| PCFM | 3 | 2 | ABSENT (model 'toy' is not shipped) |" in text
    assert "Without a figure for it: Heat, Navier–Stokes." in text
    run(suite, tmp_path / "out", progress=lambda now: pytest.fail("it is still missing"))
    monkeypatch.setattr(cells, "shipped_names", lambda: ["toy"])
    assert run(suite, tmp_path / "out")["heat", "pcfm"].status is CellState.DONE


@pytest.mark.usefixtures("toy_model")
def test_cells_of_another_model_are_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    suite = tiny(tmp_path)
    first = run(suite, tmp_path / "out", only="heat")
    other = Still()
    other.scale.data.fill_(0.5)
    monkeypatch.setattr(cells, "shipped", lambda name: other)
    ran: list[str] = []
    second = run(suite, tmp_path / "out", "heat", lambda now: ran.append(now.key[1]) if now.finished else None)
    assert ran == ["flow", "pcfm"]
    assert second["heat", "flow"].model != first["heat", "flow"].model
    assert second["heat", "flow"].mmse != first["heat", "flow"].mmse


@pytest.mark.usefixtures("toy_model")
def test_a_slow_sampler_is_dnf_and_the_others_go_on(tmp_path: Path):
    slow = '\n[samplers.slow]\ntitle = "Slow"\nkind = "ECI"\nbudget = 1e-9\n'
    found = run(tiny(tmp_path, slow), tmp_path / "out")
    for task in ("heat", "flow-past"):
        cell = found[task, "slow"]
        assert (cell.status, cell.steps_done, cell.calls, cell.mmse) == (CellState.DNF, 0, 0, None)
        assert cell.seconds["total"] > 0
    assert found["flow-past", "pcfm"].status is CellState.DONE
    assert "| Slow | 3 | 2 | DNF (after " in (tmp_path / "out" / "quality.md").read_text(encoding="utf-8")


@pytest.mark.usefixtures("toy_model")
def test_a_budget_ends_a_sampler_between_two_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    suite = tiny(tmp_path, "", samples="samples", budget="budget")
    clock = iter(range(10_000))
    monkeypatch.setattr(
        cells.time, "perf_counter", lambda: 100.0 * next(clock)
    )  # every look takes 100 s; 600 s are allowed
    assert run(suite, tmp_path / "out", "heat")["heat", "pcfm"].status is CellState.DNF


@pytest.mark.usefixtures("toy_model")
def test_a_failing_sampler_is_recorded_and_does_not_stop_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(suites.KINDS, "Broken", Broken)
    monkeypatch.setitem(suites.KINDS, "Wild", Wild)
    more = (
        '\n[samplers.broken]\nkind = "Broken"\n[samplers.wild]\nkind = "Wild"\n[samplers.end]\nkind = "EndProjection"\n'
    )
    found = run(tiny(tmp_path, more), tmp_path / "out", "heat")
    assert found["heat", "broken"].status is CellState.FAILED
    assert found["heat", "broken"].error == "RuntimeError: the flow ran dry"
    wild = found["heat", "wild"]
    assert (wild.status, wild.finite, wild.mmse, wild.largest) == (CellState.DONE, 2, None, None)
    assert wild.texture.noise == 3  # white noise, and what is no number
    assert found["heat", "end"].status is CellState.DONE
    for page in ("quality.md", "index.html"):
        text = (tmp_path / "out" / page).read_text(encoding="utf-8")
        assert "FAILED" in text
        assert "RuntimeError: the flow ran dry" in text
        assert "2 of 3 finite" in text


@pytest.mark.usefixtures("toy_model")
def test_another_suite_in_the_folder_is_refused(tmp_path: Path):
    run(tiny(tmp_path), tmp_path / "out", "heat")
    before = lines(tmp_path / "out")
    other = tiny(tmp_path, name="other", **{"samples = 3": "samples = 4"})
    for attempt in (lambda: run(other, tmp_path / "out"), lambda: write_pages(tmp_path / "out", other)):
        with pytest.raises(
            DataError, match=r"expected to hold records of suite 'other' .*; got those of suite 'tiny' with"
        ) as e:
            attempt()
        assert str(e.value).endswith("another name, samples. Choose another folder, or remove that one.")
    assert lines(tmp_path / "out") == before


@pytest.mark.usefixtures("toy_model")
def test_one_process_at_a_time(tmp_path: Path):
    with (
        Records(tmp_path / "out", tiny(tmp_path), QualityCell),
        pytest.raises(DataError, match=r"one process at a time, .*; another one is at"),
    ):
        run(tiny(tmp_path), tmp_path / "out")


@pytest.mark.usefixtures("toy_model")
def test_shares_of_a_run_fill_one_folder(tmp_path: Path):
    suite, out = tiny(tmp_path), tmp_path / "out"
    whole = run(suite, tmp_path / "whole")
    with Records(out, suite, QualityCell, Share(3, 3)):  # another one is at it
        first = run(suite, out, share=Share(1, 2))
        assert {key[0] for key in first} == {"heat"}
        second = run(suite, out, share=Share(2, 2))
        with pytest.raises(DataError, match=r"by one for each --part K/N; another one"):
            run(suite, out)
    assert second.keys() == whole.keys()
    assert len(lines(out)) == 1 + len(whole)  # one header, no cell twice
    assert {key: (cell.status, cell.mmse, cell.smse) for key, cell in second.items()} == {
        key: (cell.status, cell.mmse, cell.smse) for key, cell in whole.items()
    }  # fmt: skip
    assert sorted(entry.name for entry in out.iterdir()) == sorted(
        entry.name for entry in (tmp_path / "whole").iterdir()
    )


def test_pages_of_nothing_and_tasks_without_a_name_are_refused(tmp_path: Path):
    with pytest.raises(
        DataError, match=r"--page-only expects records.jsonl in --out .*; got none. Run the suite first."
    ):
        write_pages(tmp_path / "none", tiny(tmp_path))
    with pytest.raises(UnknownName, match=r"--only expects a task .* one of \['heat', 'flow-past'\]; got 'moon'"):
        run(tiny(tmp_path), tmp_path / "out", "moon")
    assert not (tmp_path / "out").exists()
