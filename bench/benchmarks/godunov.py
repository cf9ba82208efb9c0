"""Burgers' equation with the exact Godunov flux, whose rows have kinks: what becomes of 500 inputs of each kind.

The kinds are those of `robustness`. Asked for: at least 99 % certified. A kind that cannot be projected in the time of one call
shows the samples it did not get to as ITERATION_LIMIT.
"""

from __future__ import annotations

from typing import Any

from benchmarks.robustness import DISTINCT, SAMPLES, problem_rows

PROBLEM = "burgers-ic-mass-flux"
SETTINGS: tuple[dict[str, Any], ...] = (
    {"flux": "godunov"},
    {"flux": "godunov", "mass": "flux"},
    {"flux": "godunov", "flux_steps": 20},
)
ASKED = 0.99


def run(samples: int = SAMPLES, distinct: int = DISTINCT, size: dict[str, int] | None = None) -> dict[str, Any]:
    """Project all kinds; `size` replaces the problem's own points along space and time."""
    rows = [row for one in SETTINGS for row in problem_rows(PROBLEM, {**one, **(size or {})}, samples, distinct)]
    for row in rows:
        if isinstance(row["statuses"], dict):
            row["share_certified"] = row["statuses"].get("CONVERGED", 0) / sum(row["statuses"].values())
    shares = [row["share_certified"] for row in rows if "share_certified" in row]
    return {
        "samples": samples,
        "distinct_fields": distinct,
        "tolerance": 1e-8,
        "asked": ASKED,
        "share_worst": min(shares),
        "rows": rows,
    }
