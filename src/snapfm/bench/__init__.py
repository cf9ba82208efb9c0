"""Benchmark: methods × cases, each in a process of its own, judged by one float64 judge, kept as records.

The walk: suite.py (what to run) → run.py (one cell after the other) → supervise.py (a process, its budget, its end) →
process.py (inside it) → inputs.py, projection.py, curve.py, walk.py with judge.py → record.py in the ledger. May import
everything below cli; only cli imports it.
"""

from snapfm.bench.record import Cell, Kind, State
from snapfm.bench.run import run
from snapfm.bench.suite import Suite, load_suite, suite_names

__all__ = ["Cell", "Kind", "State", "Suite", "load_suite", "run", "suite_names"]
