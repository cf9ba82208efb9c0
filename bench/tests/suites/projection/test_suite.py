"""Suites as they are read: the shipped ones, those that extend them, and every mistake with the key it names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bench.tests.suites.projection.toys import suite_file

from snapfm.errors import SnapfmError
from snapfm_bench.published import TITLES
from snapfm_bench.record import load, to_line
from snapfm_bench.suites import projection
from snapfm_bench.suites.projection import Kind, ProjectionSuite, load_suite, suite_names
from snapfm_bench.suites.projection.suite import methods

SUITES = Path(projection.__file__).parent / "suites"


@pytest.mark.parametrize("name", suite_names())
def test_shipped_suites_can_be_read_by_name_and_by_path(name: str):
    suite = load_suite(name)
    assert suite.name == name
    assert load_suite(str(SUITES / f"{name}.toml")) == suite
    assert load(ProjectionSuite, json.loads(to_line(suite))) == suite
    assert all("ours" in suite.methods_of(case, kind) for case in suite.cases for kind in Kind)
    assert {case.published for case in suite.cases} <= {None, *TITLES}


def test_the_paper_suite_asks_what_the_paper_did():
    suite = load_suite("paper")
    assert set(suite.names()) == set(methods())  # the first case has all of them
    assert (suite.tolerance, suite.threads) == (1e-5, 2)
    assert [case.published for case in suite.cases] == [*TITLES, None]
    assert {case.problem for case in suite.cases if case.samples == 32} == set(
        TITLES
    )  # headlines are of as many samples
    for case in suite.cases[:-1]:
        assert {str(Kind.PROJECTION), str(Kind.WALK)} <= set(case.kinds)
        assert case.steps == 100
        assert case.samples == (2 if case.problem.startswith("navier-stokes") else 32)
    assert any(Kind.CURVE in case.kinds for case in suite.cases)
    assert {"rootfinder-2", "ipopt-tuned"} <= set(suite.methods)
    assert {"ours", "rootfinder-2", "ipopt-2"} <= set(suite.methods_of(suite.cases[0], Kind.WALK)) < set(suite.methods)


def test_scaling_suites_grow_along_their_axis():
    rows = load_suite("scaling-constraints")
    assert {case.axis for case in rows.cases} == {"rows"}
    samples = load_suite("scaling-samples")
    assert [case.samples for case in samples.cases] == [8, 32, 128, 256, 1024]
    grid = load_suite("scaling-grid")
    for problem in {case.problem for case in grid.cases}:
        sizes = [_unknowns(case.build().grid.shape) for case in grid.cases if case.problem == problem]
        assert sizes == sorted(sizes)
        assert sizes[0] < 2e4
        assert sizes[-1] >= 1e6


def _unknowns(shape: tuple[int, ...]) -> int:
    count = 1
    for extent in shape:
        count *= extent
    return count


def test_a_file_may_change_what_it_extends(tmp_path: Path):
    file = tmp_path / "mine.toml"
    file.write_text('extends = "smoke"\nname = "mine"\nrepeats = 9\n', encoding="utf-8")
    suite, base = load_suite(str(file)), load_suite("smoke")
    assert (suite.name, suite.repeats, suite.cases) == ("mine", 9, base.cases)


def test_budgets_of_a_case_come_before_those_of_the_suite(tmp_path: Path):
    more = '\n[cases.other]\nproblem = "heat-ic-mass"\nnoisy = 0.1\nbudget = 3\nwalk_budget = 4\n'
    suite = load_suite(
        str(suite_file(tmp_path, ["ours"], more=more, changes={"budget = 120": "budget = 7\nwalk_budget = 8"}))
    )
    found = [suite.budget_of(case, kind) for case in suite.cases for kind in (Kind.PROJECTION, Kind.WALK)]
    assert found == [7, 8, 3, 4]


CASE = "suite 'tiny' case 'burgers'"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("threads = 1", "threads = 0", "suite 'tiny' expects threads to be a whole number >= 1; got 0. Ask for"),
        ("repeats = 2", 'repeats = "two"', "suite 'tiny' expects repeats to be a whole number >= 1; got 'two'. Ask"),
        ("budget = 120", "budget = -1", "suite 'tiny' expects budget to be a positive number; got -1. Give one."),
        ("threads = 1", "treads = 1", "suite 'tiny' expects keys among ['budget', 'cases',"),
        ("threads = 1", "threads = ", "suite 'tiny' is expected to be TOML; got a file with"),
        ('methods = ["ours"]', "", "suite 'tiny' expects a value for 'methods'; got none. Add a line `methods = …`."),
        ('["ours"]', '"ours"', "suite 'tiny' expects methods to be a list; got 'ours'. Write methods = ['ours']."),
        ('["ours"]', "[]", "suite 'tiny' expects at least one method in methods; got none. Name some of ['ours',"),
        ('["ours"]', '["moon"]', "suite 'tiny' expects methods to be some of ['ours', 'good',"),
        (
            '["ours"]',
            '["ours", "ours"]',
            "suite 'tiny' expects methods to name each once; got 'ours' twice. Remove one.",
        ),
        (
            '"toys"',
            '"no.such"',
            "catalog = 'no.such' expects a module with METHODS, a table of methods by name; got none",
        ),
        (
            "[cases.burgers]",
            "[kases.burgers]",
            "suite 'tiny' expects a table [cases.NAME] for each of its cases; got none",
        ),
        ("[cases.burgers]", '[cases."a/b"]', "suite 'tiny' case 'a/b' expects a name of letters, digits"),
        ("samples = 3", "samples = 1.5", f"{CASE} expects samples to be a whole number >= 1; got 1.5. Ask for"),
        ("noisy = 0.01", "", f"{CASE} expects inputs, taus or noisy; got neither. Add `taus ="),
        ("noisy = 0.01", "noisy = 0.1\ntaus = [0.0]", f"{CASE} expects either taus or noisy; got both. Make two"),
        (
            "noisy = 0.01",
            "taus = [0.5]",
            f"{CASE} expects model, the shipped network that walks or gives inputs; got none",
        ),
        ("noisy = 0.01", 'taus = [2]\nmodel = "m"', f"{CASE} expects taus to be flow times in [0, 1]; got 2. Give"),
        (
            "noisy = 0.01",
            'noisy = 1\nkinds = ["run"]',
            f"{CASE} expects kinds to be some of ['projection', 'walk', 'curve']",
        ),
        ("noisy = 0.01", "noisy = 1\nkinds = []", f"{CASE} expects kinds to name at least one; got none. Choose"),
        ("noisy = 0.01", 'noisy = 1\naxis = "x"', f"{CASE} expects axis to be one of ['rows', 'samples', 'unknowns'];"),
        ("noisy = 0.01", "noisy = 1\nlength = 1", f"{CASE} expects keys among ['axis', 'budget', 'kinds',"),
        ("burgers-bc-mass", "moon", f"{CASE}: snapfm.problem(name) expects one of"),
        ("nx = 11", "nz = 11", f"{CASE}: problem 'burgers-bc-mass' expects settings among"),
    ],
)
def test_mistakes_name_the_key(old: str, new: str, words: str, tmp_path: Path):
    file = suite_file(tmp_path, ["ours"], changes={old: new})
    with pytest.raises(SnapfmError) as mistake:
        load_suite(str(file))
    assert str(mistake.value).startswith(words)


def test_a_file_that_is_no_text_is_refused(tmp_path: Path):
    file = tmp_path / "picture.toml"
    file.write_bytes(b"\x89PNG\xff")
    with pytest.raises(
        SnapfmError, match=r"^suite 'picture' is expected to be TOML; got a file that is no text\. Name another"
    ):
        load_suite(str(file))


def test_unknown_suites_are_refused(tmp_path: Path):
    with pytest.raises(SnapfmError, match=r"snapfm bench SUITE expects one of \[.*'smoke'\] or the path"):
        load_suite("moon")
    file = tmp_path / "mine.toml"
    file.write_text('extends = "moon"\n', encoding="utf-8")
    with pytest.raises(SnapfmError, match=r"suite 'mine' expects extends to be one of .*; got 'moon'. Name a shipped"):
        load_suite(str(file))
