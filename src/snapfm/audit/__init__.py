"""Which laws simulated fields obey, how nearly, and which they contradict."""

from snapfm.audit.run import LawAudit, audit, targets
from snapfm.audit.variants import in_words
from snapfm.audit.verdict import Verdict

__all__ = ["LawAudit", "Verdict", "audit", "in_words", "targets"]
