"""Recipe: what a caller asks of a file of samples, and the model it is drawn with.

Recipe, model weights and machine together decide every bit of the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from snapfm.errors import CheckpointError, UnknownName
from snapfm.files.layout import Source
from snapfm.files.requests import DtypeName, check_recipe
from snapfm.grid import Grid
from snapfm.solve.base import OnFailure
from snapfm.text import meant
from snapfm_bench.flow import Checkpoint, VelocityNetwork, default_model, load_checkpoint, shipped_names
from snapfm_bench.flow.checkpoint import MODEL
from snapfm_bench.flow.storage import read_json
from snapfm_bench.problems import Problem, problem


@dataclass(frozen=True)
class SampleRecipe:
    """Which samples a file holds: sample i is drawn from (seed, i), its params and its noise.

    `model` is the name of a shipped model or the folder of a checkpoint; None is the default one shipped for the problem's
    equation. `batch` samples go through the network at once and are one block of the file. Rounding in networks depends on
    the batch size, so the last block is drawn in full too: the bits of sample i do not depend on the count. A count below
    the batch replaces it. `threads` are those of the network; None uses torch's current number.
    """

    problem: str
    count: int
    model: str | Path | None = None
    steps: int = 20
    seed: int = 0
    batch: int = 32
    tolerance: float = 1e-8
    dtype: DtypeName = "float64"
    settings: Mapping[str, Any] = field(default_factory=dict)
    threads: int | None = None

    def __post_init__(self) -> None:
        check_recipe("sample", self)

    def build(self) -> Problem:
        """Build the problem, refusing unknown names and settings."""
        return problem(self.problem, **self.settings)

    def source(self, on_failure: OnFailure) -> Source:
        """Return what draws the samples."""
        from snapfm_bench.files.sampled import Sampled  # which imports this module

        return Sampled(self, on_failure)


@dataclass(frozen=True)
class RecipeModel:
    """A velocity network, identified by the checksum of its weights and its settings."""

    name: str
    sha256: str
    training: str  # as Checkpoint.training says it
    settings: Mapping[str, Any]
    network: VelocityNetwork


def find_model(model: str | Path | None, problem: Problem) -> RecipeModel:
    """Load a shipped model by name, a checkpoint by folder, or for None the default model shipped for the problem's equation.

    Refuses models of another equation or another grid.
    """
    if model is None:
        model = default_model(problem.equation)
        if model not in shipped_names():
            raise UnknownName(
                f"sample(model) expects a model for '{problem.name}'; none is shipped for {problem.equation}, only "
                f"{shipped_names()}. Train one with `snapfm train {problem.name}`, and give its folder as model."
            )
    if isinstance(model, str) and model in shipped_names():
        with as_file(files("snapfm_bench") / "models" / model) as folder:
            return _load(folder, model, problem)
    folder = Path(model)
    if not folder.is_dir():
        raise UnknownName(
            f"sample(model) expects one of {shipped_names()} or the folder of a checkpoint; got '{model}', which is "
            f"neither. {meant(model, shipped_names())}Check the path; `snapfm train` writes a checkpoint to FOLDER/model."
        )
    return _load(folder, folder.resolve().name, problem)


def located(model: str | Path | None) -> str | Path | None:
    """Return a model's name, or its folder in a form that is valid in any other folder."""
    return model if model is None or (isinstance(model, str) and model in shipped_names()) else Path(model).absolute()


def _load(folder: Path, name: str, problem: Problem) -> RecipeModel:
    checkpoint = load_checkpoint(folder)
    _check_fit(checkpoint, name, problem)
    about = read_json(folder / MODEL)
    return RecipeModel(name, about["weights"]["sha256"], checkpoint.training, about["network"], checkpoint.network)


def _check_fit(checkpoint: Checkpoint, name: str, problem: Problem) -> None:
    if checkpoint.equation != problem.equation:
        raise CheckpointError(
            f"sample(model) expects a model of {problem.equation} for '{problem.name}'; got '{name}', one of "
            f"{checkpoint.equation}. Leave model out for the shipped one, or give another."
        )
    if checkpoint.grid != problem.grid:
        raise CheckpointError(
            f"sample(model) expects a model for the grid of '{problem.name}', {_words(problem.grid)}; '{name}' was trained "
            f"on {_words(checkpoint.grid)}. Set the problem's grid to that of the model, or give the folder of another one."
        )


def _words(grid: Grid) -> str:
    return ", ".join(f"{axis.name}: {axis.size} points in [{axis.start:g}, {axis.stop:g}]" for axis in grid.axes)
