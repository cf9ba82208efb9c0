"""`snapfm train`: simulate a problem's fields, train a velocity network on them, write checkpoint and record."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

_TRUTH = 4096  # fresh true fields that samples are compared with: their own mean is 16 times nearer than that of 256


def train(
    problem: Annotated[str, typer.Argument(help="Problem whose fields to learn, such as heat-ic-mass.")],
    out: Annotated[
        Path, typer.Option(file_okay=False, help="Folder for the states to resume from and the checkpoint in model/.")
    ],
    preset: Annotated[str, typer.Option(help="Size of the network: small or paper.")] = "small",
    seed: Annotated[int, typer.Option(min=0, help="Seed of data, weights, batches and noise.")] = 0,
    steps: Annotated[int, typer.Option(min=1, help="Number of training steps.")] = 2000,
    batch: Annotated[int, typer.Option(min=1, help="Fields per step.")] = 16,
    count: Annotated[int, typer.Option(min=1, help="Number of simulated training fields.")] = 10_000,
    learning_rate: Annotated[float, typer.Option(help="Largest learning rate, after the warm-up.")] = 2e-3,
    save_every: Annotated[int, typer.Option(min=1, help="Steps between saved states.")] = 200,
    samples: Annotated[int, typer.Option(min=0, help="Samples to judge the result by; 0 skips it.")] = 256,
) -> None:
    """Train a velocity network on simulated fields; the same command resumes a run that was stopped."""
    import torch
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    import snapfm.flow as flow
    from snapfm.flow.quality import quality
    from snapfm.flow.state import saved_step
    from snapfm.problems import problem as build

    # The folder plays no part in the result, and a machine's path has no place in a record.
    command = (
        f"snapfm train {problem} --preset {preset} --seed {seed} --steps {steps} --batch {batch} --count {count} "
        f"--learning-rate {learning_rate:g} --out build/train/{out.name}"
    )
    console = Console()
    chosen = build(problem)
    settings = flow.TrainingSettings(
        steps=steps, batch=batch, learning_rate=learning_rate, seed=seed, save_every=save_every
    )
    network = flow.FNOVelocity(flow.preset(preset, chosen.grid.shape), seed=seed)

    console.print(f"Simulating {count} fields of {problem}", highlight=False)
    generator = torch.Generator().manual_seed(seed)
    data = chosen.simulate(count, generator).float()
    found = saved_step(out)
    console.print(
        f"Training the {preset} network from the start" if found is None else f"Resuming at step {found} of {steps}",
        highlight=False,
    )
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("loss {task.fields[loss]:.4f}"), TimeRemainingColumn())
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("train", total=steps, completed=found or 0, loss=float("nan"))
        training = flow.train(
            network,
            data,
            settings,
            out,
            progress=lambda done, loss: bar.update(task, completed=done, loss=loss),
            about={"command": command, "problem": problem, "equation": chosen.equation, "preset": preset},
        )

    record = dict(training.record)
    if samples:
        console.print(f"Judging {samples} samples", highlight=False)
        truth = chosen.simulate(_TRUTH, generator).float()
        record["quality"] = quality(network, truth, data.mean(0), samples)
    flow.save_checkpoint(out / "model", flow.Checkpoint(network, chosen.grid, chosen.equation, preset, record))
    console.print(f"The checkpoint: {out / 'model'}", markup=False, highlight=False, soft_wrap=True)
