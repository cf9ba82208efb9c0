"""`snapfm train`: simulate a problem's fields, train a velocity network on them, write checkpoint and record."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from snapfm.errors import CheckpointError, SettingError, ShapeError, require_all
from snapfm.text import plural
from snapfm_bench.commands.options import ProblemName, check_folder

if TYPE_CHECKING:
    from snapfm_bench.problems.training import TrainingSet

_FNO_PRESETS = ("small", "paper")  # whose networks are those of neuralop
_FIELDS = 256  # training fields, at least, by which a network's error is measured


def train(
    problem: ProblemName,
    out: Annotated[
        Path,
        typer.Option(metavar="FOLDER", help="Folder for saved states and for the final checkpoint (FOLDER/model)."),
    ],
    preset: Annotated[
        str, typer.Option(help="Network: small, frame or latent train on two cores; paper is meant for a GPU.")
    ] = "small",
    plain: Annotated[
        bool,
        typer.Option(
            "--plain", help="Plain flow matching: noise and fields paired at random; nothing anticipates laws."
        ),
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="Seed of data, weights, batches and noise.")] = 0,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Number of training steps.", show_default="by equation")
    ] = None,
    batch: Annotated[
        int, typer.Option(min=1, help="Fields per step; use 64 for the preset frame, 256 for latent.")
    ] = 16,
    rows: Annotated[
        int | None, typer.Option(min=1, help="Number of initial states to simulate.", show_default="by equation")
    ] = None,
    columns: Annotated[
        int | None, typer.Option(min=1, help="Fields to simulate from each initial state.", show_default="by equation")
    ] = None,
    learning_rate: Annotated[float, typer.Option(help="Largest learning rate, after the warm-up.")] = 2e-3,
    save_every: Annotated[int, typer.Option(min=1, help="Steps between saved states.")] = 200,
    half: Annotated[
        bool, typer.Option("--half", help="Round the final weights to float16; half the file size.")
    ] = False,
    samples: Annotated[int, typer.Option(min=0, help="Samples that the result is judged by; 0 skips this.")] = 128,
    flow_steps: Annotated[int, typer.Option(min=1, help="Flow steps for these samples.")] = 100,
) -> None:
    """Train a velocity network on simulated fields; resumes a run that was stopped.

    The fields depend only on the equation, so one model works for every
    problem of its equation. FOLDER/model holds the weights and record.json
    with data, settings, losses, time and the quality of samples. Load it with
    snapfm_bench.flow.load_checkpoint. If you stop the command, run it again: it
    resumes and ends with the same weights. On a finished run it does nothing
    and says so; a larger --steps extends the run from where it is.
    """
    import torch

    import snapfm_bench.flow as flow
    from snapfm_bench.flow.presets import PLAIN_TRAINING
    from snapfm_bench.flow.quality import answer_error, quality
    from snapfm_bench.flow.run import check_run, identify_run
    from snapfm_bench.problems import problem as build
    from snapfm_bench.problems.training import IMAGES, PLAIN_SETS, PLAIN_SETTINGS, TRAINING_SETS, table, with_images

    networks = {"neuralop": ""} if preset in _FNO_PRESETS else {}
    # now rather than after the first hundred steps
    require_all("snapfm train", {"safetensors": "", **networks}, of="snapfm-bench")
    if samples == 1:
        raise ShapeError("snapfm train --samples expects 0, or at least 2 to have a spread; got 1. The default is 128.")
    equation = build(problem).equation
    chosen = build(problem, **PLAIN_SETTINGS.get(equation, {})) if plain else build(problem)
    recipe = (PLAIN_SETS if plain else TRAINING_SETS)[equation]
    steps, rows, columns = steps or recipe.steps, rows or recipe.rows, columns or recipe.columns
    network = flow.network_of(flow.preset(preset, chosen.grid.shape), seed)
    latent = isinstance(network, flow.FrameVelocity) and not network.settings.anchors  # trained on coefficients
    if latent and not plain:
        raise SettingError(
            f"snapfm train --preset {preset} expects --plain; without it laws impose slices in training, which a network of "
            "coefficients does not see. Add --plain, or use the preset frame."
        )
    # The folder plays no part in the result, and a machine's path has no place in a record.
    command = (
        f"snapfm train {problem} --preset {preset}{' --plain' * plain} --seed {seed} --steps {steps} --batch {batch} "
        f"--rows {rows} --columns {columns} --learning-rate {learning_rate:g}{' --half' * half} --out build/train/{out.name}"
    )
    console = Console()
    settings = flow.TrainingSettings(
        steps=steps,
        batch=batch,
        learning_rate=learning_rate,
        seed=seed,
        save_every=save_every,
        rows=rows,
        **(PLAIN_TRAINING if plain else _law_aware(recipe, preset)),
    )

    check_folder("train", out)
    about = {"command": command, "problem": problem, "equation": equation, "preset": preset}
    trained = flow.Latent(network) if isinstance(network, flow.FrameVelocity) and latent else network
    run = identify_run(trained, settings.describe())
    shape = (trained.settings.size,) if isinstance(trained, flow.Latent) else chosen.grid.shape
    count = rows * columns * (IMAGES[equation] if plain else 1)
    if _finished(out / "model", run, about, [count, *shape], (samples, flow_steps), half):
        console.print(
            f"{out} is finished: {out / 'model'} holds the {preset} network of {equation} after {steps} "
            f"step{'s' * (steps != 1)}. Nothing was done. "
            "Extend it with a larger --steps, or train another one with another --out.",
            markup=False, highlight=False, soft_wrap=True,
        )  # fmt: skip
        return
    there = check_run(out, run)
    console.print(f"Simulating {plural(rows * columns, 'field')} of {problem}", highlight=False)
    generator = torch.Generator().manual_seed(seed)
    data = table(equation, rows, columns, generator, plain).float()
    seen = with_images(equation, data, seed) if plain else data
    if isinstance(network, flow.FrameVelocity):
        network.fit(seen)
    found = None if there is None else int(there["step"])
    before = steps if there is None else there["identity"]["settings"]["steps"]
    extending = f", and making the run longer: it had {before}" if before != steps else ""
    console.print(
        f"Training the {preset} network from the start"
        if found is None
        else f"Resuming at step {found} of {steps}{extending}",
        highlight=False,
    )
    parts = (BarColumn(), MofNCompleteColumn(), TextColumn("loss {task.fields[loss]:.4f}"), TimeRemainingColumn())
    with Progress(*parts, console=console) as bar:
        task = bar.add_task("train", total=steps, completed=found or 0, loss=float("nan"))
        training = flow.train(
            trained,
            trained.network.coefficients(seen) if isinstance(trained, flow.Latent) else seen,
            settings,
            out,
            progress=lambda done, loss: bar.update(task, completed=done, loss=loss),
            about=about,
        )

    record = dict(training.record)
    if half:
        flow.round_weights(network)
    if isinstance(trained, flow.Latent):
        network.error = answer_error(network, seen[:: max(1, len(seen) // _FIELDS)])
    if samples:
        console.print(f"Judging {samples} samples", highlight=False)
        truth = chosen.simulate(recipe.truth, generator).float()
        record["quality"] = quality(network, truth, data.mean(0), samples, flow_steps)
    flow.save_checkpoint(out / "model", flow.Checkpoint(network, chosen.grid, equation, preset, record), half)
    console.print(f"The checkpoint: {out / 'model'}", markup=False, highlight=False, soft_wrap=True)


def _law_aware(recipe: TrainingSet, preset: str) -> dict[str, Any]:
    """Return the settings that prepare a network for laws: paired noise, imposed slices and what else it is shown."""
    from snapfm_bench.flow.presets import FRAME_TRAINING

    more = {**FRAME_TRAINING, "pairing": recipe.pairing} if preset == "frame" else recipe.small
    return {"imposed": recipe.imposed, **more}


def _finished(
    model: Path, run: Mapping[str, Any], about: Mapping[str, Any], shape: list[int], judged: tuple[int, int], half: bool
) -> bool:
    """Return whether a checkpoint is of this run, on as many fields, rounded and judged as requested.

    Fields depend on the equation alone, so another problem of it asks for the same run.
    """
    from snapfm_bench.flow.checkpoint import RECORD
    from snapfm_bench.flow.storage import read_json

    try:
        record = read_json(model / RECORD)
    except CheckpointError:  # none yet, or a damaged one, which is written again
        return False
    settings = {name: value for name, value in record.get("settings", {}).items() if name in run["settings"]}
    found = [settings, record.get("parameters"), record.get("data", {}).get("shape")]
    wanted = [run["settings"], run["network"]["parameters"], shape]
    same = (
        found == wanted
        and ("--half" in record.get("command", "")) == half
        and all(record.get(key) == about[key] for key in ("equation", "preset"))
    )
    score = record.get("quality", {})
    return same and (not judged[0] or (score.get("count"), score.get("steps")) == judged)
