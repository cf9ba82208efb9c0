"""BlockPlan: a run as a list of blocks. Block k is a pure function of the recipe and of k, whoever computes it, wherever.

A plan says which blocks are finished by looking at its results, not at a list that somebody keeps: so any number of processes
may work through it, on any machines, and each may be killed at any moment. An engine decides who computes what. Knows no
fields, no models and no records. Imports errors only.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from snapfm.errors import SnapfmError
from snapfm.files.engines.share import Share

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
        ...

    def named(self, block: int) -> str:
        """Name a block in messages."""
        ...

    def finished(self) -> set[int]:
        """Return the blocks whose results are safely stored."""
        ...

    def join(self) -> None:
        """Check that this process may add to the run; called once, in processes that did not start it, before they compute."""
        ...

    def compute(self, block: int, report: Report) -> Figures:
        """Compute a block and store its results, completely or not at all."""
        ...

    def give_up(self, block: int) -> None:
        """Store that a block has no results; raises BlockFailed if the run cannot continue without it."""
        ...


class Engine(Protocol):
    """What computes the blocks of a plan: this process, part of several processes, or a cluster."""

    @property
    def share(self) -> Share:
        """The share of the blocks that this engine computes."""
        ...

    @property
    def threads(self) -> int | None:
        """Threads of torch in each computing process; None for as many as this process has."""
        ...

    def run(self, plan: BlockPlan, progress: Progress | None = None) -> Figures:
        """Compute the blocks that are not finished; return their figures, added up."""
        ...


def add(total: dict[str, float], figures: Figures) -> None:
    """Add the figures of one block to those of others."""
    for name, value in figures.items():
        total[name] = total.get(name, 0.0) + value


def give_up(plan: BlockPlan, block: int, why: str, cause: BaseException, on_message: OnMessage | None) -> None:
    """Let a plan go on without a block, and say so; raise BlockFailed, with its name, where it cannot."""
    words = f"{plan.named(block)} is expected to be computed; it failed {why}"
    try:
        plan.give_up(block)
    except BlockFailed:
        raise BlockFailed(
            f"{words}. Finished blocks are kept: look for the cause, such as memory, and start the same command again."
        ) from cause
    if on_message is not None:
        on_message(f"{words}. Its samples are marked as never computed.")


def described(failure: BaseException) -> str:
    """Say in one line what was raised, and where if it is known."""
    last = traceback.extract_tb(failure.__traceback__)[-1:]
    place = "".join(f" ({Path(frame.filename).name}, line {frame.lineno})" for frame in last)
    return f"{type(failure).__name__}: {failure}{place}"
