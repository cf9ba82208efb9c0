"""The pages: nothing loaded, everything escaped, the same bytes twice, readable on wide and narrow screens."""

from __future__ import annotations

import re
import shutil
import subprocess
from html import escape
from pathlib import Path

import numpy as np
import pytest
from bench.tests.suites.projection.report.conftest import Made
from bench.tests.suites.projection.report.planted import folder, paper_cells, paper_suite
from tests.reader import Reader

from snapfm.errors import DataError
from snapfm_bench.pages.document import Fold, Table
from snapfm_bench.suites.projection.report.pages import sections, write

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)


def all_tables(made: Made) -> list[Table]:
    blocks = [block for section in sections(made.book) for block in section.blocks]
    blocks += [inner for block in blocks if isinstance(block, Fold) for inner in block.blocks]
    return [block for block in blocks if isinstance(block, Table)]


def test_the_page_loads_nothing_and_every_tag_is_closed(made: Made):
    reader = Reader(made.html)
    assert reader.open == []
    assert not reader.tags & {"script", "link", "iframe", "object", "embed"}
    assert all(one.startswith(("#", "data:image/png;base64,")) for one in reader.references)
    assert not re.search(r"https?://|@import|url\((?!#)", made.html)
    assert str(made.out.parent) not in made.html + made.markdown
    assert str(made.runs[0].parent) not in made.html + made.markdown


def test_every_reference_inside_the_page_is_met_once(made: Made):
    reader = Reader(made.html)
    assert len(reader.ids) == len(set(reader.ids))
    inside = [one[1:] for one in reader.references if one.startswith("#")]
    inside += re.findall(r"url\(#([^)]*)\)", made.html)
    assert set(inside) <= set(reader.ids)


def test_every_entry_of_every_table_is_on_both_pages(made: Made):
    found = all_tables(made)
    assert len(found) > 20
    for table in found:
        for row in table.rows:
            assert all(escape(one.words) in made.html and escape(one.detail) in made.html for one in row)
            assert re.sub(r"[|*`<&\[].*", "", row[-1].words) in made.markdown


def test_words_of_records_are_escaped(made: Made):
    assert "&lt;b&gt;boom&lt;/b&gt; | *twice* &amp; `more`" in made.html
    assert "<b>boom" not in made.html + made.markdown
    assert "&lt;b>boom&lt;/b> \\| \\*twice\\* &amp; \\`more\\`" in made.markdown
    assert "<h1>Benchmark: Six &lt;problems&gt; &amp; more, Rows</h1>" in made.html


def test_hardware_of_published_figures_is_named_and_no_date_is_but_that_of_the_records(made: Made):
    for text in (made.html, made.markdown):
        assert "1× L40S + 4 cores" in text
        assert "Hardware and networks differ" in text
        assert set(re.findall(r"\b20[2-9]\d-\d\d-\d\d", text)) == {"2026-11-18"}


def test_pictures_are_inside_and_described(made: Made):
    pictures = re.findall(r'<img src="data:image/png;base64,[^"]+" alt="([^"]+)">', made.html)
    assert len(pictures) == 6  # two of scaling, two of convergence, two of fields


def test_the_same_records_give_the_same_bytes(made: Made, tmp_path: Path):
    write(made.runs, tmp_path)
    assert (tmp_path / "index.html").read_text(encoding="utf-8") == made.html
    assert (tmp_path / "report.md").read_text(encoding="utf-8") == made.markdown
    assert sorted(file.name for file in tmp_path.iterdir()) == ["index.html", "report.md"]


def test_one_run_alone_makes_a_page(made: Made, tmp_path: Path):
    write(made.runs[1:], tmp_path)
    assert "<h1>Benchmark: Rows</h1>" in (tmp_path / "index.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "arrays", [{"before": np.zeros((2, 3, 4))}, {"before": np.zeros((2, 3)), "after": np.zeros((2, 3))}]
)
def test_fields_that_cannot_be_shown_are_refused_by_name(tmp_path: Path, arrays: dict[str, np.ndarray]):
    run = folder(tmp_path / "run", paper_suite(), paper_cells())
    (run / "fields").mkdir()
    np.savez(run / "fields" / "heat.npz", **arrays)
    with pytest.raises(DataError, match=r"heat\.npz is expected to hold arrays `before` and `after` of one shape"):
        write([run], tmp_path / "out")


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [420, 1200])
def test_the_page_never_scrolls_sideways_and_follows_the_color_scheme(
    made: Made, tmp_path: Path, width: int, dark: bool
):
    """Ask the browser itself; in a frame of that width, as its own windows are never narrower than 500 pixels."""
    probe = tmp_path / "probe.html"
    asked = (
        "const page = f.contentDocument, all = page.documentElement;"
        "const boxes = [...page.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth).length;"
        "const paper = f.contentWindow.getComputedStyle(page.body).backgroundColor;"
        "document.documentElement.dataset.found = [f.contentWindow.innerWidth, all.scrollWidth, paper, boxes].join(';')"
    )
    probe.write_text(
        f'<!doctype html><meta charset="utf-8"><meta name="color-scheme" content="light dark"><iframe id="f" '
        f'style="width:{width}px;height:900px;border:0" onload="{asked}" srcdoc="{escape(made.html)}"></iframe>',
        encoding="utf-8",
    )
    scheme = ["--blink-settings=preferredColorScheme=0"] if dark else []
    done = subprocess.run(
        [
            str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
            "--disable-component-update", "--disable-sync", f"--user-data-dir={tmp_path / 'profile'}", *scheme,
            "--window-size=1300,1000", "--dump-dom", probe.as_uri(),
        ],
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    found = re.search(r'data-found="([^"]*)"', done.stdout)
    assert found is not None, done.stderr
    inner, page, paper, boxes = found.group(1).split(";")
    assert (int(inner), int(page) <= width) == (width, True)
    assert paper == ("rgb(21, 23, 26)" if dark else "rgb(253, 253, 251)")
    assert int(boxes) > 0 or width > 420  # wide tables scroll, each in a box of its own
