"""The bar of sample(progress=True): one line on stderr, nothing on stdout, nothing for those who want none."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.sampling.toys import SAMPLERS, SHAPE, mixed, seeded
from torch import Tensor

from snapfm import sample
from snapfm.errors import ProjectionFailed
from snapfm.sampling.sample import progress_bar

U0 = torch.randn(2, SHAPE[0], generator=seeded(1), dtype=torch.float64)


def decay(u: Tensor, tau: Any) -> Tensor:
    return -u


@pytest.mark.parametrize("name", ["pcfm", "flow", "adaptive", "dflow"])
def test_the_bar_is_one_line_that_ends_with_all_steps(name: str, capsys: pytest.CaptureFixture[str]):
    out = sample(decay, mixed(), {"u0": U0}, 2, 3, seeded(), sampler=SAMPLERS[name], progress=True)
    shown = capsys.readouterr()
    assert shown.out == ""
    (line,) = shown.err.splitlines()
    assert line.startswith("sampling ")
    assert " 3/3 steps " in line
    quiet = sample(decay, mixed(), {"u0": U0}, 2, 3, seeded(), sampler=SAMPLERS[name])
    assert torch.equal(out.u, quiet.u)


def test_steps_are_those_of_the_times(capsys: pytest.CaptureFixture[str]):
    sample(decay, mixed(), {"u0": U0}, 2, 20, seeded(), times=[0, 0.2, 1], progress=True)
    assert " 2/2 steps " in capsys.readouterr().err


@pytest.mark.parametrize("progress", [False, None])
def test_nothing_is_shown_unless_asked_for(progress: bool | None, capsys: pytest.CaptureFixture[str]):
    sample(decay, mixed(), {"u0": U0}, 2, 3, seeded(), progress=progress)
    shown = capsys.readouterr()
    assert shown.out == shown.err == ""


def test_a_run_that_fails_leaves_the_terminal_in_order(capsys: pytest.CaptureFixture[str]):
    def broken(u: Tensor, tau: float) -> Tensor:
        return u * torch.nan

    with pytest.raises(ProjectionFailed):
        sample(broken, mixed(), {"u0": U0}, 2, 3, seeded(), progress=True)
    with progress_bar(True, 4) as report:  # another bar can be shown
        assert report is not None
        report(1, 4)
    assert " 1/4 steps " in capsys.readouterr().err.splitlines()[-1]
