"""BlockPlan: a run as a list of blocks. Block k is a pure function of the recipe and of k, whoever computes it, wherever.

A plan says which blocks are finished by looking at its results, not at a list that somebody keeps: so any number of processes
may work through it, on any machines, and each may be killed at any moment. An engine decides who computes what; `Here` is that
of this process. Knows no fields, no models and no records.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from snapfm.errors import SnapfmError
from snapfm.files.engines.share import WHOLE, Share

Report = Callable[[float], None]
"""A function that is called with the finished share of a block, from 0 to 1."""
Progress = Callable[[float], None]
"""A function that is called with the number of finished units, over all blocks that the caller computes."""
OnMessage = Callable[[str], None]
"""A function that is called with a sentence about every block that is given up."""
Figures = Mapping[str, float]  # what blocks tell besides their results, such as seconds: added up over blocks


class BlockFailed(SnapfmError, RuntimeError):
    """A block of a run could not be computed; the message names the block and says why."""


class BlockPlan(Protocol):
    """The blocks 0 .. blocks − 1 of a run. It pickles, so that other processes can compute some of them."""

    blocks: int

    def units(self, block: int) -> int:
        """Return the size of a block in the units that progress counts: samples, or cells."""

    def named(self, block: int) -> str:
        """Name a block in messages."""

    def finished(self) -> set[int]:
        """Return the blocks whose results are safely stored."""

    def join(self) -> None:
        """Check that this process may add to the run; called once, in processes that did not start it, before they compute."""

    def compute(self, block: int, report: Report) -> Figures:
        """Compute a block and store its results, completely or not at all."""

    def give_up(self, block: int) -> None:
        """Store that a block has no results; raises BlockFailed if the run cannot continue without it."""


class Engine(Protocol):
    """What computes the blocks of a plan: this process, part of several processes, or a cluster."""

    @property
    def share(self) -> Share:
        """The share of the blocks that this engine computes."""

    @property
    def threads(self) -> int | None:
        """Threads of torch in each computing process; None for as many as this process has."""

    def run(self, plan: BlockPlan, progress: Progress | None = None) -> Figures:
        """Compute the blocks that are not finished; return their figures, added up."""


class Tally:
    """The blocks of a share of a plan: which are left, how many units are done, and the figures of those computed here."""

    def __init__(self, plan: BlockPlan, share: Share, progress: Progress | None, on_message: OnMessage | None) -> None:
        finished, blocks = plan.finished(), share.blocks(plan.blocks)
        self._plan, self._progress, self._on_message = plan, progress, on_message
        self.left = [block for block in blocks if block not in finished]
        self.figures: dict[str, float] = {}
        self._done = sum(plan.units(block) for block in blocks if block in finished)
        self.tell()

    def tell(self, more: float = 0) -> None:
        """Report the units that are done, and those of blocks that are not."""
        if self._progress is not None:
            self._progress(self._done + more)

    def computed(self, block: int, figures: Figures) -> None:
        """Count a block, and add its figures to those of others."""
        for name, value in figures.items():
            self.figures[name] = self.figures.get(name, 0.0) + value
        self._count(block)

    def given_up(self, block: int, why: str, cause: BaseException) -> None:
        """Let the plan go on without a block, and say so; raise BlockFailed, with its name, where it cannot."""
        words = f"{self._plan.named(block)} is expected to be computed; it failed {why}"
        try:
            self._plan.give_up(block)
        except BlockFailed:
            raise BlockFailed(
                f"{words}. Finished blocks are kept: look for the cause, such as memory, and start the same command again."
            ) from cause
        if self._on_message is not None:
            self._on_message(f"{words}. Its samples are marked as never computed.")
        self._count(block)

    def _count(self, block: int) -> None:
        self._done += self._plan.units(block)
        self.tell()


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
        tally = Tally(plan, self.share, progress, self.on_message)
        for block in tally.left:
            try:
                figures = plan.compute(block, _reporting(tally, plan.units(block)))
            except _Stopped as stop:
                raise stop.by from None
            except (SnapfmError, OSError):  # named already, or of the disk, for all blocks
                raise
            except Exception as failure:
                last = traceback.extract_tb(failure.__traceback__)[-1:]
                place = "".join(f" ({Path(frame.filename).name}, line {frame.lineno})" for frame in last)
                tally.given_up(block, f"with {type(failure).__name__}: {failure}{place}", failure)
            else:
                tally.computed(block, figures)
        return tally.figures


class _Stopped(BaseException):
    """What `progress` raised, on its way through a block that is not to blame for it."""

    def __init__(self, by: Exception) -> None:
        self.by = by


def _reporting(tally: Tally, units: int) -> Report:
    """Return what is called with the share of a block that is done."""

    def report(share: float) -> None:
        try:
            tally.tell(units * share)
        except Exception as failure:
            raise _Stopped(failure) from failure

    return report
