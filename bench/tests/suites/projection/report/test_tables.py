"""The tables of a report, entry by entry, from planted records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from bench.tests.suites.projection.report.planted import (
    cell,
    folder,
    paper_cells,
    paper_suite,
    projection,
    verdict,
    walk,
)

from snapfm_bench import published
from snapfm_bench.judge import UnjudgedLaw
from snapfm_bench.pages.document import Bars, Table
from snapfm_bench.record import CellState
from snapfm_bench.suites.projection.report import answers, growth
from snapfm_bench.suites.projection.report import loaded as books
from snapfm_bench.suites.projection.report import walks as runtimes
from snapfm_bench.suites.projection.report.loaded import Report, ReportCase, contest, faster, more_lawful, read
from snapfm_bench.suites.projection.report.pages import coverage, headline, made, missing, ratio_of, sections, summary
from snapfm_bench.suites.projection.suite import Kind


def case(book: Report, title: str) -> ReportCase:
    return next(one for one in book.cases if one.title == title)


def words(table: Table, row: int | str) -> list[str]:
    """Return one row as plain words, details in brackets, the first ones marked."""
    entries = table.rows[row] if isinstance(row, int) else next(one for one in table.rows if one[0].words == row)
    return [("!" if one.first else "") + one.words + (f" ({one.detail})" if one.detail else "") for one in entries]


def tables(section: object) -> Sequence[Table]:
    return [block for block in section.blocks if isinstance(block, Table)]  # type: ignore[attr-defined]


def test_cases_of_two_suites_with_one_name_are_kept_apart_and_ours_comes_first(book: Report):
    titles = [one.title for one in book.cases]
    assert titles == [
        "heat (paper)", "waves", "odd", "rows 101", "rows 202", "rows 697", "rows 1192", "heat (scaling)",
    ]  # fmt: skip
    heat = case(book, "heat (paper)")
    assert list(heat.of(Kind.PROJECTION)) == ["ours", "ipopt", "lbfgs", "madnlp", "gauss-newton"]
    assert heat.of(Kind.WALK)["ours"].walk["total"] == 6.0  # the newest record


def test_the_walk_table_has_every_method_and_every_published_column(book: Report):
    table = runtimes.case_table(case(book, "heat (paper)"))
    others = [f"{name}, published" for name in published.RUNTIMES["heat-ic-mass"]]
    assert len(others) == 6
    assert [row[0].words for row in table.rows] == ["ours", "ipopt", "lbfgs", "madnlp", "gauss-newton", *others]
    one = "1.0e-09"
    assert words(table, "ours") == [
        "ours", "!6.00 (6.0 to 9.0)", "1.0×", "4.00", "2.00", "1.0×", "32 of 32", one, "2.0e-09",
    ]  # fmt: skip
    assert words(table, "ipopt") == [
        "ipopt", "60.00 (60 to 90)", "10×", "4.00", "56.00", "28×", "32 of 32", one, "2.0e-09",
    ]  # fmt: skip
    assert words(table, "lbfgs") == [
        "lbfgs", "5.00 (5.0 to 7.5)", "0.83×", "4.00", "1.00", "0.50×", "3 of 32, 29 false claims", "0.25", "–",
    ]  # fmt: skip
    assert words(table, "madnlp") == ["madnlp", "DNF", *["–"] * 7]
    assert words(table, "gauss-newton") == ["gauss-newton", "FAILED", *["–"] * 7]
    # 11.73 − 3.5 = 8.23 against the 2 seconds that ours takes apart from its network; totals are not compared
    name = "Exa+MadNLP GPU, published"
    assert words(table, name) == [name, "11.73", "–", "3.5", "8.23", "4.1×", "–", "–", "–"]


def test_the_fastest_published_method_is_not_the_same_everywhere():
    assert published.fastest("burgers-bc-mass") == ("Exa+MadNLP CPU", 109.74)
    assert published.fastest("reaction-diffusion-ic-mass") == ("Exa+MadNLP CPU", 24.58)
    assert published.fastest("heat-ic-mass-pde-energy") == ("Exa+MadNLP GPU", 110.26)  # others did not finish


def test_the_overview_has_the_shape_of_the_paper(book: Report):
    table = runtimes.overview([case(book, "heat (paper)"), case(book, "waves")])
    assert table.heads[:3] == ("case", "ours", "ipopt")
    assert table.heads[-6:] == tuple(f"{name}, published" for name in published.RUNTIMES["heat-ic-mass"])
    assert words(table, 0)[:6] == [
        "heat (paper)", "!6.00 (6.0 to 9.0)", "60.00 (60 to 90)", "5.00 (5.0 to 7.5; 3 of 32, 29 false claims)", "DNF", "FAILED",
    ]  # fmt: skip
    assert words(table, 1) == [
        "waves", "!3.00 (3.0 to 4.5)", "–", "–", "–", "–", "45.69", "118.49", "79.20", "59.38", "DNF", "298.30",
    ]  # fmt: skip


def test_both_sides_of_a_published_figure_are_counted_alike(book: Report, tmp_path: Path):
    table = runtimes.against_published([case(book, "heat (paper)"), case(book, "waves")])
    best = "Exa+MadNLP GPU"
    assert words(table, 0) == ["heat (paper): Heat-1", "6.00", "4.00", "2.00", best, "11.73", "3.5", "8.23", "4.1×"]
    assert words(table, 1) == [  # its network's time was not published: nothing is compared
        "waves: Navier–Stokes", "3.00", "2.00", "1.00", best, "45.69", "not published", "–", "–",
    ]  # fmt: skip
    other = read([folder(tmp_path / "run", paper_suite(), [walk("heat", "ours", 4.0, 2.0, unknowns=2_500)])])
    name = words(runtimes.against_published([case(other, "heat")]), 0)[0]
    assert name == "heat: Heat-1 (2,500 unknowns here, 100 × 100 published)"


def test_walks_of_another_size_get_no_published_ratios(tmp_path: Path):
    fewer = walk("heat", "ours", 1.0, 1.0, verdict(8, samples=8), samples=8)
    found = read([folder(tmp_path / "run", paper_suite(), [fewer])]).cases[0]
    assert words(runtimes.case_table(found), "Exa+MadNLP GPU, published")[1:6] == ["11.73", "–", "3.5", "8.23", "–"]
    assert runtimes.published_ratio(found) is None


def test_the_projection_table_tells_times_home_false_claims_and_the_worst(book: Report):
    table = answers.projection_table(case(book, "heat (paper)"))
    assert table.heads[:3] == ("method", "tau 0.00", "tau 1.00")
    cold = "1.00 (structure 0.25, build 0.50, first call 0.25)"
    assert words(table, "ours") == [
        "ours", *["!1.0 ms (0.50 to 3.0; 32 of 32)"] * 2, "1.0e-09", "2.0e-09", "4 (at most 7)", cold, "50.0 MB",
    ]  # fmt: skip
    assert words(table, "ipopt")[1] == "20 ms (10 to 60; 32 of 32; 20×)"
    assert words(table, "lbfgs")[1:5] == [*["0.50 ms (0.25 to 1.5; 3 of 32, 29 false claims; 0.50×)"] * 2, "0.25", "–"]
    assert words(table, "madnlp") == ["madnlp", "ABSENT", *["–"] * 6]
    assert words(table, "gauss-newton") == ["gauss-newton", "REFUSED", *["–"] * 6]
    assert words(answers.projection_table(case(book, "waves")), 0)[:2] == ["ours", "FAILED"]


def test_a_violation_that_is_not_finite_is_no_gap(tmp_path: Path):
    broken = verdict(0, violation=None, laws=(UnjudgedLaw("mass", None, None),))
    found = read([folder(tmp_path / "run", paper_suite(), [projection("odd", "ours", 0.1, broken)])]).cases[0]
    assert words(answers.projection_table(found), "ours")[3] == "not finite"
    assert words(answers.error_table(found), "ours")[1] == "not finite (row not finite)"


def test_errors_by_law_have_published_ones_under_them(book: Report):
    table = answers.error_table(case(book, "heat (paper)"))
    assert table.heads == ("method", "initial", "mass", "converged")
    assert words(table, "ours") == ["ours", "1.5e-12 (row 2.5e-13)", "2.5e-11 (row 3.5e-12)", "32 of 32"]
    assert words(table, "madnlp") == ["madnlp", "DNF", "–", "–"]
    assert words(table, "L-BFGS, published") == ["L-BFGS, published", "1.4e-06", "2.25", "–"]
    assert answers.error_table(case(book, "waves")).heads == ("method", "initial", "mass", "enstrophy", "converged")


def test_nearness_counts_samples_of_all_inputs_and_unlawful_answers_win_nothing(book: Report):
    found = {one.method: one for one in answers.case_nearness(case(book, "heat (paper)"))}
    ipopt, liar = found["ipopt"], found["lbfgs"]  # two inputs of 32 samples each
    assert (ipopt.compared, ipopt.nearer, ipopt.equal, ipopt.farther, ipopt.only_ours) == (62, 6, 56, 0, 2)
    assert ipopt.gain == 0.5
    assert (liar.compared, liar.nearer, liar.only_ours) == (6, 6, 58)
    section = answers.nearest(book)
    assert section is not None
    assert "In 5 of 6 cases no rival came nearer than ours on any sample; exceptions: heat (paper)" in str(
        section.blocks[1]
    )


@pytest.mark.parametrize(
    ("own", "theirs", "nearer", "farther"),
    [
        (2.0, 2.0 * (1 - 0.5e-6), 0, 0), (2.0, 2.0 * (1 - 2e-6), 64, 0), (2.0, 2.0 * (1 + 2e-6), 0, 64),
        (1e-13, 0.0, 0, 0), (0.0, 0.0, 0, 0), (0.0, 1e-13, 0, 0),  # an input that is lawful already
        (1e-6, 0.0, 64, 0),  # below the tolerance, and yet not rounding
    ],
)  # fmt: skip
def test_nearer_means_by_more_than_a_millionth(tmp_path: Path, own: float, theirs: float, nearer: int, farther: int):
    cells = [
        projection("odd", name, 0.1, verdict(distances=(d,) * 32)) for name, d in (("ours", own), ("ipopt", theirs))
    ]
    (found,) = answers.case_nearness(read([folder(tmp_path / "run", paper_suite(), cells)]).cases[0])
    assert (found.nearer, found.farther) == (nearer, farther)


def test_a_gain_that_broken_laws_explain_is_counted_apart(tmp_path: Path):
    exact = (2.0,) * 31 + (2.0 * (1 - 2e-6),)  # of the rival: only its last sample is nearer with the laws kept
    cells = [
        projection("odd", "ours", 0.1, verdict(exact_distances=(2.0,) * 32)),
        projection("odd", "ipopt", 0.1, verdict(distances=(2.0 * (1 - 3e-6),) * 32, exact_distances=exact)),
    ]
    book = read([folder(tmp_path / "run", paper_suite(), cells)])
    (found,) = answers.case_nearness(book.cases[0])
    assert (found.compared, found.nearer, found.beaten) == (64, 64, 2)
    section = answers.nearest(book)
    assert section is not None
    assert "exceptions: odd (ipopt on 2 of 64 samples)" in str(section.blocks[1])


def test_ours_is_discounted_by_the_same_rule(tmp_path: Path):
    exact = (2.0,) * 31 + (2.0 * (1 + 2e-6),)  # of the rival: only its last sample is farther with the laws kept
    cells = [
        projection("odd", "ours", 0.1, verdict(exact_distances=(2.0,) * 32)),
        projection("odd", "ipopt", 0.1, verdict(distances=(2.0 * (1 + 3e-6),) * 32, exact_distances=exact)),
    ]
    book = read([folder(tmp_path / "run", paper_suite(), cells)])
    (found,) = answers.case_nearness(book.cases[0])
    assert (found.compared, found.farther, found.beats, found.beaten) == (64, 64, 2, 0)
    section = answers.nearest(book)
    assert section is not None
    told = "In 0 of 1 cases no rival was farther than ours by more than violations explain; exceptions: odd (ipopt on 2 of 64"
    assert told in str(section.blocks[1])


def test_a_point_that_leaves_a_method_out_is_marked_and_not_counted(tmp_path: Path):
    suite = paper_suite() | {"methods": ["ours", "lbfgs", "ipopt"]}
    for entry in suite["cases"]:
        entry |= {"axis": "unknowns"}
    suite["cases"][2] |= {"methods": ["ours", "ipopt"]}
    cells = [
        projection("heat", "ours", 0.1), projection("heat", "ipopt", 0.9), projection("heat", "lbfgs", 0.2),
        projection("odd", "ours", 0.1, unknowns=20_000), projection("odd", "ipopt", 0.9, unknowns=20_000),
    ]  # fmt: skip
    book = read([folder(tmp_path / "run", suite, cells)])
    (table,) = tables(summary(book))
    strongest = {row[0].words: (row[4].words, row[4].detail) for row in table.rows if row[1].words == "projection"}
    assert strongest == {"heat": ("lbfgs", ""), "odd": ("ipopt", "lbfgs not run")}
    told = headline(book, [one for each in book.cases if (one := contest(each, Kind.PROJECTION))])
    assert "in 1 of 1 cases; the rival's time is 2.0× that" in told[0]
    assert told[1] == "Not counted, because a method that may be the strongest is missing there: odd (lbfgs not run)."
    (group,) = growth.groups(book)
    assert words(growth.group_table(group), "lbfgs")[1:3] == ["0.2", "not run"]
    listed = [words(one, row)[:4] for one in tables(missing(book)) for row in range(len(one.rows))]
    assert ["odd", "lbfgs", "projection", "not run"] in listed


def test_what_was_never_begun_is_no_dnf_and_a_first_call_that_ended_is_told(tmp_path: Path):
    cells = [
        projection("odd", "ours", 0.1),
        cell("odd", "ipopt", Kind.PROJECTION, CellState.DNF, why="30 s were used up", cold={"first_call": 19.98}),
        cell("odd", "lbfgs", Kind.PROJECTION, CellState.DNF, why="30 s were used up", cold={"build": 3.0}),
        walk("odd", "ours", 1.0, 1.0),
        cell("odd", "ipopt", Kind.WALK, CellState.DNF, why="not begun: …", seconds=0.0, steps_done=0),
    ]
    book = read([folder(tmp_path / "run", paper_suite(), cells)])
    found = book.cases[0]
    assert [books.ended(one) for one in found.cells if one.method != "ours"] == [
        "cut off, first call took 20 s", "not begun", "DNF",
    ]  # fmt: skip
    assert coverage(book) == "2 of 5 cells have a figure; 1 DNF, 1 cut off, 1 not begun."
    assert words(runtimes.case_table(found), "ipopt")[1] == "not begun"


def test_of_two_walks_the_mean_is_taken_and_the_parts_follow(tmp_path: Path):
    two = replace(walk("heat", "ours", 2.0, 1.0), walks=(3.0, 6.0))  # the record keeps the parts of the shorter
    found = read([folder(tmp_path / "run", paper_suite(), [two])]).cases[0]
    assert words(runtimes.case_table(found), "ours")[1:5] == ["!4.50 (3.0 to 6.0)", "1.0×", "3.00", "1.50"]


def test_distances_from_other_arrays_are_not_compared(tmp_path: Path):
    cells = [projection("odd", "ours", 0.1, inputs="one"), projection("odd", "ipopt", 0.1, inputs="another")]
    found = read([folder(tmp_path / "run", paper_suite(), cells)]).cases[0]
    assert answers.case_nearness(found) == []
    rivalry = contest(found, Kind.PROJECTION)
    assert rivalry is not None
    assert (rivalry.rival, rivalry.complete) == (None, None)


def test_the_strongest_rival_brings_half_of_its_samples_home_and_its_losses_are_told(tmp_path: Path):
    cells = [
        projection("odd", "ours", 0.1),
        projection("odd", "lbfgs", 0.2, verdict(15)),  # loses more than are accepted
        projection("odd", "ipopt", 0.3, verdict(31)),
        projection("odd", "madnlp", 0.4),
        projection("odd", "gauss-newton", 0.01, verdict(0)),  # nothing accepted, however fast
    ]
    found = contest(read([folder(tmp_path / "run", paper_suite(), cells)]).cases[0], Kind.PROJECTION)
    assert found is not None
    assert (found.rival, found.complete) == ("ipopt", "madnlp")
    assert found.ratio(found.rival) == pytest.approx(3.0, rel=1e-15)
    assert found.rivals["ipopt"].lost == 1
    assert [str(one.words) + one.detail for one in (ratio_of(found, "ipopt"), ratio_of(found, "madnlp"))] == [
        "3.0×loses 1 of 32", "4.0×",
    ]  # fmt: skip


def test_home_is_what_the_judge_says_and_a_modest_method_is_not_punished(tmp_path: Path):
    modest = verdict(32, claimed=3, converged=3)  # calls three of its answers converged, and the judge accepts all
    cells = [projection("odd", "ours", 0.1), projection("odd", "ipopt", 0.3, modest)]
    book = read([folder(tmp_path / "run", paper_suite(), cells)])
    found = contest(book.cases[0], Kind.PROJECTION)
    assert found is not None
    assert (found.rivals["ipopt"].lost, found.complete) == (0, "ipopt")
    assert words(answers.projection_table(book.cases[0]), "ipopt")[1] == "9.4 ms (4.7 to 28; 32 of 32; 3.0×)"


def test_inputs_at_the_end_of_a_walk_are_apart(tmp_path: Path):
    ours, rival = projection("odd", "ours", 0.1), projection("odd", "ipopt", 0.3)
    easy = replace(rival.turns[1], seconds=(0.01,))
    cells = [ours, replace(rival, turns=(rival.turns[0], easy))]
    found = read([folder(tmp_path / "run", paper_suite(), cells)])
    before, last = (contest(found.cases[0], Kind.PROJECTION, last) for last in (False, True))
    assert before is not None
    assert last is not None
    assert (before.ratio("ipopt"), last.ratio("ipopt")) == (pytest.approx(3.0), pytest.approx(0.1))
    (table,) = tables(summary(found))
    assert [row[1].words for row in table.rows] == ["projection", "projection at τ = 1"]


def test_a_spread_is_that_of_the_repeats_and_has_two_digits(tmp_path: Path):
    found = read([folder(tmp_path / "run", paper_suite(), [projection("odd", "ours", 0.1234)])])
    (table,) = tables(summary(found))
    assert words(table, 0)[2] == "0.12 (0.062 to 0.37)"


def test_the_judges_thresholds_are_printed(book: Report):
    written = [str(block) for section in sections(book) for block in section.blocks]
    told = "The judge accepts violations up to 1e-05, stationarity and complementarity up to 1e-05."
    assert any(told in one for one in written)
    assert answers.thresholds(1e-8).endswith("up to 1e-08, stationarity and complementarity up to 1e-06.")


def test_the_headline_is_computed_from_the_records(book: Report):
    found = [one for kind in (Kind.PROJECTION, Kind.WALK) for each in book.cases if (one := contest(each, kind))]
    told = headline(book, found)
    # The strongest rivals: ipopt takes 20, 1e2 √101 = 1,005 and 1e2 √202 = 1,421 times as long; two take half as long.
    assert told[0] == (
        "Projections: ours is faster than the strongest rival in 3 of 5 cases; the rival's time is 0.50× to 1,400× "
        "(median 20×) that of ours, and it loses samples in 1 of them."
    )
    assert told[1] == (
        "Projections without a rival to compare with: 2 of 7 cases: rows 697 (ipopt: 27 samples lost); rows 1192 (ipopt: DNF)."
    )
    assert told[2].startswith("Walks: ours is faster than the strongest rival in 1 of 1 cases; the rival's time is 10×")
    assert told[4].startswith(
        "In 9 of 13 comparisons no rival, whatever it loses, takes less time; exceptions: heat (paper)"
    )
    assert "odd, projection (lbfgs)" in told[4]
    assert told[4].endswith(
        "In 13 of 13 comparisons no rival, whatever it loses, gives more lawful answers on any input."
    )
    assert (
        "the fastest published method of each case took 4.1× the time of ours in 1 cases, on other hardware" in told[5]
    )
    assert told[6] == "ours: 608 of 610 samples accepted, no false claims."
    assert told[7] == coverage(book) == "24 of 31 cells have a figure; 2 DNF, 2 FAILED, 2 ABSENT, 1 REFUSED."


def test_rivals_that_are_faster_or_more_often_lawful_are_named_whatever_they_lose(tmp_path: Path):
    cells = [
        projection("odd", "ours", 0.1, verdict(30, lawful=30)),
        projection("odd", "lbfgs", 0.05, verdict(0, lawful=30)),
        projection("odd", "ipopt", 0.2, verdict(0, lawful=31)),
        projection("odd", "madnlp", 0.05, verdict(32), inputs="other arrays"),
    ]
    found = read([folder(tmp_path / "run", paper_suite(), cells)]).cases[0]
    compared = contest(found, Kind.PROJECTION)
    assert compared is not None
    assert (faster(compared), more_lawful(compared)) == (["lbfgs"], ["ipopt"])


def test_ours_without_a_sample_home_claims_no_ratio(tmp_path: Path):
    cells = [projection("odd", "ours", 0.1, verdict(0)), projection("odd", "ipopt", 0.3, verdict(0))]
    assert contest(read([folder(tmp_path / "run", paper_suite(), cells)]).cases[0], Kind.PROJECTION) is None


def test_powers_are_exact_and_take_complete_points_only(book: Report):
    by_kind = {group.kind: group for group in growth.groups(book)}
    of_projection = by_kind[Kind.PROJECTION]
    assert growth.fitted(of_projection.series["ours"]) == pytest.approx(1.5, rel=1e-12)
    ipopt = of_projection.series["ipopt"]
    assert [point.complete for point in ipopt] == [True, True, False]
    assert growth.fitted(ipopt) == pytest.approx(2.0, rel=1e-12)
    table = growth.group_table(of_projection)
    assert table.heads == ("seconds by rows", "101", "202", "697", "1,192", "power")
    assert words(table, "ours") == ["ours", "0.00102", "0.00287", "0.0184", "0.0412", "1.50"]
    assert words(table, "ipopt") == ["ipopt", "1.02", "4.08", "146 (not all converged)", "DNF", "2.00"]
    assert of_projection.published == {}  # published runs are walks


def test_published_lines_stand_with_walks_of_the_same_size(book: Report, tmp_path: Path):
    group = next(group for group in growth.groups(book) if group.kind is Kind.WALK)
    table = growth.group_table(group)
    assert table.heads[1:] == ("101", "202", "301", "697", "1,192", "power")
    assert words(table, "ours")[1:] == ["2.02", "4.04", "–", "13.9", "23.8", "1.00"]
    assert words(table, "JuMP+MadNLP, published")[1:6] == ["155", "346", "DNF", "DNF", "DNF"]
    assert words(table, "L-BFGS, published")[-1] == "–"  # one point has no slope
    others = replace(
        group, cases=tuple(replace(one, cells=tuple(replace(c, samples=8) for c in one.cells)) for one in group.cases)
    )
    assert others.published == {}


def test_curves_say_how_soon_the_median_sample_holds(book: Report):
    table = growth.curve_table(case(book, "heat (paper)"))
    # Violation 10^-i and stationarity 10^(1-i) after i iterations: both are within 1e-5 after six.
    assert words(table, "ours") == ["ours", "6", "0.06", "8", "1.0e-08", "1.0e-07"]
    assert words(table, "ipopt") == ["ipopt", "10", "0.6", "10", "0", "–"]
    assert words(table, "madnlp") == ["madnlp", "ABSENT", *["–"] * 4]


def test_bars_are_of_ours_and_its_strongest_rival(book: Report):
    section = runtimes.split(book)
    assert section is not None
    walks, phases = (block for block in section.blocks if isinstance(block, Bars))
    assert [(bar.name, bar.length) for bar in walks.bars] == [
        ("heat (paper): ours", "6.00 s"), ("heat (paper): ipopt", "60.0 s"), ("waves: ours", "3.00 s"),
    ]  # fmt: skip
    assert dict(walks.bars[0].parts) == {"network": 4.0, "projection": 2.0, "rest": 0.0}
    assert [bar.parts for bar in phases.bars] == [(("residual", 0.01), ("factor", 0.02))]


def test_cells_without_a_figure_are_listed_with_their_reasons(book: Report):
    (table,) = tables(missing(book))
    assert len(table.rows) == 7
    listed = {tuple(one.words for one in row[:4]): row[5].words for row in table.rows}
    assert listed["heat (paper)", "madnlp", "walk", "DNF"] == "600 s were used up after step 7 of 100"
    assert listed["heat (paper)", "gauss-newton", "walk", "FAILED"].startswith("RuntimeError: <b>boom</b>")


def test_no_table_has_an_empty_place_or_a_short_row(book: Report):
    for section in sections(book):
        for table in tables(section):
            for row in table.rows:
                assert len(row) == len(table.heads)
                assert all(one.words for one in row)


def test_a_run_where_nothing_worked_still_makes_every_table(tmp_path: Path):
    states = [CellState.DNF, CellState.FAILED, CellState.ABSENT, CellState.REFUSED]
    cells = [cell("odd", f"m{i}", kind, state) for i, state in enumerate(states) for kind in Kind]
    found = read([folder(tmp_path / "run", paper_suite(), cells)])
    titles = [section.title for section in sections(found)]
    assert titles[0] == "Summary"
    assert titles[-1] == "Cells without a figure"
    for section in sections(found):
        for table in tables(section):
            assert all(len(row) == len(table.heads) for row in table.rows)
    assert coverage(found) == "0 of 12 cells have a figure; 3 DNF, 3 FAILED, 3 ABSENT, 3 REFUSED."


def test_machines_that_differ_are_all_told(book: Report, tmp_path: Path):
    assert ("machine", "processor x86_64, cores 2") in made(book)
    assert ("versions", "snapfm 0.1.0, torch 2.13.0") in made(book)
    assert ("sources", "commit 0123456789ab; 2026-11-18") in made(book)
    held = {
        "processor": "arm",
        "memory_bytes": 8_000_000_000,
        "versions": {"torch": "2.14.0", "pounce-solver": "0.13.0"},
    }
    held |= {"commit": "ba9876543210", "dirty": True, "date": "2026-11-20"}
    other = [replace(one, machine=held) for one in paper_cells()[:1]]
    told = dict(made(read([folder(tmp_path / "run", paper_suite(), [*other, paper_cells()[1]])])))
    assert told["machine 1"] == "processor x86_64, cores 2"  # ours comes first
    assert told["machine 2"] == "processor arm, memory 8.00 GB"
    assert told["versions"] == "snapfm 0.1.0, torch 2.13.0 and 2.14.0, pounce-solver 0.13.0"
    assert told["sources"] == "commit 0123456789ab; commit ba9876543210, with changes; 2026-11-18 to 2026-11-20"


def test_cells_that_the_suite_names_and_nobody_ran_are_told(tmp_path: Path):
    suite = paper_suite()
    suite["cases"][2] |= {
        "title": "The odd one",
        "kinds": ["projection", "walk", "curve"],
        "methods": ["ours", "lbfgs"],
    }
    suite["cases"][1] |= {"kinds": ["walk"]}
    found = read([folder(tmp_path / "run", suite, [projection("odd", "ours", 0.1)])])
    assert found.pending == (
        *(("waves", method, "walk") for method in suite["methods"]),
        ("The odd one", "lbfgs", "projection"), ("The odd one", "ours", "walk"), ("The odd one", "lbfgs", "walk"),
    )  # fmt: skip
    assert coverage(found) == "1 of 1 cells have a figure; 8 more not run yet."
    (table,) = tables(missing(found))
    assert words(table, 5)[:4] == ["The odd one", "lbfgs", "projection", "not run yet"]


def test_methods_are_called_by_the_titles_of_the_catalog(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(books, "METHODS", {"ours": SimpleNamespace(title="Ours, by title")})
    assert (books.title("ours"), books.title("gone")) == ("Ours, by title", "gone")
