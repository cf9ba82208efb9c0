from __future__ import annotations

import struct
from dataclasses import replace

import matplotlib
import numpy as np

from snapfm.evidence.demo.pictures import CURVES_PIXELS, DRIFT_PIXELS, FIELDS_PIXELS, HERO_PIXELS, hero, panels
from snapfm.evidence.demo.record import Evidence


def _size(png: bytes) -> tuple[int, int]:
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    assert png.endswith(b"IEND\xaeB\x60\x82")
    width, height = struct.unpack(">II", png[16:24])
    return width, height


def test_hero_is_a_png_of_its_size_and_the_same_twice(evidence: Evidence):
    picture = hero(evidence)
    assert _size(picture) == HERO_PIXELS
    assert hero(evidence) == picture


def test_panels_come_in_pairs_of_one_size(evidence: Evidence):
    drawn = panels(evidence)
    for pair, size in ((drawn.fields, FIELDS_PIXELS), (drawn.initial, CURVES_PIXELS), (drawn.mass, CURVES_PIXELS)):
        assert {run: _size(png) for run, png in pair.items()} == {"free": size, "lawful": size}
        assert pair["free"] != pair["lawful"]
    assert _size(drawn.drift) == DRIFT_PIXELS


def test_one_sample_is_enough(evidence: Evidence):
    batched = ("free", "lawful", "initial", "free_mass", "lawful_mass", "target_mass")
    one = replace(evidence, **{name: getattr(evidence, name)[:1] for name in batched})
    assert _size(hero(one)) == HERO_PIXELS
    assert _size(panels(one).fields["free"]) == FIELDS_PIXELS


def test_masses_that_are_exactly_right_can_be_drawn_on_the_logarithmic_axis(evidence: Evidence):
    flat = np.tile(evidence.target_mass[:, None], (1, len(evidence.t)))
    assert _size(panels(replace(evidence, free_mass=flat, lawful_mass=flat)).drift) == DRIFT_PIXELS


def test_settings_of_the_caller_neither_leak_in_nor_out(evidence: Evidence):
    plain = hero(evidence)
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "red"}):
        before = dict(matplotlib.rcParams)
        assert hero(evidence) == plain
        assert dict(matplotlib.rcParams) == before
