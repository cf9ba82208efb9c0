"""The memory of a call: predicted, reduced by smaller pieces, stated before it is allocated."""

import tracemalloc

import pytest
import torch

import snapfm
from snapfm.errors import MemoryWarning
from snapfm.kernels.operations import LANES
from snapfm.linear import Fronts
from snapfm.solve import memory
from snapfm.text import bytes_text

SIDE = 24


def _cubic(u, p):
    middle = u[1:-1, 1:-1]
    return u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * middle - middle**3


def _step(u, p):
    new = u[1:]
    return new - u[:-1] - 0.1 * (torch.roll(new, 1, 1) - 2 * new + torch.roll(new, -1, 1)) + new**3


CASES = {
    "tiles": ([snapfm.Equality("cubic", _cubic)], None),
    "fronts": ([snapfm.Equality("cubic", _cubic)], Fronts()),
    "march": ([snapfm.Equality("initial", lambda u, p: u[0] - 1.0), snapfm.Equality("step", _step)], None),
}


def _projector(name):
    laws, linear = CASES[name]
    return snapfm.Projector(laws, (SIDE, SIDE), linear=linear)


@pytest.fixture(params=list(CASES))
def project(request):
    return _projector(request.param)


def _batch(count):
    return torch.rand(count, SIDE, SIDE, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize("name", list(CASES))
def test_a_call_takes_about_what_is_predicted(name):
    _projector(name)(_batch(1))  # compiles
    for samples in (3, LANES):
        project = _projector(name)  # without memory of earlier calls
        tracemalloc.start()
        project(_batch(samples))
        taken = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert 0.2 * project.method.bytes(samples) < taken < 1.5 * project.method.bytes(samples) + 1e6


def test_pieces_shrink_before_anything_is_said(project, monkeypatch):
    """Answers are the same bits; the warning comes where one sample is already too much, and then the call still works."""
    u = _batch(2 * LANES)
    whole = project(u)
    monkeypatch.setattr(memory, "MULTIPLE", 0)
    monkeypatch.setattr(memory, "SMALL", 1.01 * project.method.bytes(1))
    small = project(u)
    assert torch.equal(whole.u, small.u)
    monkeypatch.setattr(memory, "SMALL", 0.9 * project.method.bytes(1))
    with pytest.warns(MemoryWarning, match=r"about to take .* GB.*576 unknowns.*coarser field") as said:
        stated = project(u)
    assert said[0].filename == __file__
    assert torch.equal(whole.u, stated.u)
    with pytest.warns(MemoryWarning):
        project.move(u)


def test_the_pieces_of_a_call_are_kept_until_something_it_depends_on_changes(project):
    method = project.method.executor
    found = method._cut(20, True, 500)
    assert method._cut(20, True, 500) is found
    for other in ((21, True, 500), (20, False, 500), (20, True, 400)):
        assert method._cut(*other) is not found
    assert method._cut(20, True, 500) == found
    assert [number for piece in found.pieces for number in range(20)[piece]] == list(range(20))


def test_fitted_shrinks_to_tiles_then_threads_then_samples():
    def predict(samples):
        return 100.0 + 10.0 * samples

    assert memory.fitted(predict, 64, 4, 1e6) == (64, 4)
    assert memory.fitted(predict, 64, 4, 4 * 180.0) == (LANES, 4)
    assert memory.fitted(predict, 64, 4, 2 * 180.0) == (LANES, 2)
    assert memory.fitted(predict, 64, 4, 125.0) == (2, 1)
    assert memory.fitted(predict, 64, 4, 1.0) == (1, 1)
    assert memory.fitted(predict, 1, 1, 1.0) == (1, 1)


def test_large_batches_may_take_a_multiple_of_themselves():
    assert memory.allowed(1, 1000) == memory.SMALL
    assert memory.allowed(1000, 1_000_000) == memory.MULTIPLE * 8e9


def test_the_description_names_the_memory(project):
    _, _, line = " ".join(str(project.structure).split()).partition("memory of a call")
    assert f"{bytes_text(project.method.bytes(1))} for one sample" in line
    assert f"{bytes_text(project.method.bytes(LANES))} for 8 at once" in line
