"""One sample for which a law raises must not take the others with it.

Operators such as torch.linalg.inv and cholesky raise where a matrix is singular, and raise for a whole batch when one sample
of it is. Here that sample gets NaN, which the judge reports as NONFINITE, and the others keep the bits they would have had.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

# What an operator raises because of the values it is given: torch.linalg.LinAlgError is a RuntimeError; overflow and division
# by zero are ArithmeticErrors; an index computed from the field may be out of range.
RAISED = (RuntimeError, ArithmeticError, IndexError, ValueError)


def spared(run: Callable[[Tensor | None], Tensor], count: int) -> Tensor:
    """Give run(None), a batch of `count`; where that raises, with NaN for the samples that raise by themselves.

    `run` takes the numbers of the samples to work on, None for all of them. A sample that raises is replaced by one that
    does not, so that the others are worked on in a batch of the same size and keep their bits. If there is none, raises what
    the samples raise.
    """
    try:
        return run(None)
    except RAISED:
        if count == 1:
            raise
    good, cause = [], None
    for number in range(count):
        try:
            run(torch.tensor([number]))
            good.append(number)
        except RAISED as error:
            cause = error
    if not good:
        assert cause is not None
        raise cause
    bad = torch.ones(count, dtype=torch.bool)
    bad[good] = False
    chosen = torch.where(bad, good[0], torch.arange(count))
    try:
        value = run(chosen)
    except RAISED:  # it is the batch that cannot be worked on, not a sample
        value = torch.cat([run(chosen[number : number + 1]) for number in range(count)])
    return torch.where(bad.reshape(-1, *[1] * (value.dim() - 1)).to(value.device), torch.nan, value)
