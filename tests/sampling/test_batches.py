"""Runs in batches: the same samples as at once, for every sampler, in the memory of one batch."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any

import pytest
import torch
from tests.sampling.toys import DIFFERENTIATES, LAWLESS, SAMPLERS, SHAPE, SPREAD, bent, curved, mixed, seeded
from torch import Tensor

from snapfm import Projector, sample
from snapfm.errors import ProjectionFailed
from snapfm.sampling import Conditional, Samples

COUNT = 7
U0 = torch.randn(COUNT, SHAPE[0], generator=seeded(1), dtype=torch.float64)
LAST_BITS = 1e-12  # laws are evaluated on whole batches, whose sums round differently


@pytest.fixture(scope="module")
def project() -> Projector:
    return mixed()


def drawn(project: Projector | None, name: str, **more: Any) -> Samples:
    settings = {"seed": 5, "dtype": torch.float64, "shape": SHAPE, **more}
    return sample(bent, project, {"u0": U0}, COUNT, 4, sampler=SAMPLERS[name], **settings)


@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize("batch", [1, 3, 100])
def test_batches_give_the_samples_of_one_run(name: str, batch: int, project: Projector):
    laws = None if name in LAWLESS else project
    whole, parts = drawn(laws, name), drawn(laws, name, batch=batch)
    assert parts.u.shape == (COUNT, *SHAPE)
    assert torch.allclose(parts.u, whole.u, rtol=0.0, atol=1e-6 if name in DIFFERENTIATES else 1e-9)
    assert (parts.projection is None) == (whole.projection is None)
    if parts.projection is not None and whole.projection is not None:
        assert torch.equal(parts.projection.u, parts.u)
        assert torch.equal(parts.projection.status, whole.projection.status)
        assert parts.projection.violation.shape == (COUNT,)
        assert {law: tuple(rows.shape) for law, rows in parts.projection.multipliers.items()} == {
            law: tuple(rows.shape) for law, rows in whole.projection.multipliers.items()
        }
        assert float(project.check(parts.u, {"u0": U0}).violation.max()) <= 1e-8


def test_the_network_and_the_projector_never_see_more_than_a_batch(project: Projector):
    seen: list[int] = []

    def watched(u: Tensor, tau: Any) -> Tensor:
        seen.append(len(u))
        return bent(u, tau)

    out = sample(watched, project, {"u0": U0}, COUNT, 4, seed=0, batch=3)
    assert set(seen) == {3, 1}
    assert out.calls == len(seen) == 3 * 4
    shared = sample(bent, project, {"u0": U0[:1]}, COUNT, 2, seed=0, batch=3)
    assert shared.u.shape == (COUNT, *SHAPE)


def test_weights_of_batches_are_those_of_one_run():
    sampler, project = Conditional(SPREAD, measure="residual"), curved()
    params = {"c": torch.linspace(4.0, 20.0, COUNT, dtype=torch.float64)}
    whole, parts = (
        sample(bent, project, params, COUNT, 4, seed=3, sampler=sampler, dtype=torch.float64, batch=batch)
        for batch in (None, 2)
    )
    assert whole.weights is not None
    assert parts.weights is not None
    assert torch.allclose(parts.weights, whole.weights, rtol=1e-6)
    assert float(parts.weights.mean()) == pytest.approx(1.0)
    assert not torch.allclose(whole.weights, torch.ones_like(whole.weights), rtol=0.01)


def test_progress_counts_the_steps_of_all_batches(project: Projector, capsys: pytest.CaptureFixture[str]):
    told: list[tuple[int, int]] = []
    sample(
        bent, project, {"u0": U0}, COUNT, 4, seed=0, batch=3, progress=lambda done, total: told.append((done, total))
    )
    assert told == [(done, 12) for done in range(1, 13)]
    sample(bent, project, {"u0": U0}, COUNT, 4, seed=0, batch=3, progress=True)
    assert " 12/12 steps " in capsys.readouterr().err


def test_a_failed_sample_is_named_by_its_number_in_the_run(project: Projector):
    def broken(u: Tensor, tau: Any) -> Tensor:
        return bent(u, tau) if len(u) > 1 else u * torch.nan  # the last batch has one sample

    with pytest.raises(ProjectionFailed, match=r"expected 1 converged sample; 1 failed:\n  sample 6: NONFINITE"):
        sample(broken, project, {"u0": U0}, COUNT, 4, seed=0, batch=3)
    kept = sample(broken, project, {"u0": U0}, COUNT, 4, seed=0, batch=3, on_failure="keep")
    assert kept.projection is not None
    assert kept.projection.converged.tolist() == [True] * 6 + [False]


def test_a_seed_is_a_generator_with_that_seed(project: Projector):
    one, two = (sample(bent, project, {"u0": U0}, COUNT, 2, **how).u for how in ({"seed": 9}, {"generator": seeded(9)}))
    assert torch.equal(one, two)


def test_the_time_split_accounts_for_the_whole_run(project: Projector):
    def slow(u: Tensor, tau: Any) -> Tensor:
        time.sleep(0.01)
        return bent(u, tau)

    began = time.perf_counter()
    out = sample(slow, project, {"u0": U0}, COUNT, 3, seed=0, batch=2)
    total = time.perf_counter() - began
    assert sum(out.seconds.values()) <= total
    assert sum(out.seconds.values()) >= 0.95 * total - 0.01  # checks of arguments come before
    assert min(out.seconds.values()) >= 0.0
    assert out.seconds["velocity"] >= 0.12


MEMORY = """
import resource, sys, torch, snapfm
torch.set_num_threads(1)
law = snapfm.Equality("mass", lambda u, p: u.sum(0) - 1.0)
project = snapfm.Projector([law], (64, 64))
def velocity(u, tau):
    return -u
snapfm.sample(velocity, project, count=64, steps=2, seed=0)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
out = snapfm.sample(velocity, project, count=4096, steps=2, seed=0, batch=64)
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
held = sum(t.numel() * t.element_size() for t in (out.u, out.projection.multipliers["mass"]))
print((after - before) * 1024, held)
"""


@pytest.mark.slow
def test_memory_is_that_of_the_result_and_one_batch():
    done = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, check=True)
    grown, held = map(int, done.stdout.split())
    assert held >= 4096 * 64 * 64 * 4
    assert grown <= 1.5 * held + 50e6
