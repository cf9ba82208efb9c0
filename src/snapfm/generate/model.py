"""The model a file is drawn with: found by name, by folder or by the problem's equation, and fitted to the problem."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from snapfm.errors import CheckpointError, UnknownName
from snapfm.flow import Checkpoint, VelocityNetwork, load_checkpoint, shipped_names
from snapfm.flow.checkpoint import MODEL
from snapfm.flow.storage import read_json
from snapfm.grid import Grid
from snapfm.problems import Problem


@dataclass(frozen=True)
class Model:
    """A velocity network and what tells it from others: the checksum of its weights and its settings."""

    name: str
    sha256: str
    settings: Mapping[str, Any]
    network: VelocityNetwork


def find_model(model: str | Path | None, problem: Problem) -> Model:
    """Load a shipped model by name, a checkpoint by folder, or for None the shipped model of the problem's equation.

    Refuses models of another equation or another grid.
    """
    if model is None:
        model = f"{problem.equation}-small"
        if model not in shipped_names():
            raise UnknownName(
                f"sample(model) expects a model for '{problem.name}'; none is shipped for {problem.equation}, only "
                f"{shipped_names()}. Train one with `snapfm train {problem.name}`, and give its folder as model."
            )
    if isinstance(model, str) and model in shipped_names():
        with as_file(files("snapfm") / "models" / model) as folder:
            return _load(folder, model, problem)
    folder = Path(model)
    if not folder.is_dir():
        raise UnknownName(
            f"sample(model) expects one of {shipped_names()} or the folder of a checkpoint; got '{model}', which is "
            "neither. Check the path; `snapfm train` writes a checkpoint to FOLDER/model."
        )
    return _load(folder, folder.resolve().name, problem)


def _load(folder: Path, name: str, problem: Problem) -> Model:
    checkpoint = load_checkpoint(folder)
    _check_fit(checkpoint, name, problem)
    about = read_json(folder / MODEL)
    return Model(name, about["weights"]["sha256"], about["network"], checkpoint.network)


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
