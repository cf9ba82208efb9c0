"""A run computes with a number of threads of its own; that of the process stays as it is."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from snapfm.files.layout import Drawn
from snapfm.files.stream import Fields


@pytest.mark.parametrize("more", [0, 1, None])
def test_the_threads_of_a_run_are_not_those_of_the_process(
    more: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, seen = torch.get_num_threads(), list[int]()

    def draw(start: int, stop: int, report: object) -> Drawn:
        seen.append(torch.get_num_threads())
        return Drawn({}, {})

    threads = None if more is None else before + more
    plan = Fields(SimpleNamespace(count=2, block=1, threads=threads, draw=draw), None)  # type: ignore[arg-type]
    monkeypatch.setattr(plan, "_store", lambda block, values: None)
    monkeypatch.setattr(torch, "set_num_threads", lambda number: pytest.fail("changes the whole process"))
    plan.compute(1, lambda share: None)
    assert seen == [before + (more or 0)]
    assert torch.get_num_threads() == before
