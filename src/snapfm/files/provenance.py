"""Which sources wrote a file: the commit of the tree that snapfm was imported from, if it is one of git."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path


@cache
def commit() -> str | None:
    """Name the commit; None for an installed package, which its version identifies."""
    file = Path(__file__)
    try:
        # A package inside somebody else's repository is not tracked there.
        tracked = _git("ls-files", "--error-unmatch", file.name)
        return _git("rev-parse", "HEAD") if tracked else None
    except OSError:  # no git
        return None


def _git(*words: str) -> str | None:
    done = subprocess.run(["git", *words], cwd=Path(__file__).parent, capture_output=True, text=True)
    return done.stdout.strip() or None if done.returncode == 0 else None
