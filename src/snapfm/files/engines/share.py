"""Share: which blocks of a plan one process of several computes, as written on the command line or set by a scheduler."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from snapfm.errors import DataError, SettingError
from snapfm.locking import held

AUTO = "auto"
# Names under which schedulers put a process's number and their count, and the number of the first; in the order they are tried.
# A job array in which every task starts several processes is divided by both.
_ARRAY = ("SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_COUNT", "SLURM_ARRAY_TASK_MIN")
_PROCESSES = (("RANK", "WORLD_SIZE"), ("SLURM_PROCID", "SLURM_NTASKS"))


@dataclass(frozen=True)
class Share:
    """Part `part` (from 1) of `parts`: every parts-th block, so that slow blocks are spread over all parts."""

    part: int
    parts: int

    def blocks(self, count: int) -> range:
        """Return the blocks of this share in a plan of `count` blocks."""
        return range(self.part - 1, count, self.parts)

    def of(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the names in this share. Names are of cases: their cells depend on each other and stay together."""
        return tuple(names[place] for place in self.blocks(len(names)))

    def units(self, count: int, block: int) -> int:
        """Return how many of `count` units are in this share, if they come in blocks of `block`."""
        return sum(min(block, count - k * block) for k in self.blocks(-(-count // block)))

    @property
    def whole(self) -> bool:
        """Whether this is the whole run."""
        return self.parts == 1

    def __str__(self) -> str:
        return f"{self.part}/{self.parts}"


WHOLE = Share(1, 1)
"""The whole run: the only part of one."""


def share_of(text: str | None, environment: Mapping[str, str] = os.environ) -> Share:
    """Read a share from K/N, or from the variables of Slurm or torchrun for `auto`; None is the whole run."""
    if text is None:
        return WHOLE
    if text == AUTO:
        return _detected(environment)
    part, slash, parts = text.partition("/")
    if slash and part.isdecimal() and parts.isdecimal() and 1 <= int(part) <= int(parts):
        return Share(int(part), int(parts))
    raise SettingError(
        f"--part expects K/N with 1 <= K <= N, or auto; got {text!r}. The first of four processes is --part 1/4."
    )


def _detected(environment: Mapping[str, str]) -> Share:
    """Combine the task of a job array with the process inside it."""
    found = WHOLE
    task, tasks, first = (_number(environment, name) for name in _ARRAY)
    if task is not None and tasks is not None:
        step = _number(environment, "SLURM_ARRAY_TASK_STEP") or 1
        found = Share((task - (first or 0)) // step + 1, tasks)
    for names in _PROCESSES:
        rank, world = (_number(environment, name) for name in names)
        if rank is not None and world is not None and world >= 1:
            found = Share((found.part - 1) * world + rank + 1, found.parts * world)
            break
    else:
        if task is None or tasks is None:
            raise SettingError(
                "--part auto expects the variables of Slurm (SLURM_ARRAY_TASK_ID and _COUNT, or SLURM_PROCID and _NTASKS) or of "
                "torchrun (RANK and WORLD_SIZE); got none of them. Start it with sbatch, srun or torchrun, or write --part K/N."
            )
    if not 1 <= found.part <= found.parts:
        raise SettingError(
            f"--part auto expects a number from 1 to {found.parts} for this process; its variables give {found.part}. Write "
            "--part K/N yourself."
        )
    return found


def _number(environment: Mapping[str, str], name: str) -> int | None:
    text = environment.get(name, "")
    return int(text) if text.isdecimal() else None


@contextmanager
def taken(folder: Path, share: Share, shown: str) -> Iterator[None]:
    """Hold a folder for a share of a run; refuse the same share twice, and the whole run beside shares of it."""
    folder.mkdir(parents=True, exist_ok=True)
    own = folder / f".part-{share.part}-of-{share.parts}"
    with ExitStack() as locks:
        for place in (folder,) if share.whole else (folder, own):
            if not locks.enter_context(held(place, shared=place == folder and not share.whole, wait=0.0)):
                raise DataError(
                    f"{shown} is expected to be written by one process at a time, or by one for each --part K/N; another one is "
                    "at it. Wait for it, or choose another place."
                )
        yield
        if not share.whole:
            with suppress(PermissionError):  # Windows does not remove what is open
                own.unlink(missing_ok=True)
