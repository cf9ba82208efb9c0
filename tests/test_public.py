"""The public names: those of the contract, importable, and light to import."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import inspect
import subprocess
import sys

import pytest
import torch

import snapfm
from snapfm.errors import MissingDependency, SnapfmError, UnknownName

CONTRACT = {"Equality", "Inequality", "Bounds", "Oracle", "Projector", "Projection", "Status", "sample", "problem"}
RESULT = {
    "u", "status", "converged", "violation", "stationarity", "iterations", "distance", "multipliers", "by_law",
    "raise_for_status",
}  # fmt: skip


def test_the_names_of_the_contract_are_public():
    assert set(snapfm.__all__) >= CONTRACT


@pytest.mark.parametrize("name", snapfm.__all__)
def test_every_public_name_can_be_had_and_says_what_it_is(name: str):
    assert inspect.getdoc(getattr(snapfm, name))


def test_public_names_are_listed_once_and_in_order():
    assert snapfm.__all__ == sorted(set(snapfm.__all__))


def test_the_root_of_exceptions_is_where_the_contract_says():
    assert snapfm.errors.SnapfmError is SnapfmError


def test_the_version_is_that_of_the_package():
    assert snapfm.__version__ == importlib.metadata.version("snapfm")


def test_arguments_have_the_names_of_the_contract():
    def names(function: object) -> list[str]:
        return list(inspect.signature(function).parameters)  # type: ignore[arg-type]

    assert names(snapfm.Projector)[:4] == ["laws", "shape", "params", "tolerance"]
    assert names(snapfm.sample)[:6] == ["velocity", "project", "params", "count", "steps", "generator"]
    assert "on_failure" in names(snapfm.sample)
    assert names(snapfm.Bounds)[:2] == ["lower", "upper"]


def test_results_have_the_fields_of_the_contract():
    fields = {field.name for field in dataclasses.fields(snapfm.Projection)}
    assert fields | {"converged", "raise_for_status"} >= RESULT
    assert {field.name for field in dataclasses.fields(snapfm.Samples)} >= {"u", "projection", "seconds"}


@pytest.mark.parametrize("kind", [snapfm.Equality, snapfm.Inequality])
def test_a_law_has_a_name_and_a_residual_of_one_field(kind: type):
    law = kind("mass", lambda u, p: u.sum(0) - p["m"])
    assert law.name == "mass"
    assert law.residual(torch.ones(3, 2), {"m": torch.tensor(1.0)}).tolist() == [2.0, 2.0]


def test_bounds_have_their_limits():
    bounds = snapfm.Bounds(lower=0.0)
    assert (bounds.lower, bounds.upper, bounds.name) == (0.0, None, "bounds")


def test_a_problem_has_what_the_contract_lists():
    problem = snapfm.problem("heat-ic-mass", nx=6, nt=5)
    assert problem.grid.shape == (6, 5)
    assert [law.name for law in problem.laws] == ["initial", "mass"]
    generator = torch.Generator().manual_seed(0)
    assert {name: tuple(value.shape) for name, value in problem.params(3, generator).items()} == {"u0": (3, 6)}
    assert problem.simulate(3, generator).shape == (3, 6, 5)


def test_an_unknown_problem_is_told_with_the_known_ones():
    with pytest.raises(UnknownName) as caught:
        snapfm.problem("heat")
    told = str(caught.value)
    assert told.startswith("snapfm.problem(name) expects one of [")
    for part in ("'heat-ic-mass'", "got 'heat'", "`snapfm problems` lists them"):
        assert part in told


def test_without_the_bench_a_problem_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "snapfm_bench", None)
    with pytest.raises(MissingDependency) as caught:
        snapfm.problem("heat-ic-mass")
    assert str(caught.value) == (
        "snapfm_bench is needed for snapfm.problem; it is not installed. Install it with: pip install snapfm-bench"
    )


def test_imports_in_any_order_load_no_optional_package():
    """In one process: a module of the inside first, then subpackages as attributes nobody imported, then all names."""
    optional = [
        "snapfm_bench", "neuralop", "safetensors", "matplotlib", "casadi", "ray", "nvmath", "zarr", "xarray", "flow_matching",
        "torchcfm", "ot",
    ]  # fmt: skip
    code = (
        "import sys, snapfm.reduce.reduce\n"  # before the laws that are printed with it
        "own = 'snapfm.adapters', 'snapfm.metrics', 'snapfm.sampling'\n"
        "print([name for name in own if name in sys.modules])\n"
        "import snapfm\n"
        "print([snapfm.adapters.flat.__name__, snapfm.metrics.__name__, snapfm.sampling.PCFM.__name__])\n"
        "import snapfm.linear\n"
        "from snapfm import *\n"
        f"print([name for name in {optional} if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]", "['Flat', 'snapfm.metrics', 'PCFM']", "[]"]


def test_an_unknown_attribute_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'snapfm' has no attribute 'Sampler'"):
        _ = snapfm.Sampler
    assert set(snapfm.__all__) <= set(dir(snapfm))


def test_a_missing_package_inside_a_subpackage_is_not_hidden(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delitem(sys.modules, "snapfm.adapters", raising=False)
    monkeypatch.delattr(snapfm, "adapters", raising=False)
    for name in [name for name in sys.modules if name.startswith("snapfm.adapters")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "snapfm.adapters.base", None)
    with pytest.raises(ModuleNotFoundError, match=r"snapfm\.adapters\.base"):
        _ = snapfm.adapters


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["project", "--help"], ["train", "--help"]])
def test_help_and_version_do_not_wait_for_torch(arguments: list[str]):
    code = (
        "import sys\nfrom snapfm.cli import main\n"
        f"sys.argv[1:] = {arguments}\n"
        "try: main()\nexcept SystemExit: pass\n"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"
