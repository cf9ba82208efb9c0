"""A heat problem on a small, asymmetric grid, and a network for it that was never trained: its fields are lawful all the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import snapfm
from snapfm_bench.files import SampleRecipe
from snapfm_bench.flow import Checkpoint, FNOVelocity, NetworkSettings, save_checkpoint

GRID: dict[str, Any] = {"nx": 9, "nt": 7}
PROBLEM = "heat-ic-mass-implicit"  # laws read u0 and, drawn per sample, alpha


def write_model(folder: Path, problem: str = PROBLEM, seed: int = 0, **settings: Any) -> Path:
    """Save a small network for a problem's grid."""
    chosen = snapfm.problem(problem, **(settings or GRID))
    shape = chosen.grid.shape
    sizes = NetworkSettings(
        shape, (4,) * len(shape), width=6, layers=2, lifting=6, projection=7, embedding=8, predicts="data"
    )
    network = FNOVelocity(sizes, seed=seed)
    save_checkpoint(folder, Checkpoint(network, chosen.grid, chosen.equation, "tiny", {"steps": 0}))
    return folder


def recipe(model: Path, **more: Any) -> SampleRecipe:
    """Ask for 23 samples in blocks of 5, the last of them short."""
    plain = {"problem": PROBLEM, "count": 23, "model": model, "steps": 3, "seed": 3, "batch": 5, "settings": GRID}
    return SampleRecipe(**plain | more)
