"""--engine and the options of its workers: what they build and what they refuse."""

from __future__ import annotations

from typing import Any

import pytest

from snapfm.cli.engines import engine_of
from snapfm.errors import SettingError, UnknownName
from snapfm.runs import Here, OnRay, Share

PLAIN: dict[str, Any] = {"part": None, "workers": None, "cpus": 1.0, "gpus": 0.0, "resources": None}


def test_engines_are_built_from_options() -> None:
    assert engine_of("here", **PLAIN) == Here()
    assert engine_of("here", **PLAIN | {"part": "2/3"}) == Here(Share(2, 3))
    built = engine_of("ray", **PLAIN | {"workers": 5, "cpus": 2.0, "gpus": 0.5, "resources": ["tpu=1", "fast=0.25"]})
    assert isinstance(built, OnRay)
    assert (built.workers, built.cpus, built.gpus, built.threads) == (5, 2.0, 0.5, 2)
    assert built.resources == {"tpu": 1.0, "fast": 0.25}


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("moon", {}, r"--engine expects one of \['here', 'ray'\]; got 'moon'\."),
        ("here", {"workers": 3}, r"--workers, --cpus, --gpus and --resource expect --engine ray; got --engine here\."),
        ("here", {"gpus": 1.0}, r"expect --engine ray; got --engine here\. Leave them out, or add it"),
        ("ray", {"part": "1/2"}, r"--part expects --engine here; got --engine ray, which computes all parts\."),
        ("ray", {"resources": ["tpu"]}, r"--resource expects NAME=AMOUNT; got 'tpu'\. Write it as in --resource tpu=1"),
        ("ray", {"resources": ["tpu=many"]}, r"--resource expects NAME=AMOUNT; got 'tpu=many'\."),
    ],
)
def test_options_that_do_not_fit_are_refused(name: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises((SettingError, UnknownName), match=words):
        engine_of(name, **PLAIN | options)
