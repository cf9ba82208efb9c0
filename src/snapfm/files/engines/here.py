"""Here: this process computes its share of a plan, one block after the other."""

from __future__ import annotations

from dataclasses import dataclass, field

from snapfm.errors import SnapfmError
from snapfm.files.engines.plan import BlockPlan, Figures, OnMessage, Progress, Report, add, described, give_up
from snapfm.files.engines.share import WHOLE, Share


@dataclass(frozen=True)
class Here:
    """The engine that computes in this process. With a share, it is one of several processes that work independently.

    `on_message` is called with a sentence about every block that is given up: at once, since it would fail here again.
    """

    share: Share = WHOLE
    on_message: OnMessage | None = field(default=None, compare=False)

    @property
    def threads(self) -> int | None:
        """As many as this process has."""
        return None

    def run(self, plan: BlockPlan, progress: Progress | None = None) -> Figures:
        """Compute the blocks of the share that are not finished."""
        finished, total = plan.finished(), dict[str, float]()
        done = float(sum(plan.units(block) for block in self.share.blocks(plan.blocks) if block in finished))
        if progress is not None:
            progress(int(done))
        for block in self.share.blocks(plan.blocks):
            if block in finished:
                continue
            try:
                add(total, plan.compute(block, _reporting(progress, done, plan.units(block))))
            except _Stopped as stop:
                raise stop.by from None
            except (SnapfmError, OSError):  # named already, or of the disk, for all blocks
                raise
            except Exception as failure:
                give_up(plan, block, f"with {described(failure)}", failure, self.on_message)
            done += plan.units(block)
            if progress is not None:
                progress(int(done))
        return total


class _Stopped(BaseException):
    """What `progress` raised, on its way through a block that is not to blame for it."""

    def __init__(self, by: Exception) -> None:
        self.by = by


def _reporting(progress: Progress | None, done: float, units: int) -> Report:
    """Return what is called with the share of one block that is done."""

    def report(share: float) -> None:
        if progress is not None:
            try:
                progress(done + units * share)
            except Exception as failure:
                raise _Stopped(failure) from failure

    return report
