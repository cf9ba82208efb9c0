import pytest
import torch

from snapfm.problems import names, problem
from snapfm.problems.training import TRAINING_SETS, table


@pytest.mark.parametrize("equation", sorted(TRAINING_SETS))
def test_rows_share_the_initial_state_and_columns_what_it_leaves_open(equation: str) -> None:
    fields = table(equation, 2, 3, torch.Generator().manual_seed(0))
    shape = next(problem(name).grid.shape for name in names() if problem(name).equation == equation)
    assert fields.shape == (6, *shape)
    assert fields.dtype == torch.float64
    cells = fields.view(2, 3, *shape)
    start = cells[..., 0]
    inside = start[:, :, 1:-1]  # the ends of a Burgers slice are boundary values
    torch.testing.assert_close(inside, inside[:, :1].expand_as(inside))
    assert not torch.allclose(start[0], start[1])
    assert not torch.allclose(cells[:, 0], cells[:, 1])
    if equation == "burgers":
        left = cells[:, :, 0, 1:]
        torch.testing.assert_close(left[0], left[1])
    assert torch.equal(fields, table(equation, 2, 3, torch.Generator().manual_seed(0)))
    assert not torch.allclose(fields, table(equation, 2, 3, torch.Generator().manual_seed(1)))
