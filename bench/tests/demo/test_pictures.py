from __future__ import annotations

import struct
from dataclasses import replace

import matplotlib
import numpy as np

from snapfm_bench.demo.pictures import CURVES_PIXELS, DRIFT_PIXELS, FIELDS_PIXELS, HERO_PIXELS, hero, pictures
from snapfm_bench.demo.record import Evidence


def _size(png: bytes) -> tuple[int, int]:
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    assert png.endswith(b"IEND\xaeB\x60\x82")
    width, height = struct.unpack(">II", png[16:24])
    return width, height


def test_hero_is_a_png_of_its_size_and_the_same_twice(evidence: Evidence):
    picture = hero(evidence)
    assert _size(picture) == HERO_PIXELS
    assert hero(evidence) == picture


def test_pictures_of_the_page_have_their_sizes(evidence: Evidence):
    sizes = {name: _size(png) for name, png in pictures(evidence).items()}
    assert sizes.pop("violations")[0] == 1200
    assert sizes == {
        "fields": FIELDS_PIXELS, "initial": CURVES_PIXELS, "mass": CURVES_PIXELS, "drift": DRIFT_PIXELS, "shocks": FIELDS_PIXELS,
    }  # fmt: skip


def test_one_sample_is_enough(evidence: Evidence):
    scenes = {
        name: replace(scene, fields={run: values[:1] for run, values in scene.fields.items()})
        for name, scene in (("heat", evidence.heat), ("burgers", evidence.burgers))
    }
    mass = {run: values[:1] for run, values in evidence.mass.items()}
    one = replace(evidence, initial=evidence.initial[:1], target_mass=evidence.target_mass[:1], mass=mass, **scenes)
    assert _size(hero(one)) == HERO_PIXELS
    assert _size(pictures(one)["fields"]) == FIELDS_PIXELS


def test_masses_that_are_exactly_right_can_be_drawn_on_the_logarithmic_axis(evidence: Evidence):
    flat = np.tile(evidence.target_mass[:, None], (1, len(evidence.heat.t)))
    assert _size(pictures(replace(evidence, mass={"free": flat, "lawful": flat}))["drift"]) == DRIFT_PIXELS


def test_settings_of_the_caller_neither_leak_in_nor_out(evidence: Evidence):
    plain = hero(evidence)
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "red"}):
        before = dict(matplotlib.rcParams)
        assert hero(evidence) == plain
        assert dict(matplotlib.rcParams) == before
