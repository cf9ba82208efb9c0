"""Lists that mix kinds of law, as users write them: `make types` checks this file, test_typed.py runs it."""

import torch

import snapfm
from snapfm import Bounds, Equality, Inequality, Law, Projector

mixed = [Equality("mass", lambda u, p: u.sum() - 1.0), Bounds(lower=0.0)]
Projector(mixed, (4, 5))
Projector([Inequality("decay", lambda u, p: u[1:] - u[:-1]), Bounds(lower=0.0)], (4,))


def more(laws: list[Law]) -> list[Law]:
    return [*laws, Inequality("top", lambda u, p: u[0] - 0.5)]


named: list[snapfm.Law] = [*mixed]
out = snapfm.sample(lambda u, tau: -u, Projector(more(named), (4, 5)), count=2, batch=1, seed=3)
total: torch.Tensor = out.u.sum()
