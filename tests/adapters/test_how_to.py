"""The snippets of docs/how-to.md on models in front: each runs, and its samples obey their laws."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from snapfm import Samples

PAGE = Path(__file__).parents[2] / "docs" / "how-to.md"
CHAPTER = "Put your model in front"
LONGEST = 20  # lines of a snippet, blank ones and definitions included


def sections() -> dict[str, str]:
    """Give the code of the chapter by heading; the code before its first heading is the chapter's own."""
    (chapter,) = [part for part in PAGE.read_text().split("\n## ") if part.startswith(CHAPTER + "\n")]
    headings = chapter.split("\n### ")
    return {
        part.partition("\n")[0]: "\n".join(re.findall(r"```python\n(.*?)```", part, re.DOTALL)) for part in headings
    }


SECTIONS = sections()


def run(heading: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        exec(compile(SECTIONS[CHAPTER] + SECTIONS[heading], f"how-to.md: {heading}", "exec"), names)
    return names


@pytest.mark.parametrize("heading", [heading for heading in SECTIONS if heading != CHAPTER])
def test_a_snippet_runs_and_its_samples_obey(heading: str):
    code = SECTIONS[heading]
    assert code.strip()
    assert len(code.splitlines()) <= LONGEST
    out = run(heading)["out"]
    assert isinstance(out, Samples)
    assert bool(out.projection.converged.all())
    assert bool(torch.isfinite(out.u).all())


def test_every_kind_of_model_has_its_snippet():
    code = "\n".join(SECTIONS.values())
    kinds = (
        "field_first", "time_first", "flat", "channels", "flow_matching", "torchcfm", "Normalized", "conditioned", "Timesteps",
        "predicts_noise", "predicts_data", "predicts_v", "diffusers", "variance_preserving",
    )  # fmt: skip
    assert [kind for kind in kinds if f"adapters.{kind}" not in code] == []
