"""Pictures of fields in any number of dimensions, of violations, of spread and of patterns."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

from snapfm import Bounds, Equality, Projector, Samples, plot, sample
from snapfm.errors import MissingDependency, SettingError, ShapeError
from snapfm.plot import canvas
from snapfm.plot.fields import Views

figure = pytest.importorskip("matplotlib.figure")


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def fields(*shape: int) -> torch.Tensor:
    return torch.randn(6, *shape, generator=seeded())


def images(drawn: Any) -> list[Any]:
    return [axes.images[0] for axes in drawn.axes if axes.images]


@pytest.fixture(scope="module")
def project() -> Projector:
    laws = [Equality("mass", lambda u, p: u.sum(0) - 1.0), Equality("first", lambda u, p: u[0]), Bounds(lower=-3.0)]
    return Projector(laws, (5, 7))


# Fields.


def test_curves_of_one_axis():
    before = fields(9)
    drawn = plot.fields(before + 1.0, before, dims=["x"])
    assert isinstance(drawn, figure.Figure)
    assert [axes.get_title(loc="left") for axes in drawn.axes] == ["sample 0", "sample 1", "sample 2", "sample 3"]
    first, last = (line.get_ydata() for line in drawn.axes[2].lines)
    assert np.array_equal(first, before[2].numpy())
    assert np.array_equal(last, before[2].numpy() + 1.0)
    assert drawn.axes[0].get_xlabel() == "x"
    assert drawn.axes[0].get_ylim() == drawn.axes[3].get_ylim()


def test_images_of_two_axes_before_after_and_the_change():
    before, after = fields(5, 7), fields(5, 7) * 2
    drawn = plot.fields(after, before, count=2, dims=("x", "t"))
    shown = images(drawn)
    assert len(shown) == 6
    for place, wanted in enumerate(
        (before[0], before[1], after[0], after[1], (after - before)[0], (after - before)[1])
    ):
        assert np.allclose(shown[place].get_array(), wanted.numpy())
    assert shown[0].get_clim() == shown[3].get_clim() != shown[4].get_clim()
    panels = [axes for axes in drawn.axes if axes.images]
    assert (panels[4].get_xlabel(), panels[4].get_ylabel()) == ("t", "x")


def test_slices_of_three_axes_have_the_second_upwards():
    field = fields(4, 5, 9)
    drawn = plot.fields(field, dims=("x", "y", "t"))
    shown = images(drawn)
    assert [axes.get_title(loc="left") for axes in drawn.axes if axes.images] == [
        "t = 0", "t = 3", "t = 5", "t = 8",
    ]  # fmt: skip
    assert np.array_equal(shown[1].get_array(), field[0, :, :, 3].numpy().T)
    two = plot.fields(field, field, count=2)
    assert len(images(two)) == 2 * 3 * 4
    labels = [text.get_text() for axes in two.axes for text in axes.texts]
    assert labels == [f"sample {i}, {what}" for i in (0, 1) for what in ("before", "after", "change")]


def test_four_axes_are_cut_in_the_middle_of_those_between():
    field = fields(3, 4, 6, 2)
    drawn = plot.fields(field, dims=("x", "y", "z", "t"))
    assert [axes.get_title(loc="left") for axes in drawn.axes if axes.images] == ["z = 3, t = 0", "z = 3, t = 1"]
    assert np.array_equal(images(drawn)[1].get_array(), field[0, :, :, 3, 1].numpy().T)


@pytest.mark.parametrize(("channels", "shape"), [(0, (2, 5, 7)), (-1, (5, 7, 2)), (1, (5, 2, 7))])
def test_components_have_rows_and_scales_of_their_own(channels: int, shape: tuple[int, ...]):
    field = fields(*shape)
    field.select(channels % 3 + 1, 1).mul_(100)
    drawn = plot.fields(field, count=3, channels=channels)
    shown = images(drawn)
    assert len(shown) == 6
    assert np.array_equal(shown[4].get_array(), field.select(channels % 3 + 1, 1)[1].numpy())
    assert shown[0].get_clim()[1] < 0.1 * shown[3].get_clim()[1]


def test_components_of_curves():
    drawn = plot.fields(fields(2, 9), channels=0)
    assert len(drawn.axes) == 8


def test_results_arrays_and_single_fields(project: Projector):
    u = fields(5, 7)
    found = project(u)
    for one in (found, found.u, found.u.numpy()):
        assert np.array_equal(images(plot.fields(one, u))[4].get_array(), found.u[0].numpy())
    assert len(images(plot.fields(u[:1]))) == 1
    assert len(images(plot.fields(torch.zeros(2, 3, 4), torch.zeros(2, 3, 4)))) == 6  # constant fields have a scale too
    lost = u.clone()
    lost[0] = torch.nan
    assert len(images(plot.fields(lost))) == 4


# Spread.


def test_mean_and_spread_of_planes_beside_the_truth():
    u, truth = fields(5, 7), fields(5, 7) * 3
    drawn = plot.spread(u, truth, dims=("x", "t"))
    shown = images(drawn)
    for place, wanted in enumerate((truth.mean(0), u.mean(0), truth.std(0, correction=0), u.std(0, correction=0))):
        assert np.allclose(shown[place].get_array(), wanted.numpy(), atol=1e-6)
    assert shown[0].get_clim() == shown[1].get_clim()
    assert len(images(plot.spread(u))) == 2


def test_bands_of_curves_and_slices_of_space():
    u = fields(9)
    drawn = plot.spread(u, u + 1)
    assert np.allclose(drawn.axes[0].lines[1].get_ydata(), u.mean(0).numpy(), atol=1e-6)
    assert len(drawn.axes[0].collections) == 2
    assert len(images(plot.spread(fields(4, 5, 6)))) == 8
    assert len(images(plot.spread(fields(2, 4, 5), channels=0))) == 4


# Violations and patterns.


def test_violations_before_and_after(project: Projector):
    u = fields(5, 7)
    u[1] = torch.nan
    found = project(u)
    drawn = plot.violation(found, project.check(u))
    (axes,) = drawn.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["mass", "first", "bounds"]
    assert axes.get_xscale() == "log"
    lines = [line for line in axes.lines if line.get_marker() == "o"]
    before = lines[0].get_xdata()
    assert len(before) == 5  # one is not a number
    assert np.allclose(np.sort(before), np.sort(project.check(u).by_law["mass"].numpy()[[0, 2, 3, 4, 5]]))
    assert any("1 not finite" in text.get_text() for text in axes.texts)
    assert any(np.allclose(line.get_xdata(), found.tolerance) for line in axes.lines)


def test_violations_of_samples_and_mappings(project: Projector):
    out = sample(lambda u, tau: -u, project, count=3, steps=2, seed=0)
    assert isinstance(out, Samples)
    assert plot.violation(out).axes
    assert plot.violation({"mass": torch.zeros(3)}).axes  # exact zeros have a place
    free = sample(lambda u, tau: -u, None, count=3, steps=2, seed=0, shape=(5, 7))
    with pytest.raises(SettingError, match=r"got samples without a certificate\. Pass a Projection"):
        plot.violation(free)
    with pytest.raises(SettingError, match=r"got int\. Pass a Projection"):
        plot.violation(3)  # type: ignore[arg-type]


def test_patterns_of_projectors_and_structures(project: Projector):
    for one in (project, project.structure):
        drawn = plot.pattern(one, "mine")
        assert drawn.axes[0].get_title(loc="left") == "mine: where the Jacobian can be non-zero"
    labels = [text.get_text() for text in drawn.legends[0].get_texts()]
    assert labels == ["mass: 7 rows, 35 non-zeros", "first: 7 rows, 7 non-zeros"]


# What a notebook shows, and what is refused.


def test_a_figure_shows_itself_in_a_notebook():
    assert plot.fields(fields(3, 4))._repr_png_().startswith(b"\x89PNG")  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: plot.fields(torch.zeros(5)), r"expects a batch of fields \(b, \*shape\).*got shape \(5,\).*u\[None\]"),
        (
            lambda: plot.fields(torch.zeros(2, 3, dtype=torch.complex64)),
            r"real numbers; got .*complex64.*show the parts",
        ),
        (lambda: plot.fields(torch.zeros(2, 3), torch.zeros(2, 4)), r"two batches of one shape; got \(2, 1, 3\) and"),
        (
            lambda: plot.fields(torch.zeros(2, 3, 4), channels=2),
            r"\(channels\) expects the axis of ONE field .*0 to 1; got 2",
        ),
        (
            lambda: plot.fields(torch.zeros(2, 3, 4), dims=["x"]),
            r"\(dims\) expects a name for each of 2 axes .*got \['x'\]",
        ),
        (
            lambda: plot.spread(torch.zeros(2, 3), torch.zeros(2, 4)),
            r"expects fields of one shape; got .*Bring them to one",
        ),
    ],
)
def test_wrong_calls_are_told_in_three_parts(call: Any, words: str):
    with pytest.raises(ShapeError, match=words):
        call()


def test_without_matplotlib_the_message_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingDependency, match=r"matplotlib is needed for pictures; .* pip install 'snapfm\[plot\]'"):
        plot.fields(fields(3))


def test_settings_and_backend_of_the_caller_are_left_alone():
    import matplotlib

    with matplotlib.rc_context({"font.size": 30}):
        before = dict(matplotlib.rcParams)
        plot.violation({"mass": torch.ones(3)})
        assert dict(matplotlib.rcParams) == before
    code = "import sys, torch, snapfm; snapfm.plot.fields(torch.ones(1, 3)); print('matplotlib.pyplot' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_one_slice_is_the_last_state():
    views = Views(("x", "y", "t"), (2, 3, 4), slices=1)
    field = np.arange(24.0).reshape(2, 3, 4)
    assert views.titles == [""]
    assert np.array_equal(views.planes(field)[0], field[:, :, -1].T)


def test_scales_are_white_at_zero_for_both_signs():
    assert canvas.scale(np.array([-1.0, 2.0]))["cmap"] == canvas.DIVERGING
    assert canvas.scale(np.array([0.0, 2.0])) == {"cmap": canvas.SEQUENTIAL, "vmin": 0.0, "vmax": 2.0}


def test_names_of_rows_do_not_run_into_each_other():
    drawn = plot.fields(fields(2, 4, 5), fields(2, 4, 5), count=2, channels=0)
    drawn.draw_without_rendering()
    labels = [text for axes in drawn.axes for text in axes.texts if text.get_text().startswith("component")]
    boxes = sorted((label.get_window_extent() for label in labels), key=lambda box: box.y0)
    assert len(boxes) == 6
    assert all(below.y1 < above.y0 for below, above in pairwise(boxes))
    assert all(box.x0 >= 0 for box in boxes)


def test_violations_that_rounding_explains_have_a_line_of_their_own(project: Projector):
    def lines(result: Any) -> list[str]:
        return [line.get_label() for line in plot.violation(result).axes[0].lines]

    rough = project(fields(5, 7))
    assert bool(rough.converged.all())
    assert "tolerance + rounding to float32" in lines(rough)
    assert not any("rounding" in label for label in lines(project(fields(5, 7).double())))


@pytest.mark.parametrize("count", [0, -1, 1.5])
def test_a_number_of_fields_that_cannot_be_drawn_is_refused(count: Any):
    with pytest.raises(ShapeError, match=r"plot.fields\(count\) expects how many fields to draw"):
        plot.fields(fields(4), count=count)


@pytest.mark.parametrize("laws", [[Equality("mass", lambda u, p: u.sum())], "mass", None])
def test_a_pattern_of_something_else_is_refused(laws: Any):
    with pytest.raises(SettingError, match=r"plot.pattern\(laws\) expects a Projector or compiled laws; got"):
        plot.pattern(laws)
