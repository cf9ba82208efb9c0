"""Draws given nonlinear laws: slopes serve again while they contract; a linearization that leads away is not followed."""

from typing import Any

import torch

from snapfm import Equality, Inequality, Projector
from snapfm.project.linearized import TangentFrame
from snapfm.project.metric import Metric
from snapfm.sampling.conditional.conditioning import Conditioning

# Newton's method on the arctangent leaves for good from |u| > 1.4: each step lands further out on the other side.
FAR = torch.tensor([[3.0, 0.0], [0.5, 0.0], [-40.0, 0.0]], dtype=torch.float64)


def test_a_draw_never_breaks_the_laws_more_than_the_draw_without_them() -> None:
    law = Equality("arctangent", lambda u, p: torch.atan(u[:1]))
    near = Conditioning(Projector([law], (2,)), Metric(1e-12), None, len(FAR), rounds=6)
    white, along = torch.zeros_like(FAR), torch.zeros(len(FAR), 0, dtype=torch.float64)
    drawn, _ = near.draw(FAR, torch.arange(len(FAR)), [Metric(1e-12)] * len(FAR), white, along)
    assert bool((drawn[:, 0].abs() <= FAR[:, 0].abs()).all())
    assert bool((near.settle(drawn)[:, 0].abs() < 1e-8).all())


def test_a_sample_does_not_see_the_steps_of_another() -> None:
    law = Equality("arctangent", lambda u, p: torch.atan(u[:1]))
    projector, along = Projector([law], (2,)), torch.zeros(len(FAR), 0, dtype=torch.float64)
    near = Conditioning(projector, Metric(1e-12), None, len(FAR), rounds=6)
    together, _ = near.draw(FAR, torch.arange(len(FAR)), [Metric(1e-12)] * len(FAR), torch.zeros_like(FAR), along)
    for i in range(len(FAR)):
        alone = Conditioning(projector, Metric(1e-12), None, 1, rounds=6)
        one, _ = alone.draw(FAR[i : i + 1], torch.arange(1), [Metric(1e-12)], torch.zeros(1, 2).double(), along[:1])
        assert torch.equal(one[0], together[i])


def test_slopes_are_kept_while_they_contract() -> None:
    law = Equality("circle", lambda u, p: (u * u).sum().reshape(1) - 1.0)
    near = Conditioning(Projector([law], (2,)), Metric(1.0), None, 1, rounds=2)
    linearized, found = near.near.frames, []

    def counted(*given: Any) -> list[TangentFrame]:
        found.append(given)
        return linearized(*given)

    near.near.frames = counted  # type: ignore[method-assign]

    def distance(x: float, y: float) -> float:
        white, along = torch.zeros(1, 2).double(), torch.zeros(1, 0).double()
        drawn, _ = near.draw(torch.tensor([[x, y]]).double(), torch.arange(1), [Metric(1.0)], white, along)
        return abs(float(drawn.norm()) - 1.0)

    def off_by(x: float, y: float) -> tuple[bool, int]:
        return distance(x, y) < 0.03, len(found)

    assert off_by(1.2, 0.0) == (True, 2)
    assert off_by(1.1, 0.1) == (True, 2)  # the same slopes serve
    assert off_by(0.0, 1.2) == (True, 4)  # they are those of another side
    assert off_by(0.1, 1.2) == (True, 4)


def test_inequalities_take_no_part_in_a_draw() -> None:
    laws = [
        Equality("sum", lambda u, p: u.sum().reshape(1) - 1.0),
        Inequality("energy", lambda u, p: u * u - 1.0),
    ]
    near = Conditioning(Projector(laws, (3,)), Metric(1.0), None, 2, rounds=2)
    assert len(near.near.system.rows) == 1
    assert near.near.system.constant  # though an inequality is not affine
    center = torch.tensor([[3.0, 0.0, 0.0], [0.2, 0.2, 0.2]]).double()
    drawn, obeys = near.draw(
        center, torch.arange(2), [Metric(1.0)] * 2, torch.zeros_like(center), torch.zeros(2, 0).double()
    )
    torch.testing.assert_close(drawn.sum(dim=1), torch.ones(2).double())
    assert obeys.tolist() == [False, True]
