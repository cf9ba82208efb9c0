"""The pages in docs and the table of the README are those of the committed records."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
from benchmarks.published import LIMIT, MINUTES, PAGES, QUALITY, beside, steps
from benchmarks.tables_page import SUITES

from snapfm_bench.suites.projection import load_suite
from snapfm_bench.suites.quality import load_suite as load_quality

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_that_of_the_records(page: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("sys.argv", [page, "--check"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(f"bench/benchmarks/{page}.py", run_name="__main__")
    assert ended.value.code is None, f"run python -m benchmarks.{page}; {ended.value.code}"


def test_every_page_of_figures_is_written_by_a_script_that_is_checked():
    written = {file.stem for file in (ROOT / "bench" / "benchmarks").glob("*_page.py")}
    assert written == set(PAGES)


def test_everything_that_is_timed_fits_into_one_go(tmp_path: Path):
    planned = steps(tmp_path)
    assert set(MINUTES) == set(SUITES)
    assert sum(MINUTES.values()) <= LIMIT
    assert len({step.name for step in [*planned, *beside(tmp_path)]}) == len(planned) + len(beside(tmp_path))
    for name in SUITES:
        load_suite(name)
    for name in QUALITY:
        load_quality(name)
