"""Sample quality: samplers × tasks on shipped models, judged against simulated truth, kept as records, shown on a page.

The walk: suite.py (what to run) → run.py (one cell after the other) → cell.py (sample within a budget) and judge.py
(score) → ledger.py (records that survive a kill) → tables.py, text.py, picture.py, curve.py, page.py (what is shown, from
records alone). May import everything below cli; only cli imports it.
"""

from snapfm.quality.record import Cell, Status
from snapfm.quality.run import run
from snapfm.quality.suite import Suite, load_suite, suite_names

__all__ = ["Cell", "Status", "Suite", "load_suite", "run", "suite_names"]
