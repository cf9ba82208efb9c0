"""Exact cases: velocities known in closed form or by quadrature, and laws whose conditional distribution is known too.

No network is to blame for what a sampler gets wrong here. case (what a case is) and scores; one file per kind of case; suite
(every sampler on every case, with chance beside it) → records → pages, which read records alone.
"""

from snapfm_bench.suites.exact.case import ExactCase
from snapfm_bench.suites.exact.run import run
from snapfm_bench.suites.exact.suite import ExactCell, ExactSuite, cases

__all__ = ["ExactCase", "ExactCell", "ExactSuite", "cases", "run"]
