"""Two planted runs and the pages made of them, once for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from bench.tests.suites.projection.report.planted import (
    folder,
    keep_fields,
    paper_cells,
    paper_suite,
    scaling_cells,
    scaling_suite,
)

from snapfm_bench.suites.projection.report import loaded as books
from snapfm_bench.suites.projection.report.loaded import Report, read
from snapfm_bench.suites.projection.report.pages import write


@dataclass(frozen=True)
class Made:
    """What `write` made of both runs."""

    runs: tuple[Path, Path]
    out: Path
    book: Report
    html: str
    markdown: str


@pytest.fixture(scope="session", autouse=True)
def names_for_titles() -> Iterator[None]:
    """Call methods by their names, whatever the catalog calls them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(books, "METHODS", {})
        yield


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    where = tmp_path_factory.mktemp("runs")
    paper = folder(where / "paper", paper_suite(), paper_cells())
    keep_fields(paper, "heat", (12, 15))
    keep_fields(paper, "waves", (5, 6, 4))
    return paper, folder(where / "scaling", scaling_suite(), scaling_cells())


@pytest.fixture(scope="session")
def book(runs: tuple[Path, Path]) -> Report:
    return read(runs)


@pytest.fixture(scope="session")
def made(runs: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Made:
    out = tmp_path_factory.mktemp("pages") / "deep"
    book = write(runs, out)
    html, markdown = ((out / name).read_text(encoding="utf-8") for name in ("index.html", "report.md"))
    return Made(runs, out, book, html, markdown)
