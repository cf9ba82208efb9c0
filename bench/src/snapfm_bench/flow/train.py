"""Training a velocity network with flow matching: Adam, a moving average of the weights, and bit-exact resuming.

Step i draws its flow times from (seed, i) alone, and its pairs of noise and field from a pool that depends on (seed, i)
too. A run that was killed and resumed therefore ends with the weights of one that was not, on the same machine with the
same number of threads. Knows tensors of fields, not where they come from: must not import problems.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias, get_args

import torch
from torch import Tensor, nn

from snapfm.errors import DtypeError, ShapeError, SnapfmError
from snapfm.seeds import stream
from snapfm_bench.flow.coupling import Pairing, Pool, couple, disturb, revisit
from snapfm_bench.flow.path import LEAST_GAP, loss
from snapfm_bench.flow.run import TrainingState, compose, identify, load_state, save_state
from snapfm_bench.flow.storage import pack_json, write_file

Progress: TypeAlias = Callable[[int, float], None]

RECORD = "record.json"
_BETAS = (0.9, 0.99)  # a shorter memory than Adam's 0.999 suits runs of a few thousand steps
_LARGEST_GRADIENT = 1.0  # gradients are scaled down to this norm: flow times near 1 cause rare large ones


class TrainingError(SnapfmError, ValueError):
    """Training settings cannot work, or training diverged."""


@dataclass(frozen=True)
class TrainingSettings:
    """How to train: Adam, a linear warm-up over `warmup` steps, then a cosine down to zero at the last step.

    `ema` is the decay of the moving average of the weights; a state to resume from is saved every `save_every` steps.
    Noise and fields are paired by optimal transport in pools of `pool`, or of one batch, as `pairing` says, or drawn
    independently; PLAIN_TRAINING in presets has the settings of plain flow matching, without any of what follows. `imposed`
    names the axes along which laws may fix the first slice, -1 for an initial condition; the data are then a table of
    `rows` rows. coupling.disturb explains how these, `stray` and `meeting` disturb what the network sees,
    coupling.revisit what a share of `own` answers adds. `least_gap` is that of the loss. Flow times are spread evenly
    over the `tau_power`-th root of τ: a larger power draws more early times.
    """

    steps: int = 2000
    batch: int = 16
    learning_rate: float = 2e-3
    warmup: int = 100
    seed: int = 0
    ema: float = 0.999
    save_every: int = 200
    pool: int = 1024
    imposed: tuple[int, ...] = ()
    rows: int = 1
    stray: float = 0.05
    pairing: Pairing = "all"
    meeting: float | None = None
    own: float = 0.0
    least_gap: float = LEAST_GAP
    tau_power: float = 2.0

    def __post_init__(self) -> None:
        least = min(self.steps, self.batch, self.save_every, self.pool, self.rows)
        if least < 1 or self.warmup < 0 or min(self.learning_rate, self.tau_power) <= 0:
            raise TrainingError(
                "TrainingSettings expects steps, batch, save_every, pool and rows >= 1, warmup >= 0, learning_rate and "
                f"tau_power > 0; got {self}. Correct the number that is too small."
            )
        if self.stray < 0:
            raise TrainingError(f"TrainingSettings(stray) expects a size >= 0; got {self.stray}. Try 0.05.")
        if self.pairing not in get_args(Pairing):
            raise TrainingError(
                f"TrainingSettings(pairing) expects one of {get_args(Pairing)}; got {self.pairing!r}. Take 'rows' where "
                "laws fix the rows of the data."
            )
        if not (0 <= self.own <= 1 and 0 <= (self.meeting or 0.0) <= 1 and 0 < self.least_gap <= 1):
            raise TrainingError(
                "TrainingSettings expects own and meeting in [0, 1] and least_gap in (0, 1]; got "
                f"own={self.own}, meeting={self.meeting}, least_gap={self.least_gap}. Try 0.5, 0.8 and {LEAST_GAP}."
            )
        if not 0 <= self.ema < 1:
            raise TrainingError(f"TrainingSettings(ema) expects a decay in [0, 1); got {self.ema}. Try 0.999.")
        if len(self.imposed) > 2:
            raise TrainingError(
                f"TrainingSettings(imposed) expects at most two axes, of rows and columns; got {self.imposed}. Name those "
                "along which laws fix the first slice."
            )

    def describe(self) -> dict[str, Any]:
        """Return the settings as JSON stores them, with lists for tuples."""
        return {**asdict(self), "imposed": list(self.imposed)}

    def rate(self, step: int) -> float:
        """Return the learning rate of step 0 .. steps − 1."""
        rise = min(1.0, (step + 1) / self.warmup) if self.warmup else 1.0
        return self.learning_rate * rise * 0.5 * (1 + math.cos(math.pi * step / self.steps))


@dataclass(frozen=True)
class Training:
    """A finished run: the network, now holding the averaged weights, and the record of how it was made."""

    network: nn.Module
    record: Mapping[str, Any]


def train(
    network: nn.Module,
    data: Tensor,
    settings: TrainingSettings,
    out_dir: str | Path,
    progress: Progress | None = None,
    about: Mapping[str, Any] | None = None,
) -> Training:
    """Train `network` (modified) on fields `data` (count, *shape), saving states and the record in `out_dir`.

    A run already in `out_dir` is resumed; one with other settings, network or data is refused. One of fewer steps is made longer:
    it goes on with the learning rates of the longer run, and its record says from where. `progress` is called with
    the number of steps done and the last loss. `about` goes into the record as it is: what the data are, the command.
    """
    _check_data(data, settings.rows)
    out_dir = Path(out_dir)
    identity = identify(network, data, settings.describe())
    run = _Run(network, data, settings)
    state = load_state(out_dir, identity, {name: value.detach() for name, value in run.parameters.items()})
    if state is not None:
        run.resume(state)
    network.train()
    start = time.perf_counter() - run.seconds
    for done in range(len(run.losses) + 1, settings.steps + 1):
        run.step()
        if done % settings.save_every == 0 or done == settings.steps:
            run.seconds = time.perf_counter() - start
            save_state(out_dir, run.state(), identity)
        if progress is not None:
            progress(done, run.losses[-1])
    with torch.no_grad():
        for name, value in run.parameters.items():
            value.copy_(run.average[name])
    record = compose(identity, settings.describe(), run.losses, run.seconds, run.extensions, about or {})
    write_file(out_dir / RECORD, pack_json(record))
    return Training(network.eval(), record)


class _Run:
    """Everything that changes during training: parameters, their moving average, Adam, losses and the time spent."""

    def __init__(self, network: nn.Module, data: Tensor, settings: TrainingSettings) -> None:
        self.network, self.data, self.settings = network, data, settings
        self.parameters = dict(network.named_parameters())
        self.average = {name: value.detach().clone() for name, value in self.parameters.items()}
        self.optimizer = torch.optim.Adam(self.parameters.values(), betas=_BETAS)
        self.losses: list[float] = []
        self.seconds = 0.0
        self.extensions: list[dict[str, int]] = []
        self._pool: Pool | None = None

    def resume(self, state: TrainingState) -> None:
        """Continue from a saved state."""
        self.losses, self.seconds, self.extensions = state.losses.tolist(), state.seconds, state.extensions
        with torch.no_grad():
            for name, value in self.parameters.items():
                value.copy_(state.weights[name])
                self.average[name].copy_(state.average[name])
                self.optimizer.state[value] = {
                    "step": torch.tensor(float(state.step)),
                    "exp_avg": state.momentum[name].to(value.device),
                    "exp_avg_sq": state.scale[name].to(value.device),
                }

    def state(self) -> TrainingState:
        """Return what has to be saved; it shares memory with the run."""
        moments = {name: self.optimizer.state[value] for name, value in self.parameters.items()}
        return TrainingState(
            step=len(self.losses),
            seconds=self.seconds,
            extensions=self.extensions,
            losses=torch.tensor(self.losses, dtype=torch.float64),
            weights=self.parameters,
            average=self.average,
            momentum={name: moment["exp_avg"] for name, moment in moments.items()},
            scale={name: moment["exp_avg_sq"] for name, moment in moments.items()},
        )

    def step(self) -> None:
        """Take one Adam step on the flow-matching loss, and update the average."""
        settings, step, dtype = self.settings, len(self.losses), self.data.dtype
        random = stream(settings.seed, step)
        device = next(iter(self.parameters.values())).device
        noise, index = self._pairs(step)
        noise = noise.to(device)
        # One time from each of `batch` equal parts: fields are decided at small τ, and every batch needs some there.
        offsets = torch.arange(settings.batch, dtype=dtype) / settings.batch
        tau = ((torch.rand((), generator=random, dtype=dtype) + offsets) % 1) ** settings.tau_power
        axes, rows, stray, meeting = settings.imposed, settings.rows, settings.stray, settings.meeting
        scene = disturb(self.data, index, tau, random, axes, rows, stray, meeting).to(device)
        tau = tau.to(device)
        shown = revisit(self.network, noise, scene, tau, random, settings.own) if settings.own else scene.shown
        for group in self.optimizer.param_groups:
            group["lr"] = settings.rate(step)
        self.optimizer.zero_grad()
        error = loss(self.network, noise, scene.wanted, tau, shown, settings.least_gap)
        if not bool(error.isfinite()):
            raise TrainingError(
                f"train() expects a finite loss at every step; got {error.item()} at step {step}. Check the data for "
                f"NaN, then try a smaller learning rate than {settings.learning_rate:g}."
            )
        error.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.parameters.values(), _LARGEST_GRADIENT)
        self.optimizer.step()
        # A young average would remember the random start for 1 / (1 − ema) steps; this decay forgets it faster.
        decay = min(settings.ema, (1 + step) / (10 + step))
        with torch.no_grad():
            for name, value in self.parameters.items():
                self.average[name].lerp_(value, 1 - decay)
        self.losses.append(error.item())

    def _pairs(self, step: int) -> tuple[Tensor, Tensor]:
        """Return the noise of a step's batch and the index of its fields, from a pool of at least one batch."""
        settings = self.settings
        batches = max(1, settings.pool // settings.batch)
        number, place = divmod(step, batches)
        if self._pool is None or self._pool.number != number:
            size = batches * settings.batch
            self._pool = couple(self.data, settings.seed, number, size, settings.rows, settings.pairing)
        batch = slice(place * settings.batch, (place + 1) * settings.batch)
        return self._pool.noise[batch], self._pool.index[batch]


def _check_data(data: Tensor, rows: int) -> None:
    if data.ndim < 2 or len(data) == 0:
        raise ShapeError(
            f"train(data) expects fields of shape (count, *shape) with count >= 1; got {tuple(data.shape)}. "
            "Stack the fields along a first axis."
        )
    if not data.is_floating_point():
        raise DtypeError(f"train(data) expects floating fields; got {data.dtype}. Convert with data.float().")
    if len(data) % rows:
        raise ShapeError(
            f"train(data) expects as many fields in each of {rows} rows; got {len(data)} fields. Fill the table, or set "
            "TrainingSettings(rows) to its number of rows."
        )
