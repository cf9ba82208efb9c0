"""The speed benchmark: methods × cases, each cell in a child process, judged in float64, kept as records, shown as a report.

suite (what to run) → run (one cell after the other) → cell (inside the child process) with inputs and stand → records;
report makes pages of them.
"""

from snapfm_bench.record import CellState
from snapfm_bench.suites.projection.run import run
from snapfm_bench.suites.projection.suite import Kind, ProjectionCell, ProjectionSuite, load_suite, suite_names

__all__ = ["CellState", "Kind", "ProjectionCell", "ProjectionSuite", "load_suite", "run", "suite_names"]
