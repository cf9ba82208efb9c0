"""Pictures of one's own fields and results, as matplotlib figures: before and after, violations, mean and spread, patterns.

Every function returns a Figure, which a notebook shows and `figure.savefig(file)` writes. Nothing else of matplotlib is touched:
no window, no backend, no settings. Needs matplotlib: pip install 'snapfm[plot]'. The pages of snapfm_bench.suites draw with
the same canvas. May import sampling and what is below it.
"""

from snapfm.plot.fields import fields, spread
from snapfm.plot.laws import pattern, violation

__all__ = ["fields", "pattern", "spread", "violation"]
