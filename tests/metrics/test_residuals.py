from __future__ import annotations

import torch

from snapfm.laws import Bounds, Equality, Inequality
from snapfm.metrics.residuals import residuals


def test_equality_counts_both_signs_and_each_sample_reads_its_own_params():
    law = Equality("first", lambda u, p: u[:, 0] - p["u0"])
    u = torch.zeros(2, 3, 5)
    params = {"u0": torch.tensor([[1.0, 0.0, 0.0], [0.0, -2.0, 0.0]])}
    assert residuals(law, u, params).tolist() == [[1.0, 0.0, 0.0], [0.0, 2.0, 0.0]]


def test_params_of_one_row_are_shared_by_all_samples():
    law = Equality("first", lambda u, p: u[:, 0] - p["u0"])
    judged = residuals(law, torch.zeros(2, 3, 5), {"u0": torch.ones(1, 3)})
    assert judged.tolist() == [[1.0] * 3] * 2


def test_inequality_counts_only_what_is_positive():
    law = Inequality("below", lambda u, p: u[0])
    u = torch.tensor([[[-3.0, 2.0]]])
    assert residuals(law, u, {}).tolist() == [[0.0, 2.0]]


def test_bounds_count_the_excess_on_either_side():
    u = torch.tensor([[[-3.0, 0.5, 2.0]]])
    assert residuals(Bounds(lower=-1.0, upper=1.0), u, {}).tolist() == [[2.0, 0.0, 1.0]]
    assert residuals(Bounds(lower=-1.0), u, {}).tolist() == [[2.0, 0.0, 0.0]]


def test_float32_fields_are_judged_in_float64():
    law = Equality("point", lambda u, p: u - p["u0"])
    u = torch.full((1, 1), 0.1, dtype=torch.float32)
    asked = torch.full((1, 1), 0.1, dtype=torch.float64)
    judged = residuals(law, u, {"u0": asked})
    assert judged.dtype == torch.float64
    assert 0 < judged.item() < torch.finfo(torch.float32).eps  # the rounding of 0.1, which float32 would hide
