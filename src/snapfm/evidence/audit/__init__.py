"""Which laws simulated fields obey, how nearly, and which they contradict."""

from snapfm.evidence.audit.run import LawAudit, Verdict, audit, targets
from snapfm.evidence.audit.variants import in_words

__all__ = ["LawAudit", "Verdict", "audit", "in_words", "targets"]
