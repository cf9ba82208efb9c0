"""A suite small enough for tests, and a velocity that needs no weights."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from snapfm_bench.suites.quality.suite import QualitySuite, load_suite

SUITE = """
title = "Tiny"
samples = 3
truth = 6
steps = 2
bootstrap = 10

[tasks.heat]
title = "Heat"
problem = "heat-ic-mass"
model = "toy"
settings = {{ nx = 12, nt = 9 }}

[tasks.flow-past]
title = "Navier–Stokes"
problem = "navier-stokes-ic-mass"
model = "toy"
settings = {{ size = 4, nt = 3, resolution = 8 }}

[samplers.flow]
title = "Flow"
kind = "Flow"

[samplers.pcfm]
title = "PCFM"
kind = "PCFM"
{more}
"""


class Still(nn.Module):
    """Leads every state to zero: v = −u / (1 − τ), which ends there in Euler steps."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones((), dtype=torch.float64), requires_grad=False)

    def forward(self, u: Tensor, tau: float) -> Tensor:
        return -self.scale * u / (1.0 - tau)


def suite_file(folder: Path, more: str = "", name: str = "tiny", **changes: str) -> Path:
    text = SUITE.format(more=more)
    for old, new in changes.items():
        text = text.replace(old, new)
    file = folder / f"{name}.toml"
    file.write_text(text, encoding="utf-8")
    return file


def tiny(folder: Path, more: str = "", name: str = "tiny", **changes: str) -> QualitySuite:
    return load_suite(str(suite_file(folder, more, name, **changes)))
