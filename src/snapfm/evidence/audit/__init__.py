"""Which laws simulated fields obey, how nearly, and which they contradict."""

from snapfm.evidence.audit.run import LawAudit, Verdict, audit, targets

__all__ = ["LawAudit", "Verdict", "audit", "targets"]
