"""Figures of the timed tables are traced to their records, read again from the raw lines by code of its own."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from statistics import fmean, median
from typing import Any

import pytest
from benchmarks.tables_page import BEGIN, END, RUNS, SUITES, page, wanted

from snapfm_bench import published
from snapfm_bench.peers.catalog import METHODS
from snapfm_bench.suites.projection.report.loaded import read

ROOT = Path(__file__).parents[3]
NAMES = {method.title: name for name, method in METHODS.items()}
_NUMBER = re.compile(r"[\d,]+(?:\.\d+)?(?:e[+-]\d+)?")


@cache
def raw(suite: str) -> tuple[dict[str, Any], dict[tuple[str, str, str], dict[str, Any]]]:
    """Return the header of a committed run, and the newest line of each cell by title of the case, method and kind."""
    file = RUNS / suite / "records.jsonl"
    header, *cells = map(json.loads, file.read_text(encoding="utf-8").splitlines())
    titles = {case["name"]: case["title"] or case["name"] for case in header["suite"]["cases"]}
    return header, {(titles[cell["case"]], cell["method"], cell["kind"]): cell for cell in cells}


def committed() -> list[str]:
    return [suite for suite in SUITES if (RUNS / suite / "records.jsonl").is_file()]


def all_cells() -> dict[tuple[str, str, str], dict[str, Any]]:
    """Join all runs; titles are unique over them."""
    return {key: cell for suite in committed() for key, cell in raw(suite)[1].items()}


def rows(text: str) -> list[list[str]]:
    return [
        [part.strip().replace("**", "") for part in line.split("|")[1:-1]] for line in text.splitlines() if "|" in line
    ]


def section(text: str, title: str) -> dict[str, list[list[str]]]:
    """Return the rows of the tables of a section by their headings."""
    _, _, rest = text.partition(f"\n## {title}\n")
    body = rest.partition("\n## ")[0]
    parts = re.split(r"^### (.+)$", body, flags=re.M)
    return {head: rows(words) for head, words in zip(parts[1::2], parts[2::2])}


def check_written(words: str, value: float) -> None:
    """Compare the first number of an entry with a value: it is that value, rounded to the digits that are written."""
    found = _NUMBER.search(words)
    assert found is not None, words
    number = found[0].replace(",", "")
    digits = number.lstrip("0.").replace(".", "") or "0"
    least = 10.0 ** -len(number.partition(".")[2].partition("e")[0]) if "." in number else 1.0
    if "." not in number and value >= 100:  # two digits of a large number, such as 1,200
        least = 10.0 ** (len(number) - min(len(digits.rstrip("0")) or 1, 2))
        least = max(least, 10.0 ** (len(number) - 2))
    assert abs(float(number) - value) <= 0.5001 * least, (words, value)


def ended(cell: dict[str, Any]) -> str:
    """Write how a cell without figures ended; not all that have none used up their time."""
    if cell["state"] != "DNF":
        return str(cell["state"])
    if cell["seconds"] == 0.0:
        return "not begun"
    return f"cut off, first call took {cell['cold']['first_call']:.0f} s" if "first_call" in cell["cold"] else "DNF"


def seconds_of(turn: dict[str, Any]) -> float:
    return median(turn["seconds"])


def test_every_time_of_a_projection_is_a_median_of_its_record():
    text = (ROOT / "docs" / "tables.md").read_text(encoding="utf-8")
    cells, checked = all_cells(), 0
    for case, (heads, _, *found) in section(text, "Projection").items():
        for method, *entries in found:
            cell = cells[case, NAMES[method], "projection"]
            if cell["state"] != "DONE":
                assert entries[0] == ended(cell)
                continue
            turns = {turn["input"]: turn for turn in cell["turns"] if turn["seconds"]}
            for name, words in zip(heads[1:], entries):
                if name not in turns:
                    continue
                check_written(words, 1e3 * seconds_of(turns[name]) / cell["samples"])
                verdict = turns[name]["verdict"]
                accepted = sum(one is not None for one in verdict.get("exact_distances") or ())
                assert f"{accepted} of {cell['samples']}" in words or not verdict.get("exact_distances")
                checked += 1
    assert checked > 50


def test_every_walk_is_that_of_its_record():
    text = (ROOT / "docs" / "tables.md").read_text(encoding="utf-8")
    cells, checked = all_cells(), 0
    tables = section(text, "Runtime of whole walks")
    for case, (heads, _, *found) in tables.items():
        if heads[0] != "method":
            continue
        for method, *entries in found:
            if method not in NAMES:
                continue  # a published row
            cell = cells[case, NAMES[method], "walk"]
            if cell["state"] != "DONE":
                assert entries[0] == ended(cell)
                continue
            written = dict(zip(heads[1:], entries))
            middle = median(cell["walks"])
            check_written(written["total, s"], middle)
            check_written(written["network, s"], cell["walk"]["velocity"] * middle / cell["walk"]["total"])
            checked += 1
    assert checked > 10


def test_the_readme_is_of_the_records():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    cells = all_cells()
    heads, _, *found = rows(text.partition(BEGIN)[2].partition(END)[0])
    assert len(found) == 6
    for words in found:
        row = dict(zip(heads, words))
        samples, title = int(row["samples"]), row["problem"]

        def batch(method: str, title: str = title) -> float:
            turns = cells[title, method, "projection"]["turns"]
            return fmean(seconds_of(turn) for turn in turns if turn["input"] != "tau 1.00")

        def walk(method: str, title: str = title) -> tuple[float, float]:
            """The whole walk, and its part apart from the network: of two walks the mean, the parts those of the shorter."""
            cell = cells[title, method, "walk"]
            middle = median(cell["walks"])
            return middle, middle * (1.0 - cell["walk"]["velocity"] / cell["walk"]["total"])

        check_written(row["projection, per sample"], 1e3 * batch("ours") / samples)
        check_written(row["strongest rival"], batch(rival_of(row["strongest rival"])) / batch("ours"))
        check_written(row["Ipopt, tuned, 2 processes"], batch("ipopt-2") / batch("ours"))
        check_written(row["walk of 100 steps"], walk("ours")[0])
        walks = {method: cell for (case, method, kind), cell in cells.items() if case == title and kind == "walk"}
        others = [name for name in walks if name != "ours"]
        theirs = row["strongest rival's walk"]
        if theirs.startswith("none"):
            assert all(walks[name]["state"] != "DONE" for name in others)
        else:
            whole, rest = (own / other for own, other in zip(walk(rival_of(theirs)), walk("ours")))
            check_written(theirs, whole)
            check_written(row["the same without networks"], rest)
            assert walk(rival_of(theirs))[0] == min(walk(name)[0] for name in others)
        compared = row["fastest published, without networks"]
        raw_case = next(case for case in raw("paper")[0]["suite"]["cases"] if case["title"] == title)
        network = published.NETWORK.get(raw_case["published"])
        if network is None:
            assert compared.startswith("–")
        else:
            best = min(spent for spent in published.RUNTIMES[raw_case["published"]].values() if spent is not None)
            check_written(compared, (best - network) / walk("ours")[1])


def rival_of(words: str) -> str:
    """Return the method that an entry such as '31× (casadi Newton, 2 threads; loses 2 of 64)' names."""
    return NAMES[words.partition("(")[2].rstrip(")").partition(";")[0]]


def test_no_cell_of_the_tables_is_from_elsewhere():
    headers = [raw(suite)[0] for suite in committed()]
    if not any(header.get("source") for header in headers):
        pytest.skip("the committed runs are from before sources were recorded; `make tables` renews them")
    (source,) = {json.dumps(header["source"]) for header in headers}
    assert len(headers) == len(SUITES)
    assert not json.loads(source)["dirty"]
    for suite in SUITES:
        header, cells = raw(suite)
        assert len({cell["suite"] for cell in cells.values()}) == 1
        assert {cell["machine"]["commit"] for cell in cells.values()} == {header["source"]["commit"]}
        assert all(cell["machine"]["date"] and cell["load"] is not None for cell in cells.values())
        done = [cell for cell in cells.values() if cell["state"] == "DONE"]
        assert all(cell["machine"]["versions"]["torch"] for cell in done)
        for method, package in (("pounce", "pounce-solver"), ("ipopt-tuned", "casadi"), ("rootfinder-2", "casadi")):
            assert all(package in cell["machine"]["versions"] for cell in done if cell["method"] == method)


def test_pages_are_written_from_partial_records_too(tmp_path: Path):
    (tmp_path / "paper").mkdir()
    lines = (RUNS / "paper" / "records.jsonl").read_text(encoding="utf-8").splitlines()
    kept = [lines[0], *(line for line in lines[1:] if json.loads(line)["case"] == "heat-1")]
    (tmp_path / "paper" / "records.jsonl").write_text("\n".join(kept) + "\n", encoding="utf-8")
    tables, readme = wanted(tmp_path).values()
    assert "Missing, because they have no records: scaling-constraints, scaling-samples, scaling-grid." in tables
    assert "| Heat-1 | 32 |" in readme
    (tmp_path / "paper" / "records.jsonl").write_text(lines[0] + "\n", encoding="utf-8")  # killed in its first cell
    tables, readme = wanted(tmp_path).values()
    assert "Missing, because they have no records: paper," in tables
    assert BEGIN in readme


def test_pages_without_any_run_say_so(tmp_path: Path):
    tables, readme = wanted(tmp_path).values()
    assert "Missing, because they have no records: paper, scaling-constraints" in tables
    assert BEGIN in readme
    assert page(read([])) == tables
