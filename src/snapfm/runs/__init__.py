"""HOW a run is computed, whatever it computes: a plan of independent blocks, and engines that work through it."""

from snapfm.runs.here import Here
from snapfm.runs.on_ray import OnRay
from snapfm.runs.plan import BlockFailed, Engine, Plan, Progress, Report
from snapfm.runs.share import WHOLE, Share, share_of

__all__ = ["WHOLE", "BlockFailed", "Engine", "Here", "OnRay", "Plan", "Progress", "Report", "Share", "share_of"]
