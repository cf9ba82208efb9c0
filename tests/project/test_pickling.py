"""A projector in another process: pickled, copied, forked, spawned, in a DataLoader; laws of modules, and lambdas."""

from __future__ import annotations

import copy
import pickle
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader

import snapfm
from snapfm import Equality, Projector
from snapfm.compile import MatrixFreeLaws, compiled
from snapfm.compile.lower import regions
from snapfm.compile.sparsity import pattern
from snapfm.errors import LawError, MissingDependency
from snapfm.project import pickling as travel

sys.path.append(str(Path(__file__).parent))  # workers that are spawned import the laws by their own name
from travelling_laws import KINDS, PARAMS, SHAPE, Projected, bits, randn, spectrum, total


@pytest.fixture(autouse=True)
def _arrived() -> None:
    travel._prepared.cache_clear()


@pytest.fixture(scope="module")
def projectors() -> dict[str, Projector]:
    return {name: make() for name, make in KINDS.items()}


def same(one: list[Tensor], other: list[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_a_pickled_projector_gives_the_same_bits_with_the_same_settings(kind: str, projectors: dict[str, Projector]):
    project = projectors[kind]
    expected = bits(project)  # before and after: what a call leaves behind does not travel
    again = pickle.loads(pickle.dumps(project))
    assert type(again) is type(project)
    assert again.method is not project.method
    for setting in ("shape", "tolerance", "limit", "seconds", "linear"):
        assert getattr(again, setting) == getattr(project, setting)
    assert same(bits(again), expected)


def test_a_recipe_is_small_and_is_prepared_once_per_process(projectors: dict[str, Projector]):
    batch = {"m": torch.full((10_000, 5), 2.0)}
    sent = pickle.dumps(Projector([Equality("total", total)], SHAPE, batch))
    assert len(sent) < 4000
    one, two = pickle.loads(sent), pickle.loads(sent)
    assert one is not two
    assert one.method is two.method
    one.tolerance = 1e-3  # settings are its own
    assert two.tolerance == 1e-8
    pickle.loads(pickle.dumps(projectors["kinks"]))
    pickle.loads(pickle.dumps(projectors["march"]))
    assert travel._prepared.cache_info().currsize == 2  # memory of old ones is given back


@pytest.mark.parametrize("twin", [copy.copy, copy.deepcopy])
def test_copies_share_what_is_prepared(twin: Callable[[Projector], Projector], projectors: dict[str, Projector]):
    project = projectors["nonlinear"]
    again = twin({"held": project})["held"] if twin is copy.deepcopy else twin(project)
    assert again is not project
    assert again.method is project.method
    assert same(bits(again), bits(project))


def test_a_result_travels_without_its_warm_start(projectors: dict[str, Projector]):
    project, u_hat = projectors["nonlinear"], randn(4, *SHAPE)
    result = project(u_hat, PARAMS)
    assert result.warm is not None
    for there in (pickle.loads(pickle.dumps(result)), copy.deepcopy(result)):
        assert there.warm is None
        assert torch.equal(there.u, result.u)
        assert project(u_hat, PARAMS, warm=there).converged.all()  # multipliers are warm enough


def test_a_matrix_free_projector_travels_without_a_warning(monkeypatch: pytest.MonkeyPatch):
    for module in (regions, compiled, pattern):
        monkeypatch.setattr(module, "ENTRY_LIMIT", 10)
    project = Projector([Equality("spectrum", spectrum)], (8, 8))
    assert isinstance(project.structure, MatrixFreeLaws)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again, near = pickle.loads(pickle.dumps(project)), copy.deepcopy(project)
    u_hat = randn(2, 8, 8)
    assert torch.equal(again(u_hat).u, project(u_hat).u)
    assert torch.equal(near(u_hat).u, project(u_hat).u)


# Lambdas.


def test_lambdas_travel_by_value():
    pytest.importorskip("cloudpickle", reason="lambdas travel with cloudpickle, which is not installed")
    level = torch.tensor(3.0)
    project = Projector([Equality("level", lambda u, p: (u**2).sum(0) - level * p["m"])], SHAPE, PARAMS)
    assert same(bits(pickle.loads(pickle.dumps(project))), bits(project))


def test_without_cloudpickle_a_lambda_is_named_with_the_extra(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(travel, "_by_value", lambda: None)
    project = Projector([Equality("total", total), Equality("mean", lambda u, p: u.mean())], SHAPE, PARAMS)
    with pytest.raises(MissingDependency, match=r"law 'mean' does not pickle .* pip install 'snapfm\[ray\]'"):
        pickle.dumps(project)


def test_a_law_that_holds_a_file_is_named(tmp_path):
    pytest.importorskip("cloudpickle", reason="lambdas travel with cloudpickle, which is not installed")
    with (tmp_path / "log.txt").open("w") as log:
        law = Equality("loud", lambda u, p: u.sum() if log.closed else u.mean())
        with pytest.raises(LawError, match=r"law 'loud' does not pickle .* tensors and numbers only"):
            pickle.dumps(Projector([law], SHAPE))


# Workers of a DataLoader.


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_workers_of_a_data_loader_hold_projectors(start: str, projectors: dict[str, Projector]):
    # A spawned worker prepares everything again: two kinds are enough.
    held = projectors if start == "fork" else {name: projectors[name] for name in ("nonlinear", "metric")}
    loader = DataLoader(
        Projected(held), batch_size=None, num_workers=1, multiprocessing_context=start, timeout=300
    )  # fmt: skip
    for found, project in zip(loader, held.values(), strict=True):
        assert same(found, bits(project))


def test_a_sampler_takes_one_that_arrived(projectors: dict[str, Projector]):
    there = pickle.loads(pickle.dumps(projectors["nonlinear"]))
    drawn = [
        snapfm.sample(lambda u, tau: -u, one, PARAMS, 3, 4, torch.Generator().manual_seed(0)).u
        for one in (projectors["nonlinear"], there)
    ]
    assert torch.equal(*drawn)
