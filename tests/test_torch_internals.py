"""What is used of torch's insides is in one file, and each function has a way out where torch lacks it."""

from __future__ import annotations

import re
from collections import namedtuple
from pathlib import Path

import pytest
import torch

import snapfm
from snapfm import torch_internals
from snapfm.compile.trace.recording import Unrecordable, record, recorded

SOURCES = Path(snapfm.__file__).parent
Pair = namedtuple("Pair", "a b")
TREE = {"one": [1, (2, 3)], "two": Pair(4, {"five": 5})}


def test_nothing_else_names_what_is_private_in_torch():
    private = re.compile(r"torch(\.\w+)*\._(?!_version__)|from torch(\.\w+)* import .*\b_\w")
    found = [
        f"{file.relative_to(SOURCES)}: {line.strip()}"
        for file in SOURCES.rglob("*.py")
        if file.name != "torch_internals.py"
        for line in file.read_text().splitlines()
        if private.search(line) and not re.search(r"torch\.(__(version|file)__|ops\.)", line)  # operators are public
    ]
    assert found == []


def test_trees():
    assert torch_internals.tree_leaves(TREE) == [1, 2, 3, 4, 5]
    doubled = torch_internals.tree_map(lambda one: 2 * one, TREE)
    assert doubled == {"one": [2, (4, 6)], "two": Pair(8, {"five": 10})}
    assert isinstance(doubled["two"], Pair)


def test_operators():
    add, add_ = torch.ops.aten.add.Tensor, torch.ops.aten.add_.Tensor
    assert isinstance(add, torch_internals.OpOverload)
    assert not isinstance(torch.add, torch_internals.OpOverload)
    assert (torch_internals.is_mutable(add), torch_internals.is_mutable(add_)) == (False, True)
    assert torch_internals.schema(add).name == "aten::add"


def test_where_torch_cannot_say_it_may_be_transforming(monkeypatch: pytest.MonkeyPatch):
    assert not torch_internals.transformed()
    assert torch.func.vmap(lambda x: x + float(torch_internals.transformed()))(torch.zeros(2)).tolist() == [1.0, 1.0]
    monkeypatch.setattr(torch_internals, "_modes", None)
    assert torch_internals.transformed()


def test_tensors_of_a_transform_are_known(monkeypatch: pytest.MonkeyPatch):
    found: list[bool] = []

    def look(x: torch.Tensor) -> torch.Tensor:
        found.append(torch_internals.wrapped(x))
        return x

    torch.func.vmap(look)(torch.zeros(2))
    look(torch.zeros(2))
    monkeypatch.setattr(torch_internals, "_is_wrapped", None)
    torch.func.vmap(look)(torch.zeros(2))
    assert found == [True, False, False]


def test_what_is_gone_is_left_to_torch(monkeypatch: pytest.MonkeyPatch):
    assert torch_internals.decompositions([torch.ops.aten.addcmul])
    monkeypatch.setattr(torch_internals, "_found", lambda module, name: None)
    assert torch_internals.decompositions([torch.ops.aten.addcmul]) == {}
    torch_internals.silence_vmap()


def test_a_module_or_a_name_that_is_gone_is_none():
    assert torch_internals._found("torch._no_such_module", "anything") is None
    assert torch_internals._found("torch", "_no_such_function") is None


@pytest.mark.parametrize("gone", [False, True], ids=["torch's", "ours"])
def test_operators_that_autograd_has_not_seen_are_taken_apart(monkeypatch: pytest.MonkeyPatch, gone: bool):
    if gone:
        monkeypatch.setattr(torch_internals, "_decomposes", None)
    x = torch.rand(2, 3)
    parts = torch_internals.decomposed(torch.ops.aten.reshape.default, (x, [3, 2]), {})
    assert torch.equal(parts, x.reshape(3, 2))
    assert torch_internals.decomposed(torch.ops.aten.sin.default, (x,), {}) is NotImplemented


def test_where_a_graph_cannot_unpack_its_inputs_torch_records(monkeypatch: pytest.MonkeyPatch):
    point = {"x": torch.ones(3)}
    monkeypatch.setattr(torch_internals, "_unpacking", None)
    with pytest.raises(Unrecordable):
        record(lambda p: p["x"].sin(), point, decompositions={})
    assert torch.equal(recorded(lambda p: p["x"].sin(), point)({"x": torch.zeros(3)}), torch.zeros(3))
