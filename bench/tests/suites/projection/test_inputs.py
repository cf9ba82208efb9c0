"""Inputs: the same bytes whenever they are made, named by what they are, never half there."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from bench.tests.suites.projection.toys import suite_file
from torch import Tensor

from snapfm.errors import DataError
from snapfm.project import Projector
from snapfm_bench.suites.projection import ProjectionSuite, inputs, load_suite

WALKED = {
    "noisy = 0.01": 'model = "heat-small"\ntaus = [0.0, 0.5, 1.0]\nsteps = 2',
    "burgers-bc-mass": "heat-ic-mass",
    "settings = { nx = 11, nt = 9 }": "",
}


@pytest.fixture
def suite(tmp_path: Path) -> ProjectionSuite:
    return load_suite(str(suite_file(tmp_path, ["ours"])))


def test_made_twice_they_are_the_same_and_survive_a_file(suite: ProjectionSuite, tmp_path: Path):
    case = suite.cases[0]
    first, second = inputs.make(suite, case), inputs.make(suite, case)
    assert first.digest() == second.digest()
    assert [*first.fields] == ["truth + noise"]
    file = tmp_path / "inputs.npz"
    file.write_bytes(inputs.pack(first, "made-from"))
    assert inputs.kept(file) == inputs.Kept("made-from", first.digest(), first.rows)
    found = inputs.load(file, first.digest())
    assert found.rows == first.rows
    for label, values in first.fields.items():
        assert torch.equal(found.fields[label], values)
    for name, values in first.params.items():
        assert torch.equal(found.params[name], values)
        assert len(values) == case.samples
    with pytest.raises(DataError, match=r"expected to hold inputs 0000; got .*Remove it: it will be made again"):
        inputs.load(file, "0000")


def test_a_damaged_file_counts_as_none(tmp_path: Path, suite: ProjectionSuite):
    file = tmp_path / "inputs.npz"
    assert inputs.kept(file) is None
    content = inputs.pack(inputs.make(suite, suite.cases[0]), "made-from")
    for length in (0, 10, len(content) // 2):
        file.write_bytes(content[:length])
        assert inputs.kept(file) is None


def test_the_fingerprint_knows_what_inputs_are_made_from(tmp_path: Path, suite: ProjectionSuite):
    first = inputs.fingerprint(suite, suite.cases[0])
    for old, new in (("noisy = 0.01", "noisy = 0.02"), ("threads = 1", "seed = 7"), ("nx = 11", "nx = 12")):
        other = load_suite(str(suite_file(tmp_path, ["ours"], changes={old: new})))
        assert inputs.fingerprint(other, other.cases[0]) != first
    other = load_suite(str(suite_file(tmp_path, ["ours", "good"], changes={"repeats = 2": "repeats = 9"})))
    assert inputs.fingerprint(other, other.cases[0]) == first
    walked = load_suite(str(suite_file(tmp_path, ["ours"], changes={**WALKED, "heat-small": "moon"})))
    assert inputs.fingerprint(walked, walked.cases[0]) is None


def test_recorded_inputs_are_what_a_walk_feeds_its_projector(tmp_path: Path):
    suite = load_suite(str(suite_file(tmp_path, ["ours"], changes=WALKED)))
    found = inputs.make(suite, suite.cases[0])
    assert [*found.fields] == ["tau 0.00", "tau 0.50", "tau 1.00"]
    first, last = (_violation(suite, found.fields[label][0], found.params) for label in ("tau 0.00", "tau 1.00"))
    assert first > 1e-2  # a network's word
    assert last < 1e-10  # projected before: affine laws hold to rounding


def test_a_walk_ends_when_its_inputs_are_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    changes = {**WALKED, "noisy = 0.01": WALKED["noisy = 0.01"].replace("[0.0, 0.5, 1.0]", "[0.0]")}
    whole, short = (load_suite(str(suite_file(tmp_path, ["ours"], changes=one))) for one in (WALKED, changes))
    wanted = inputs.make(whole, whole.cases[0]).fields["tau 0.00"]
    moves = []
    move = Projector.move
    monkeypatch.setattr(Projector, "move", lambda *given, **asked: moves.append(1) or move(*given, **asked))
    found = inputs.make(short, short.cases[0])
    assert torch.equal(found.fields["tau 0.00"], wanted)
    assert len(moves) == 1  # that which compiles the kernels


def _violation(suite: ProjectionSuite, u: Tensor, params: dict[str, Tensor]) -> float:
    own = {name: value[0] for name, value in params.items()}
    return max(float(law.residual(u, own).abs().max()) for law in suite.cases[0].build().laws)
