"""Sample quality: samplers × tasks on shipped models, scored against simulated truth, kept as records, shown on pages.

suite (what to run) → run (one cell after the other) → cell (sample within a budget, score) → records → pictures and pages,
which read records alone.
"""

from snapfm_bench.record import CellState
from snapfm_bench.suites.quality.run import run
from snapfm_bench.suites.quality.suite import QualityCell, QualitySuite, load_suite, suite_names

__all__ = ["CellState", "QualityCell", "QualitySuite", "load_suite", "run", "suite_names"]
