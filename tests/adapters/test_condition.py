"""Extra inputs: row i belongs to sample i, in any chunk, through any other adapter."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.adapters.toys import SHAPE, energies, energy_projector, is_in_three_parts, seeded
from torch import Tensor, nn

import snapfm
from snapfm import adapters
from snapfm.errors import SnapfmError


def model(u: Tensor, tau: Any, *, shift: Tensor, label: Tensor) -> Tensor:
    assert shift.dtype == u.dtype
    assert label.dtype == torch.int64
    return shift[:, :, None] + label[:, None, None] - u


SHIFT = torch.randn(7, SHAPE[0], generator=seeded(1), dtype=torch.float64)
LABEL = torch.arange(7) % 3


def draw(velocity: Any, count: int, first: int = 0) -> Tensor:
    project, params = energy_projector(), {"energy": energies()}
    return snapfm.sample(velocity, project, params, count, 3, seeded(2), first=first, dtype=torch.float64).u


def test_each_sample_gets_its_row():
    u = torch.randn(7, *SHAPE, generator=seeded(3), dtype=torch.float64)
    velocity = adapters.conditioned(model, shift=SHIFT, label=LABEL)
    assert torch.equal(velocity(u, 0.5), SHIFT[:, :, None] + LABEL[:, None, None] - u)
    shared = adapters.conditioned(model, shift=SHIFT[:1], label=LABEL)
    assert torch.equal(shared(u, 0.5), SHIFT[:1, :, None] + LABEL[:, None, None] - u)


def wrap(kind: str) -> Any:
    velocity = adapters.conditioned(model, shift=SHIFT, label=LABEL)
    if kind == "outside":
        return adapters.Normalized(adapters.conditioned(velocity.model, shift=SHIFT, label=LABEL), 0.2, 3.0)
    if kind == "inside":
        keyed = adapters.field_first(lambda u, tau, **inputs: model(u, tau, **inputs))
        return adapters.conditioned(adapters.conditioned(keyed, shift=SHIFT), label=LABEL)
    return velocity


@pytest.mark.parametrize("kind", ["alone", "outside", "inside"])
def test_rows_follow_their_samples_into_chunks(kind: str):
    velocity = wrap(kind)
    whole = draw(velocity, 7)
    parts = [draw(velocity, 3), draw(velocity, 2, first=3), draw(velocity, 2, first=5)]
    # Another seed per call would be another run: every chunk draws with the seed of the whole.
    assert torch.equal(torch.cat(parts), whole)
    assert not torch.equal(draw(velocity, 2, first=0)[0], draw(velocity, 2, first=1)[0])


def test_choosing_rows_leaves_the_velocity_as_it_was_and_shares_its_weights():
    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(()))

        def forward(self, tau: Tensor, u: Tensor, shift: Tensor) -> Tensor:
            return self.weight * shift[:, :, None] - u

    velocity = adapters.channels(adapters.conditioned(adapters.time_first(Network()), shift=SHIFT[:, None]))
    chosen = velocity.of_samples(2, 3)
    assert [len(part.model.get_buffer("input_shift")) for part in (velocity, chosen)] == [7, 3]
    assert [a is b for a, b in zip(velocity.parameters(), chosen.parameters())] == [True]
    assert torch.equal(chosen.model.get_buffer("input_shift"), SHIFT[2:5, None])


def test_a_velocity_without_rows_is_itself_for_all_samples():
    velocity = adapters.channels(adapters.flat(lambda u, tau: -u))
    assert velocity.of_samples(3, 4) is velocity


@pytest.mark.parametrize(
    ("mistake", "expected", "came", "cure"),
    [
        (lambda: adapters.conditioned(model, shift=3.0), "expects a tensor with one row per sample", "got float", "[None]"),
        (
            lambda: adapters.conditioned(model, shift=torch.tensor(1.0)),
            "expects a tensor with one row per sample", "got shape ()", "leading axis of 1",
        ),
        (
            lambda: draw(adapters.conditioned(model, shift=SHIFT, label=LABEL), 3, first=5),
            "shift=…) expects a row for each of samples 0 .. 7", "got 7", "Row i belongs to sample i",
        ),
        (
            lambda: adapters.conditioned(model, shift=SHIFT, label=LABEL)(torch.zeros(2, *SHAPE), 0.5),
            "expects a row for each of 2 fields, or one for all", "got 7", "of_samples(first, count)",
        ),
    ],
    ids=["number", "no axis", "too few", "another batch"],
)  # fmt: skip
def test_a_mistake_is_in_three_parts(mistake: Any, expected: str, came: str, cure: str):
    with pytest.raises(SnapfmError) as caught:
        mistake()
    assert is_in_three_parts(str(caught.value), expected, came, cure), str(caught.value)
