"""`snapfm train`: simulate a problem's fields, train a velocity network on them, write checkpoint and record."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

import snapfm.flow as flow
from snapfm.cli.options import ProblemName, check_folder
from snapfm.errors import CheckpointError, ShapeError, require
from snapfm.flow.checkpoint import RECORD
from snapfm.flow.presets import FRAME_TRAINING
from snapfm.flow.quality import quality
from snapfm.flow.run import check_run, identify_run, saved_step
from snapfm.flow.storage import read_json
from snapfm.problems import problem as build
from snapfm.problems.training import TRAINING_SETS, table


def train(
    problem: ProblemName,
    out: Annotated[
        Path,
        typer.Option(metavar="FOLDER", help="Where states to resume from go, and the checkpoint, as model/."),
    ],
    preset: Annotated[
        str, typer.Option(help="Network: small or frame, for two cores, or paper, which wants a GPU.")
    ] = "small",
    seed: Annotated[int, typer.Option(min=0, help="Seed of data, weights, batches and noise.")] = 0,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Number of training steps.", show_default="by equation")
    ] = None,
    batch: Annotated[int, typer.Option(min=1, help="Fields per step; the frame is quick and likes 64.")] = 16,
    rows: Annotated[
        int | None, typer.Option(min=1, help="Initial states to simulate.", show_default="by equation")
    ] = None,
    columns: Annotated[
        int | None, typer.Option(min=1, help="Fields to simulate from each of them.", show_default="by equation")
    ] = None,
    learning_rate: Annotated[float, typer.Option(help="Largest learning rate, after the warm-up.")] = 2e-3,
    save_every: Annotated[int, typer.Option(min=1, help="Steps between saved states.")] = 200,
    samples: Annotated[int, typer.Option(min=0, help="Samples to judge the result by; 0 skips it.")] = 128,
) -> None:
    """Train a velocity network on simulated fields; resumes a run that was stopped.

    The fields depend on the equation alone, so one model serves every problem
    of its equation. FOLDER/model holds the weights and record.json: data,
    settings, losses, time and the quality of samples. Load it with
    snapfm.flow.load_checkpoint. The same command resumes after a stop, to the
    same weights; on a finished run it says so and does nothing.
    """
    require("safetensors", "checkpoints", "flow")  # checked now rather than after the first hundred steps
    if samples == 1:
        raise ShapeError("snapfm train --samples expects 0, or at least 2 to have a spread; got 1. The default is 128.")
    chosen = build(problem)
    equation = chosen.equation
    recipe = TRAINING_SETS[equation]
    steps, rows, columns = steps or recipe.steps, rows or recipe.rows, columns or recipe.columns
    network = flow.network_of(flow.preset(preset, chosen.grid.shape), seed)
    # The folder plays no part in the result, and a machine's path has no place in a record.
    command = (
        f"snapfm train {problem} --preset {preset} --seed {seed} --steps {steps} --batch {batch} --rows {rows} "
        f"--columns {columns} --learning-rate {learning_rate:g} --out build/train/{out.name}"
    )
    console = Console()
    settings = flow.TrainingSettings(
        steps=steps,
        batch=batch,
        learning_rate=learning_rate,
        seed=seed,
        save_every=save_every,
        imposed=recipe.imposed,
        rows=rows,
        **({**FRAME_TRAINING, "pairing": recipe.pairing} if preset == "frame" else recipe.small),
    )

    check_folder("train", out)
    about = {"command": command, "problem": problem, "equation": equation, "preset": preset}
    run = identify_run(network, settings.describe())
    if _finished(out / "model", run, about, [rows * columns, *chosen.grid.shape], samples):
        console.print(
            f"{out} is finished: {out / 'model'} holds the {preset} network of {equation} after {steps} "
            f"step{'s' * (steps != 1)}. Nothing was done. "
            "Train another one with another --out; a finished run is not made longer, as its learning rate has come down to "
            "zero.",
            markup=False, highlight=False, soft_wrap=True,
        )  # fmt: skip
        return
    check_run(out, run)
    console.print(f"Simulating {rows * columns} fields of {problem}", highlight=False)
    generator = torch.Generator().manual_seed(seed)
    data = table(equation, rows, columns, generator).float()
    if isinstance(network, flow.FrameVelocity):
        network.fit(data)
    found = saved_step(out)
    console.print(
        f"Training the {preset} network from the start" if found is None else f"Resuming at step {found} of {steps}",
        highlight=False,
    )
    parts = (BarColumn(), MofNCompleteColumn(), TextColumn("loss {task.fields[loss]:.4f}"), TimeRemainingColumn())
    with Progress(*parts, console=console) as bar:
        task = bar.add_task("train", total=steps, completed=found or 0, loss=float("nan"))
        training = flow.train(
            network,
            data,
            settings,
            out,
            progress=lambda done, loss: bar.update(task, completed=done, loss=loss),
            about=about,
        )

    record = dict(training.record)
    if samples:
        console.print(f"Judging {samples} samples", highlight=False)
        truth = chosen.simulate(recipe.truth, generator).float()
        record["quality"] = quality(network, truth, data.mean(0), samples)
    flow.save_checkpoint(out / "model", flow.Checkpoint(network, chosen.grid, equation, preset, record))
    console.print(f"The checkpoint: {out / 'model'}", markup=False, highlight=False, soft_wrap=True)


def _finished(model: Path, run: Mapping[str, Any], about: Mapping[str, Any], shape: list[int], samples: int) -> bool:
    """Return whether a checkpoint is of this run, on as many fields, and judged by as many samples as requested.

    Fields depend on the equation alone, so another problem of it asks for the same run.
    """
    try:
        record = read_json(model / RECORD)
    except CheckpointError:  # none yet, or a damaged one, which is written again
        return False
    settings = {name: value for name, value in record.get("settings", {}).items() if name in run["settings"]}
    found = [settings, record.get("parameters"), record.get("data", {}).get("shape")]
    wanted = [run["settings"], run["network"]["parameters"], shape]
    same = found == wanted and all(record.get(key) == about[key] for key in ("equation", "preset"))
    return same and (not samples or record.get("quality", {}).get("count") == samples)
