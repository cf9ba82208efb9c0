"""Sample quality: samplers × tasks on shipped models, scored against simulated truth, kept as records, shown on pages.

suite (what to run) → run (one cell after the other) → cell (sample within a budget, score) → records → pictures and pages,
which read records alone.
"""

from snapfm.evidence.quality.run import run
from snapfm.evidence.quality.suite import Cell, Suite, load_suite, suite_names
from snapfm.evidence.record import State

__all__ = ["Cell", "State", "Suite", "load_suite", "run", "suite_names"]
