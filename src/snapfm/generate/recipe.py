"""Recipe: what a caller asks of a file of samples. With the model's weights and the machine it decides every bit."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from snapfm.data.recipe import DtypeName, check_request
from snapfm.errors import DataError
from snapfm.problems import Problem, problem


@dataclass(frozen=True)
class Recipe:
    """Which samples a file holds: sample i is drawn from (seed, i), its params and its noise.

    `model` is the name of a shipped model or the folder of a checkpoint; None is the shipped one of the problem's equation.
    `batch` samples go through the network at once and are one block of the file. Networks round by the size of their
    batch, so the last block is drawn whole too: the bits of sample i do not depend on the count, unless that is below the
    batch, which it then replaces. `threads` are those of the network, None as many as torch has now.
    """

    problem: str
    count: int
    model: str | Path | None = None
    steps: int = 20
    seed: int = 0
    batch: int = 32
    tolerance: float = 1e-8
    dtype: DtypeName = "float64"
    settings: Mapping[str, Any] = field(default_factory=dict)
    threads: int | None = None

    def __post_init__(self) -> None:
        check_request("sample", self.count, self.seed, self.dtype)
        for name, default in (("steps", 20), ("batch", 32), ("threads", None)):
            value = getattr(self, name)
            if value != default and (not isinstance(value, int) or value < 1):
                raise DataError(f"sample({name}) expects a whole number >= 1; got {value!r}. The default is {default}.")
        if not isinstance(self.tolerance, int | float) or not 0 < self.tolerance < math.inf:
            raise DataError(
                f"sample(tolerance) expects a positive number; got {self.tolerance!r}. The default is 1e-8, in the laws' "
                "own units."
            )

    def build(self) -> Problem:
        """Build the problem, refusing unknown names and settings."""
        return problem(self.problem, **self.settings)
