import pytest

from snapfm.errors import ShapeError, UnknownName
from snapfm_bench.flow import PRESETS, FNOVelocity, FrameSettings, FrameVelocity, network_of, preset


def test_paper_preset_is_that_of_the_paper() -> None:
    settings = preset("paper", (101, 101))
    assert (settings.modes, settings.width, settings.layers) == ((32, 32), 64, 4)
    assert (settings.lifting, settings.projection, settings.embedding) == (256, 256, 32)
    assert settings.predicts == "velocity"


@pytest.mark.parametrize("name", ["paper", "small"])
def test_modes_never_exceed_the_grid(name: str) -> None:
    settings = preset(name, (7, 100))
    assert settings.modes[0] == settings.cells[0]
    assert len(preset(name, [16, 16, 50]).modes) == 3


def test_the_frame_reads_both_conditions_of_a_line_and_the_initial_state_of_a_square() -> None:
    line, square = preset("frame", (101, 101)), preset("frame", (16, 16, 50))
    assert isinstance(line, FrameSettings)
    assert isinstance(square, FrameSettings)
    assert (line.anchors, square.anchors) == ((-1, 0), (-1,))
    with pytest.raises(ShapeError, match=r"expects a shape of 2 or 3 axes; got \(4,\)\. Give FrameSettings"):
        preset("frame", (4,))


def test_the_latent_network_sees_coefficients_alone() -> None:
    line, square = preset("latent", (101, 101)), preset("latent", (16, 16, 50))
    assert isinstance(line, FrameSettings)
    assert isinstance(square, FrameSettings)
    assert (line.anchors, square.anchors) == ((), ())
    assert (line.filtered, square.filtered) == (True, True)
    assert (line.separable, square.separable) == (False, True)
    with pytest.raises(ShapeError, match=r"expects a shape of 2 or 3 axes; got \(4,\)\. Give FrameSettings"):
        preset("latent", (4,))


def test_every_preset_has_a_network() -> None:
    kinds = {name: type(network_of(preset(name, (12, 20)), seed=0)) for name in PRESETS}
    assert kinds == {"frame": FrameVelocity, "latent": FrameVelocity, "paper": FNOVelocity, "small": FNOVelocity}


def test_unknown_presets_and_shapes_are_refused() -> None:
    with pytest.raises(
        UnknownName, match=r"expects one of \['frame', 'latent', 'paper', 'small'\]; got 'huge'\. Choose"
    ):
        preset("huge", (4, 4))
    with pytest.raises(ShapeError, match=r"expects a shape of 2 or 3 axes; got \(4,\)\. Give NetworkSettings"):
        preset("small", (4,))
