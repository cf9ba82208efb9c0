"""HOW a run is computed, whatever it computes: a plan of independent blocks, and engines that work through it."""

from snapfm.files.engines.plan import BlockFailed, BlockPlan, Engine, Here, Progress, Report
from snapfm.files.engines.ray_engine import OnRay
from snapfm.files.engines.share import WHOLE, Share, share_of

__all__ = ["WHOLE", "BlockFailed", "BlockPlan", "Engine", "Here", "OnRay", "Progress", "Report", "Share", "share_of"]
