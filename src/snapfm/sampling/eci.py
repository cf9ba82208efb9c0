"""ECI sampling: extrapolate, correct, interpolate, several times at each step (math.md, eq. eci).

C. Cheng, B. Han, D. C. Maddix, A. F. Ansari, A. Stuart, M. W. Mahoney, Y. Wang, "Gradient-Free Generation for
Hard-Constrained Systems", ICLR 2025 (arXiv:2412.01786; code: amazon-science/ECI-sampling).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from snapfm.errors import ParamsError
from snapfm.project import Moved, Projection
from snapfm.sampling.settings import check_flag, is_count
from snapfm.sampling.task import Task


@dataclass(frozen=True)
class ECI:
    """Shoot, correct, and go back to the path `mixing` times per step; draw new noise every `renew` corrections, or never.

    Published: the released sampler leaves both numbers to its caller, problem by problem; 5 and 5 are those of a public
    run of it on PCFM's problems (ispamm/Projection-free-energy-guided-flow-matching), and None keeps the first noise, as
    there. Adapted: their correction is defined for given values, periodic ends and regional sums, law after law; here it is
    the projection onto all laws at once, which is the same where such laws do not touch one another and also serves
    any other law. The last correction is at τ = 1, so what is returned is a projection. With mixing=1 and renew=None this
    is PCFM without its last projection. `warm` starts each projection from the one before.
    """

    mixing: int = 5
    renew: int | None = 5
    warm: bool = True

    def __post_init__(self) -> None:
        if not is_count(self.mixing):
            raise ParamsError(f"ECI(mixing) expects a whole number >= 1; got {self.mixing!r}. The default is 5.")
        if self.renew is not None and not is_count(self.renew):
            raise ParamsError(
                f"ECI(renew) expects a whole number >= 1 or None; got {self.renew!r}. None keeps the first noise."
            )
        check_flag("ECI(warm)", self.warm)

    def run(self, task: Task) -> tuple[Tensor, Projection]:
        """Walk the task's times."""
        task.laws()
        u, noise, corrected = task.noise, task.noise, 0
        last: Moved | Projection | None = None
        corrections = self.mixing * (len(task.times) - 1)
        with torch.no_grad():
            for tau, later in pairwise(task.times):
                for turn in range(1, self.mixing + 1):
                    corrected += 1
                    if self.renew is not None and corrected % self.renew == 0:
                        noise = task.renew()
                    shot = task.shoot(u, tau)
                    if corrected == corrections:
                        break
                    last = task.move(shot, last if self.warm else None)
                    u = task.path.pull_back(noise, last.u, later if turn == self.mixing else tau)
                else:
                    task.tick()
            found = task.project(shot, last if self.warm else None)
            task.tick()
        return found.u, found
