"""A hundred thousand projections of many kinds, every claim judged from outside: how many are false, and which.

kinds (how cases are drawn) → audit (project, judge, count) with judge (what makes a claim false). A case is drawn from its kind
and number alone, so that it can be looked at again by itself: `python -m benchmarks certificates --only KIND:NUMBER`.
"""

from benchmarks.certificates.audit import one, run
from benchmarks.certificates.judge import false_claims, measure
from benchmarks.certificates.kinds import KINDS, Case, draw

__all__ = ["KINDS", "Case", "draw", "false_claims", "measure", "one", "run"]
