from __future__ import annotations

import base64
import re
from dataclasses import replace
from html import unescape

import pytest
from tests.reader import Reader

from snapfm.text import scientific
from snapfm_bench.demo.record import Record, Seconds
from snapfm_bench.demo.run import page, snippet

NAMES = ("fields", "initial", "mass", "drift", "shocks", "violations")
_LOADING = {"script", "link", "iframe", "object", "embed", "base", "form"}


def _read(html: str) -> Reader:
    reader = Reader(html)
    assert reader.open == []
    return reader


@pytest.fixture(scope="module")
def pictures() -> dict[str, bytes]:
    return {name: f"\x89PNG {name}".encode("latin-1") for name in NAMES}


def test_the_page_loads_nothing(record: Record, pictures: dict[str, bytes]):
    html = page(record, pictures)
    reader = _read(html)
    assert len(reader.references) == len(NAMES)
    assert all(source.startswith("data:image/png;base64,") for source in reader.references)
    assert not _LOADING & reader.tags
    assert not re.search(r"https?://|@import|url\(", html)


def test_pictures_are_inside(record: Record, pictures: dict[str, bytes]):
    sources = _read(page(record, pictures)).references
    inside = [base64.b64decode(source.partition(",")[2]) for source in sources]
    assert inside == list(pictures.values())  # in this order


def test_every_law_and_figure_is_on_the_page(record: Record, pictures: dict[str, bytes]):
    text = _read(page(record, pictures)).text
    for case in record.cases:
        for law in case.laws:
            assert law.name in text
            assert f"{law.rows} equations" in text
            for violation in (law.free, law.lawful, law.lawful64):
                assert scientific(violation.largest) in text
                assert scientific(violation.typical) in text
        assert scientific(case.stationarity) in text
    assert "10.0 s: network 70.0 %, projection 25.0 %, other 5.0 %" in text
    assert "5.0 s: network 60.0 %, projection 20.0 %, other 20.0 %" in text
    assert " ".join(text.split()).count("3 of 3 samples report CONVERGED") == 2
    assert "25.0 % and 20.0 %" in text
    assert "1,234,567 weights" in text
    assert "--count 3 --steps 7 --seed 5" in text
    assert "snapfm 0.1.0" in text


def test_the_code_on_the_page_is_the_snippet(record: Record, pictures: dict[str, bytes]):
    html = page(record, pictures)
    shown = html.partition("<pre><code>")[2].partition("</code></pre>")[0]
    assert unescape(shown) == snippet(record)
    compile(snippet(record), "snippet", "exec")


def test_names_are_escaped(record: Record, pictures: dict[str, bytes]):
    nasty = '<script>alert("1")</script> & $mass'
    heat, burgers = record.cases
    laws = (replace(heat.laws[0], name=nasty), *heat.laws[1:])
    odd = replace(heat, laws=laws, problem=nasty, model=nasty)
    html = page(replace(record, cases=(odd, burgers), versions={nasty: nasty}), pictures)
    reader = _read(html)
    assert "script" not in reader.tags
    assert nasty in reader.text


def test_a_page_without_times_still_has_bars(record: Record, pictures: dict[str, bytes]):
    still = Seconds(0.0, 0.0, 0.0)
    cases = tuple(replace(case, free_seconds=still, lawful_seconds=still) for case in record.cases)
    html = page(replace(record, cases=cases), pictures)
    assert html.count('<div class="bar"></div>') == 4


def test_one_sample_and_one_step_are_told_in_the_singular(record: Record, pictures: dict[str, bytes]):
    cases = tuple(replace(case, statuses=("CONVERGED",)) for case in record.cases)
    text = " ".join(_read(page(replace(record, cases=cases, count=1, steps=1), pictures)).text.split())
    assert "1 of 1 sample reports CONVERGED" in text
    assert "Time of 1 sample and 1 flow step" in text
    assert "the sample lies on the dashed line" in text
    assert "1 samples" not in text
