"""The pages: every cell on them, nothing loaded, the same from records alone."""

from __future__ import annotations

from dataclasses import replace
from html import escape
from pathlib import Path

import pytest
from bench.tests.suites.quality.toys import tiny
from tests.reader import Reader

from snapfm_bench.suites.quality import CellState, QualityCell, load_suite, run
from snapfm_bench.suites.quality.pages import page, summary, task_table, text, verdicts
from snapfm_bench.suites.quality.pictures import curve
from snapfm_bench.suites.quality.run import write_pages
from snapfm_bench.suites.quality.suite import Interval, LawScore


def scored(task: str, sampler: str, mmse: float, smse: float = 1e-4) -> QualityCell:
    law = LawScore("mass", 3, Interval(1e-15, 0.0, 2e-15), 2e-15, 3e-16)
    return QualityCell(
        task, sampler, CellState.DONE, 4, steps=100, mmse=Interval(mmse, 0.9 * mmse, 1.1 * mmse), smse=Interval(smse, smse, smse),
        laws=(law,), finite=4, converged=4, smallest=-1.0, largest=1.0, calls=100,
        seconds={"velocity": 1.0, "projection": 0.5, "total": 1.6},
        machine={"processor": "x", "cores": 2, "threads": 1, "versions": {"snapfm": "0"}},
    )  # fmt: skip


@pytest.mark.usefixtures("toy_model")
def test_pages_hold_every_cell_load_nothing_and_come_again_from_records(tmp_path: Path):
    more = '\n[samplers.slow]\ntitle = "<Slow>"\nkind = "ECI"\nbudget = 1e-9\n'
    suite, out = tiny(tmp_path, more), tmp_path / "out"
    cells = run(suite, out)
    html, markdown = ((out / name).read_text(encoding="utf-8") for name in ("index.html", "quality.md"))
    reader = Reader(html)
    assert reader.open == []
    assert len(reader.references) == len(suite.tasks)
    assert all(source.startswith("data:image/png;base64,") for source in reader.references)
    assert not reader.tags & {"script", "link", "iframe", "object"}
    assert "&lt;Slow&gt;" in html
    assert "<Slow>" not in html
    assert str(tmp_path) not in html + markdown
    for task in suite.tasks:
        rows = task_table(suite, task, cells).rows
        assert len(rows) == 2 + len(suite.samplers)
        for row in rows:
            start = (
                f"| {row[0].words} | {row[1].words} | {row[2].words} | " + ("**" if row[3].first else "") + row[3].words
            )
            assert start in markdown
            assert all(escape(one.words) in html and escape(one.detail) in html for one in row)
    (out / "index.html").unlink()
    write_pages(out, suite)
    assert (out / "index.html").read_text(encoding="utf-8") == html


def test_published_figures_stand_beside_ours_and_are_named_so():
    suite = load_suite("paper")
    cells = {cell.key: cell for cell in (scored("heat", "flow", 0.05), scored("heat", "pcfm", 0.002))}
    rows = {row[0].words: [one.words for one in row[1:]] for row in summary(suite, cells).rows}
    assert rows["Heat, here"][:3] == ["5 / 0.01", "0.2 / 0.01", "not run yet"]
    assert rows["Heat, published"][:3] == ["4.56 / 3.51", "0.241 / 0.937", "–"]
    assert "of the PCFM paper, with other models and other data" in text(suite, cells)
    best = [one.words for row in summary(suite, cells).rows for one in row if one.first]
    assert best == ["0.2 / 0.01"]


def test_the_verdict_counts_first_places_and_names_the_rest():
    suite = load_suite("paper")
    cells = [scored("heat", "flow", 0.05), scored("heat", "pcfm", 0.002)]
    cells += [scored("burgers-bc", "eci", 0.001), scored("burgers-bc", "pcfm", 0.002)]
    cells.append(replace(scored("burgers-ic", "pcfm", 1.0), status=CellState.DNF, mmse=None))
    told = " ".join(verdicts(suite, {cell.key: cell for cell in cells}))
    assert "PCFM is first in MMSE on 1 of 2 tasks: Heat." in told
    assert "is 3.0e-16; 8 of 8 samples are certified." in told
    assert "It is not first on Burgers BC." in told
    assert "Without a figure for it: Navier–Stokes, Reaction–diffusion, Burgers IC." in told


def test_a_page_of_no_cells_says_so():
    suite = load_suite("smoke")
    html = page(suite, {}, {})
    assert Reader(html).open == []
    places = 3 * len(suite.samplers) + 5  # of a task: summary with one reference, two tables with two
    assert html.count("not run yet") == places * len(suite.tasks)


def test_a_suite_of_steps_has_a_curve_and_others_have_none():
    suite = load_suite("steps")
    cells = {cell.key: cell for cell in (scored("heat", f"pcfm-{steps}", 0.1 / steps) for steps in (5, 10, 20))}
    drawn = curve(suite, cells)
    assert drawn is not None
    assert drawn.startswith(b"\x89PNG")
    assert 'alt="Scores against flow steps"' in page(suite, cells, {}, drawn)
    assert curve(suite, {}) is None
    assert curve(load_suite("smoke"), {cell.key: cell for cell in (scored("heat", "pcfm", 0.1),)}) is None
