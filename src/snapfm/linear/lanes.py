"""Lanes: sparse LDLᵀ with the batch as the SIMD lane, eight samples to a tile, on the thread that calls.

The solver of choice on a CPU. One symbolic analysis serves all lanes, calls and threads; the buffers of a workspace grow
to the largest batch seen and are then reused. The arithmetic is in kernels.ldl and kernels.substitution; with factors in
float32 in kernels.mixed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from snapfm.errors import SettingError
from snapfm.linear.base import Index, PivotRule, check_pattern
from snapfm.linear.double import PreparedDouble
from snapfm.linear.planned import plan
from snapfm.linear.single import PreparedSingle
from snapfm.structure.pattern import Pattern


@dataclass(frozen=True)
class Lanes:
    """Settings: what to do about weak pivots, how often to refine a solution against the matrix, in what to factorise.

    With precision="float32" the factors of sixteen samples take the room of eight, beside which the matrices are kept;
    answers are refined to the accuracy of float64, and samples where that fails are done again with float64 factors: see
    linear.single. `refinements` are those of float64 factors, in either case.
    """

    pivots: PivotRule = field(default_factory=PivotRule)
    refinements: int = 0
    precision: Literal["float64", "float32"] = "float64"

    def __post_init__(self) -> None:
        if self.precision not in ("float64", "float32"):
            raise SettingError(
                f"Lanes(precision) expects 'float64' or 'float32'; got {self.precision!r}. It is the precision of the "
                "factors alone: values and answers are float64 with either."
            )

    def prepare(self, pattern: Pattern, signs: Index | None = None) -> PreparedDouble | PreparedSingle:
        """Order the unknowns, plan the elimination."""
        check_pattern(pattern, signs)
        planned = plan(self.pivots, self.refinements, pattern, signs)
        return PreparedDouble(planned) if self.precision == "float64" else PreparedSingle(planned)
