"""The pages in docs and the table of the README are those of the committed records."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest
from benchmarks import page
from benchmarks.page import told_sources
from benchmarks.published import LIMIT, MINUTES, PAGES, QUALITY, beside, steps
from benchmarks.record import latest
from benchmarks.tables_page import SUITES

from snapfm_bench.suites.projection import load_suite
from snapfm_bench.suites.quality import load_suite as load_quality

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_that_of_the_records(name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("sys.argv", [name, "--check"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(f"bench/benchmarks/{name}.py", run_name="__main__")
    assert ended.value.code is None, f"run python -m benchmarks.{name}; {ended.value.code}"


def test_every_page_of_figures_is_written_by_a_script_that_is_checked():
    written = {file.stem for file in (ROOT / "bench" / "benchmarks").glob("*_page.py")}
    assert written == set(PAGES)


def test_pages_name_the_day_and_commit_of_their_records_and_that_the_solver_has_changed(
    monkeypatch: pytest.MonkeyPatch,
):
    new = {"commit": "0123456789ab", "dirty": False, "date": "2026-11-20"}
    older = "The solver has changed since; figures of the present code are not measured yet."
    assert told_sources({"audit": {}}) == f"Records of 2026-11-17, commit not recorded. {older}"
    assert told_sources({"audit": new, "cutest": {}, "exact": new | {"dirty": True}}) == (
        "Records: `audit` of 2026-11-20, commit 0123456789ab; `cutest` of 2026-11-17, commit not recorded; `exact` of "
        f"2026-11-20, commit 0123456789ab with changes. {older}"
    )
    monkeypatch.setattr(page, "CURRENT", frozenset({"0123456789ab"}))
    assert told_sources({"audit": new}) == "Records of 2026-11-20, commit 0123456789ab."
    assert told_sources({"audit": new, "cutest": {}}).endswith(older)


@pytest.mark.parametrize(
    "name", ["tables", "laws", "cutest", "quality", "exact", "inequalities", "audit", "many-machines"]
)
def test_every_page_of_figures_tells_the_age_of_its_records(name: str):
    text = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
    assert re.search(r"Records[ :].*2026-\d\d-\d\d, commit (not recorded|[0-9a-f]{12})", text)


def test_figures_in_prose_are_those_of_the_records():
    found = latest("certificates")
    written = (ROOT / "docs" / "certificates.md").read_text(encoding="utf-8")
    assert not found["false"]
    assert all(
        words in written
        for words in (
            f"{found['samples']:,} projections",
            f"{found['statuses']['CONVERGED']:,} samples",
            found["commit"],
        )
    )
    # README: with ordinary models PCFM is first on none of five tasks, with models trained for laws on four
    quality = (ROOT / "docs" / "quality.md").read_text(encoding="utf-8")
    assert re.findall(r"PCFM is first in MMSE on (\d of \d) tasks", quality) == ["0 of 5", "4 of 5"]


def test_everything_that_is_timed_fits_into_one_go(tmp_path: Path):
    planned = steps(tmp_path)
    assert set(MINUTES) == set(SUITES)
    assert sum(MINUTES.values()) <= LIMIT
    assert len({step.name for step in [*planned, *beside(tmp_path)]}) == len(planned) + len(beside(tmp_path))
    for name in SUITES:
        load_suite(name)
    for name in QUALITY:
        load_quality(name)
