import json
import math
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from snapfm.errors import CheckpointError, DtypeError, ShapeError
from snapfm_bench.flow import FNOVelocity, NetworkSettings, TrainingSettings, train
from snapfm_bench.flow.coupling import couple
from snapfm_bench.flow.path import interpolate
from snapfm_bench.flow.presets import PLAIN_TRAINING
from snapfm_bench.flow.run import saved_step
from snapfm_bench.flow.storage import pack_tensors, unpack_tensors
from snapfm_bench.flow.train import TrainingError

SETTINGS = TrainingSettings(
    steps=11,
    batch=3,
    learning_rate=1e-2,
    warmup=2,
    seed=5,
    ema=0.9,
    save_every=4,
    pool=9,
    imposed=(-1, 0),
    rows=3,
    pairing="crossed",
    meeting=0.6,
    own=0.7,
)

# The run of `network` and `fields` in conftest.py, told to die without warning after 6 steps.
KILLED = """
import os, signal, sys, torch
from snapfm_bench.flow import FNOVelocity, NetworkSettings, TrainingSettings, train

torch.set_num_threads(1)
network = FNOVelocity({network}, seed=3)
fields = torch.randn(12, 6, 8, generator=torch.Generator().manual_seed(1))

def die(done, loss):
    if done == 6:
        os.kill(os.getpid(), signal.SIGKILL)

train(network, fields, {training}, sys.argv[1], progress=die)
"""


def weights(network: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in network.named_parameters()}


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


class Stopped(Exception):
    pass


def stop_after(steps: int):
    def progress(done: int, loss: float) -> None:
        if done == steps:
            raise Stopped

    return progress


def fresh(network: FNOVelocity) -> FNOVelocity:
    return FNOVelocity(network.settings, seed=3)


def test_training_lowers_the_loss(network: FNOVelocity, fields: torch.Tensor, tmp_path: Path) -> None:
    one_field = fields[:1]
    training = train(network, one_field, replace(SETTINGS, steps=100, batch=8, rows=1), tmp_path)
    curve = [point["loss"] for point in training.record["loss_curve"]]
    assert sum(curve[-10:]) < 0.5 * sum(curve[:10])
    assert training.network is network
    assert not network.training


def test_the_same_seed_gives_the_same_bits(network: FNOVelocity, fields: torch.Tensor, tmp_path: Path) -> None:
    twin, other = fresh(network), fresh(network)
    a = weights(train(network, fields, SETTINGS, tmp_path / "a").network)
    b = weights(train(twin, fields, SETTINGS, tmp_path / "b").network)
    c = weights(train(other, fields, replace(SETTINGS, seed=6), tmp_path / "c").network)
    assert same(a, b)
    assert not same(a, c)


def test_a_run_killed_by_sigkill_resumes_to_the_same_bits(
    network: FNOVelocity, fields: torch.Tensor, tmp_path: Path
) -> None:
    script = KILLED.format(network=repr(network.settings), training=repr(SETTINGS))
    run = subprocess.run([sys.executable, "-c", script, str(tmp_path / "killed")], capture_output=True, timeout=600)
    assert run.returncode == -signal.SIGKILL, run.stderr
    assert saved_step(tmp_path / "killed") == 4
    assert not (tmp_path / "killed" / "record.json").exists()

    resumed, whole, steps = fresh(network), fresh(network), []
    after = train(resumed, fields, SETTINGS, tmp_path / "killed", progress=lambda done, loss: steps.append(done))
    before = train(whole, fields, SETTINGS, tmp_path / "whole")
    assert steps == list(range(5, 12))
    assert same(weights(resumed), weights(whole))
    assert after.record["loss_curve"] == before.record["loss_curve"]


def test_stopping_at_every_step_changes_nothing(network: FNOVelocity, fields: torch.Tensor, tmp_path: Path) -> None:
    often = replace(SETTINGS, steps=5, save_every=1)
    for done in range(1, 5):
        with pytest.raises(Stopped):
            train(fresh(network), fields, often, tmp_path / "pieces", progress=stop_after(done))
        assert saved_step(tmp_path / "pieces") == done
    pieces, whole = fresh(network), fresh(network)
    train(pieces, fields, often, tmp_path / "pieces")
    train(whole, fields, replace(often, save_every=100), tmp_path / "whole")
    assert same(weights(pieces), weights(whole))


def test_a_finished_run_is_not_trained_again(network: FNOVelocity, fields: torch.Tensor, tmp_path: Path) -> None:
    first = train(network, fields, SETTINGS, tmp_path)
    again, steps = fresh(network), []
    second = train(again, fields, SETTINGS, tmp_path, progress=lambda done, loss: steps.append(done))
    assert steps == []
    assert same(weights(again), weights(network))
    assert second.record == first.record


def test_only_the_newest_state_is_kept_and_leftovers_are_ignored(
    network: FNOVelocity, fields: torch.Tensor, tmp_path: Path
) -> None:
    leftover = tmp_path / ".state-00000004.partial"
    leftover.mkdir()
    (leftover / "state.json").write_text("{")
    train(network, fields, SETTINGS, tmp_path)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["record.json", "state-00000011"]


def test_what_is_kept_is_the_moving_average(network: FNOVelocity, fields: torch.Tensor, tmp_path: Path) -> None:
    start = weights(network)
    settings = replace(SETTINGS, steps=1)
    averaged, last = fresh(network), fresh(network)
    train(averaged, fields, settings, tmp_path / "averaged")
    train(last, fields, replace(settings, ema=0.0), tmp_path / "last")
    # One step has decay 1/10: a tenth of the start, nine tenths of the weights after the step.
    for name, value in weights(averaged).items():
        torch.testing.assert_close(value, 0.1 * start[name] + 0.9 * weights(last)[name])


def test_the_record_says_how_the_weights_were_made(network: FNOVelocity, fields: torch.Tensor, tmp_path: Path) -> None:
    settings = replace(SETTINGS, steps=201, batch=1, save_every=201)
    record = train(network, fields, settings, tmp_path, about={"command": "snapfm train tiny"}).record
    assert json.loads((tmp_path / "record.json").read_text()) == record
    assert record["command"] == "snapfm train tiny"
    assert record["settings"]["steps"] == record["steps"] == 201
    assert record["data"]["shape"] == [12, 6, 8]
    assert record["data"]["dtype"] == "float32"
    assert [point["step"] for point in record["loss_curve"]] == [*range(2, 201, 2), 201]
    assert record["seconds"] > 0
    assert record["machine"]["torch"] == torch.__version__
    reals = sum(p.numel() * (2 if p.is_complex() else 1) for p in network.parameters())
    assert record["parameters"] == reals


@pytest.mark.parametrize("stopped", [False, True], ids=["finished", "stopped"])
def test_a_run_is_made_longer_and_may_be_stopped_again(
    network: FNOVelocity, fields: torch.Tensor, tmp_path: Path, stopped: bool
) -> None:
    """The longer run has the learning rates of its own length from where it takes over, and resumes to the same bits."""
    longer, at = replace(SETTINGS, steps=19), 4 if stopped else 11
    records, found = [], []
    for name in ("whole", "pieces"):
        if stopped:
            with pytest.raises(Stopped):
                train(fresh(network), fields, SETTINGS, tmp_path / name, progress=stop_after(6))
        else:
            train(fresh(network), fields, SETTINGS, tmp_path / name)
        assert saved_step(tmp_path / name) == at
        if name == "pieces":
            with pytest.raises(Stopped):
                train(fresh(network), fields, longer, tmp_path / name, progress=stop_after(14))
        steps: list[int] = []
        trained = fresh(network)
        records.append(
            train(
                trained, fields, longer, tmp_path / name, progress=lambda done, _, steps=steps: steps.append(done)
            ).record
        )
        assert steps == list(range((at if name == "whole" else 12) + 1, 20))
        found.append(weights(trained))
    assert same(*found)
    for record in records:
        assert record["extended"] == [{"step": at, "of": 11}]
        assert record["steps"] == record["settings"]["steps"] == 19
    straight = fresh(network)
    assert "extended" not in train(straight, fields, longer, tmp_path / "straight").record
    assert not same(weights(straight), found[0])  # which took its first steps at other rates


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"steps": 10},
            r"settings steps=10; got one with steps=11\. Use the same settings to resume it, or more steps",
        ),
        (
            {"learning_rate": 0.5},
            r"hold a run with settings learning_rate=0\.5; got one with learning_rate=0\.01\. Use",
        ),
        ({"steps": 12, "seed": 1}, r"settings steps=12, seed=1; got one with steps=11, seed=5\. Use the same settings"),
    ],
)
def test_changed_settings_are_refused(
    network: FNOVelocity, fields: torch.Tensor, tmp_path: Path, change: dict[str, float], message: str
) -> None:
    with pytest.raises(Stopped):
        train(network, fields, SETTINGS, tmp_path, progress=stop_after(5))
    with pytest.raises(CheckpointError, match=message):
        train(fresh(network), fields, replace(SETTINGS, **change), tmp_path)


def test_changed_data_or_network_are_refused(network: FNOVelocity, fields: torch.Tensor, tmp_path: Path) -> None:
    train(network, fields, SETTINGS, tmp_path)
    with pytest.raises(
        CheckpointError, match=r"run with data sha256='\w+'; got one with sha256='\w+'\. Use the same data"
    ):
        train(fresh(network), fields + 1, SETTINGS, tmp_path)
    other = FNOVelocity(replace(network.settings, predicts="velocity"))
    with pytest.raises(CheckpointError, match=r"network kind=.*predicts='velocity'.*got one with .*predicts='data'"):
        train(other, fields, SETTINGS, tmp_path)


def test_a_damaged_state_is_refused(network: FNOVelocity, fields: torch.Tensor, tmp_path: Path) -> None:
    train(network, fields, SETTINGS, tmp_path)
    run = tmp_path / "state-00000011" / "state.json"
    good = run.read_text()
    run.write_text(good.replace('"version": 1', '"version": 0'))
    with pytest.raises(CheckpointError, match=r"a training state of version 1; got 0\. Give train\(out_dir\) an empty"):
        train(fresh(network), fields, SETTINGS, tmp_path)
    run.write_text(good)
    tensors = tmp_path / "state-00000011" / "state.safetensors"
    kept = unpack_tensors(tensors, tensors.read_bytes())
    del kept["average/fno.lifting.fcs.0.bias"]
    tensors.write_bytes(pack_tensors(kept))
    with pytest.raises(
        CheckpointError, match=r"hold average/fno\.lifting\.fcs\.0\.bias of shape \(6,\); it does not\. The"
    ):
        train(fresh(network), fields, SETTINGS, tmp_path)
    tensors.write_bytes(tensors.read_bytes()[:50])
    with pytest.raises(CheckpointError, match=r"expected to hold safetensors; reading it gave .*The file is damaged"):
        train(fresh(network), fields, SETTINGS, tmp_path)


def test_a_runaway_loss_stops_training(network: FNOVelocity, fields: torch.Tensor, tmp_path: Path) -> None:
    fields[:] = float("nan")
    with pytest.raises(TrainingError, match=r"expects a finite loss at every step; got nan at step 0\. Check the data"):
        train(network, fields, SETTINGS, tmp_path)
    assert saved_step(tmp_path) is None


def test_wrong_data_are_refused(network: FNOVelocity, tmp_path: Path) -> None:
    with pytest.raises(ShapeError, match=r"expects fields of shape \(count, \*shape\).*got \(5,\)\. Stack"):
        train(network, torch.zeros(5), SETTINGS, tmp_path)
    with pytest.raises(DtypeError, match=r"expects floating fields; got torch\.int64\. Convert"):
        train(network, torch.zeros(6, 6, 8, dtype=torch.int64), SETTINGS, tmp_path)
    with pytest.raises(ShapeError, match=r"as many fields in each of 3 rows; got 5 fields\. Fill the table"):
        train(network, torch.zeros(5, 6, 8), SETTINGS, tmp_path)


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(
        TrainingError, match=r"expects steps, batch, save_every, pool and rows >= 1.*got .*steps=0.*Correct"
    ):
        TrainingSettings(steps=0)
    with pytest.raises(TrainingError, match=r"expects a decay in \[0, 1\); got 1\.0\. Try 0\.999"):
        TrainingSettings(ema=1.0)
    with pytest.raises(TrainingError, match=r"expects a size >= 0; got -1\.0\. Try 0\.05"):
        TrainingSettings(stray=-1.0)
    for wrong in ({"own": 1.5}, {"least_gap": 0.0}, {"meeting": -0.1}):
        with pytest.raises(
            TrainingError, match=r"expects own and meeting in \[0, 1\] and least_gap.*Try 0\.5, 0\.8 and 0\.2"
        ):
            TrainingSettings(**wrong)
    with pytest.raises(
        TrainingError, match=r"pairing\) expects one of \('all', 'rows', 'crossed', 'independent'\); got 'columns'"
    ):
        TrainingSettings(pairing="columns")
    with pytest.raises(TrainingError, match=r"expects at most two axes.*got \(0, 1, 2\)\. Name those"):
        TrainingSettings(imposed=(0, 1, 2))


def test_plain_training_shows_the_network_points_of_the_path(fields: torch.Tensor, tmp_path: Path) -> None:
    class Witness(torch.nn.Module):
        """Predict nothing, and remember what it was shown."""

        def __init__(self) -> None:
            super().__init__()
            self.gain = torch.nn.Parameter(torch.zeros(()))
            self.seen: list[tuple[torch.Tensor, torch.Tensor]] = []

        def forward(self, u: torch.Tensor, tau: torch.Tensor) -> torch.Tensor:
            self.seen.append((u.detach(), tau))
            return self.gain * u

    witness = Witness()
    settings = TrainingSettings(steps=3, batch=4, pool=4, seed=5, **PLAIN_TRAINING)
    train(witness, fields, settings, tmp_path)
    assert len(witness.seen) == 3  # no step looks at its own answers
    for number, (u, tau) in enumerate(witness.seen):
        pool = couple(fields, 5, number, 4, pairing="independent")
        assert torch.equal(u, interpolate(pool.noise, fields[pool.index], tau))


def test_the_learning_rate_warms_up_and_falls_like_a_cosine() -> None:
    settings = TrainingSettings(steps=100, warmup=10, learning_rate=1.0)
    rates = [settings.rate(step) for step in range(100)]
    assert rates[0] == pytest.approx(0.1)
    assert rates[9] == pytest.approx(0.5 * (1 + math.cos(math.pi * 0.09)))
    assert rates[50] == pytest.approx(0.5)
    assert rates[99] < 1e-3
    assert TrainingSettings(warmup=0, learning_rate=1.0).rate(0) == 1.0


def test_any_module_with_the_calling_contract_can_be_trained(fields: torch.Tensor, tmp_path: Path) -> None:
    class Scale(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gain = torch.nn.Parameter(torch.zeros(()))

        def forward(self, u: torch.Tensor, tau: torch.Tensor) -> torch.Tensor:
            return self.gain * u

    training = train(Scale(), fields, SETTINGS, tmp_path)
    assert training.record["parameters"] == 1
    assert not isinstance(training.network, FNOVelocity | NetworkSettings)
