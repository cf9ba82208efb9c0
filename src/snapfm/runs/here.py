"""Here: this process computes its share of a plan, one block after the other."""

from __future__ import annotations

from dataclasses import dataclass

from snapfm.runs.plan import Figures, Plan, Progress, Report, add
from snapfm.runs.share import WHOLE, Share


@dataclass(frozen=True)
class Here:
    """The engine that computes in this process. With a share, it is one of several processes that work independently."""

    share: Share = WHOLE

    @property
    def threads(self) -> int | None:
        """As many as this process has."""
        return None

    def run(self, plan: Plan, progress: Progress | None = None) -> Figures:
        """Compute the blocks of the share that are not finished."""
        finished, total = plan.finished(), dict[str, float]()
        done = float(sum(plan.units(block) for block in self.share.blocks(plan.blocks) if block in finished))
        if progress is not None:
            progress(int(done))
        for block in self.share.blocks(plan.blocks):
            if block in finished:
                continue
            add(total, plan.compute(block, _reporting(progress, done, plan.units(block))))
            done += plan.units(block)
            if progress is not None:
                progress(int(done))
        return total


def _reporting(progress: Progress | None, done: float, units: int) -> Report:
    """Return what is called with the share of one block that is done."""

    def report(share: float) -> None:
        if progress is not None:
            progress(done + units * share)

    return report
