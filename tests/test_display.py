"""How results show themselves: short in a terminal, as a table in a notebook."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
import torch

from snapfm import Bounds, Equality, Metric, Projection, Projector, Samples, Spread, sample
from snapfm.display import WIDTH, Sheet
from tests.reader import Reader

SHAPE = (30, 40)
LAWS = [
    Equality("initial", lambda u, p: u[:, 0] - p["u0"]),
    Equality("mass & <energy>", lambda u, p: u[:, 1:].sum(0) - p["u0"].sum()),
    Bounds(lower=-5.0),
]
PARAMS = {"u0": torch.linspace(0.0, 1.0, 30)[None]}


@pytest.fixture(scope="module")
def project() -> Projector:
    return Projector(LAWS, SHAPE, PARAMS)


@pytest.fixture(scope="module")
def projection(project: Projector) -> Projection:
    u = torch.randn(16, *SHAPE, generator=torch.Generator().manual_seed(0))
    u[3, 0, 0] = torch.nan
    return project(u, PARAMS)


@pytest.fixture(scope="module")
def samples(project: Projector) -> Samples:
    return sample(lambda u, tau: -u, project, PARAMS, count=5, steps=3, seed=0)


def test_a_projection_is_a_line(projection: Projection):
    shown = repr(projection)
    assert shown.startswith("Projection(16 fields of 30×40, float32: 15 CONVERGED, 1 NONFINITE; violation at most ")
    assert "\n" not in shown
    assert len(shown) < 150


def test_a_printed_projection_has_a_line_for_each_law(projection: Projection):
    text = str(projection).splitlines()
    assert text[0] == "Projection of 16 fields of 30×40, float32: 15 CONVERGED, 1 NONFINITE"
    assert text[1].split() == ["law", "largest", "violation", "median"]
    assert [line.split("  ")[1].strip() for line in text[2:5]] == ["initial", "mass & <energy>", "bounds"]
    assert any(line.startswith("tolerance 1e-08; stationarity at most") for line in text)
    assert max(map(len, text)) <= WIDTH


def test_samples_say_where_their_time_went(samples: Samples):
    assert repr(samples).startswith("Samples(5 fields of 30×40, float32: 5 converged; ")
    for words in ("velocity ", "projection ", "other "):
        assert words in repr(samples)
        assert words in str(samples)
    assert str(samples).startswith("Samples: 5 fields of 30×40, float32: 5 CONVERGED\n")
    free = sample(lambda u, tau: -u, None, count=1, steps=1, seed=0, shape=(4,))
    assert repr(free).startswith("Samples(1 field of 4, float32: no certificate; ")
    assert "not certified" in str(free)
    assert "1 call of the network" in str(free)


def test_notebooks_get_tables_with_all_text_escaped(project: Projector, projection: Projection, samples: Samples):
    for one in (projection, samples, project.structure):
        reader = Reader(one._repr_html_())
        assert reader.open == []
        assert "table" in reader.tags
        assert "energy" not in reader.tags
        assert "mass & <energy>" in reader.text
        assert not {"script", "style", "link"} & reader.tags


def test_other_objects_are_short(project: Projector):
    assert repr(project) == "Projector(initial, mass & <energy>, bounds; fields of 30×40, tolerance 1e-08)"
    assert repr(project.structure) == "CompiledLaws(30×40 field, 69 rows of 2 laws)"
    drawn = torch.randn(40, *SHAPE, generator=torch.Generator().manual_seed(1))
    assert len(repr(Spread.of_fields(drawn, rank=6))) < 400
    assert "directions=<2×30×40, float32>" in repr(Metric(1.0, drawn[:2], torch.ones(2)))
    assert repr(project.move(drawn[:2], PARAMS)) == "Moved(2 fields of 30×40, float32)"


def test_one_sample_that_is_not_a_number_hides_the_largest_violation_and_not_the_typical_one(projection: Projection):
    lost = replace(projection, by_law={"mass": torch.tensor([torch.nan, 1.0, 2.0, 3.0])})
    assert str(lost).splitlines()[2].split() == ["mass", "nan", "2.0e+00"]


def test_nothing_to_show_is_shown(projection: Projection):
    none = {one.name: getattr(projection, one.name)[:0] for one in fields(projection) if one.type == "Tensor"}
    empty = replace(projection, by_law={law: sizes[:0] for law, sizes in projection.by_law.items()}, **none)
    assert "no samples" in repr(empty)
    assert str(empty)
    assert empty._repr_html_()


def test_a_sheet_cuts_names_and_wraps_sentences():
    long = "a name that is far too long for the first column of a table in a terminal"
    sheet = Sheet("title", ("law", "figure"), [(long, "1"), ("short", "1234567890" * 3)], ["word " * 40])
    text = sheet.text().splitlines()
    assert max(map(len, text)) <= WIDTH
    assert "…" in text[2]
    assert long in sheet.html()
    assert np.all([line.startswith("  ") for line in text[5:]])


def test_a_judgement_shows_laws_not_tensors(project: Projector):
    judged = project.check(torch.ones(3, *SHAPE), {"u0": torch.zeros(1, SHAPE[0])})
    assert repr(judged).startswith("Judgement(3 fields; violation at most ")
    lines = str(judged).splitlines()
    assert lines[0] == "Judgement of 3 fields, as they are"
    assert lines[1].split() == ["law", "largest", "violation", "median"]
    assert all(line.strip().startswith(name) for line, name in zip(lines[2:], judged.by_law, strict=True))
    assert "<table>" in judged._repr_html_()
