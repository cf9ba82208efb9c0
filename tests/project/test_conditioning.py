"""Draws given nonlinear laws: a linearization that leads away from the laws is not followed."""

import torch

from snapfm import Equality, Projector
from snapfm.project.conditioning import Conditioning
from snapfm.project.metric import Metric

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
    alone = Conditioning(projector, Metric(1e-12), None, 1, rounds=6)
    for i in range(len(FAR)):
        one, _ = alone.draw(FAR[i : i + 1], torch.arange(1), [Metric(1e-12)], torch.zeros(1, 2).double(), along[:1])
        assert torch.equal(one[0], together[i])
