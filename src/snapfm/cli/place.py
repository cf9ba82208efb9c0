"""Where a command writes, looked at before it works: nobody waits an hour to hear that a folder cannot be made."""

from __future__ import annotations

import errno
import tempfile
from pathlib import Path

from snapfm.errors import DataError

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
_NO_ACCESS = (errno.EACCES, errno.EPERM, errno.EROFS)
_IN_THE_WAY = (errno.ENOTDIR, errno.EEXIST, errno.EISDIR)


def check_folder(command: str, out: Path) -> None:
    """Refuse a folder that cannot be made or written to; nothing is left behind."""
    expected = f"snapfm {command} --out expects a folder to write to"
    try:
        nearest = out.absolute()
        while not nearest.exists():
            nearest = nearest.parent
        if not nearest.is_dir():
            which = "which is a file" if nearest == out.absolute() else f"where {nearest} is a file"
            raise DataError(f"{expected}; got {out}, {which}. Choose another folder.")
        with tempfile.TemporaryDirectory(prefix=".snapfm-", dir=nearest):
            pass
    except OSError as trouble:
        raise DataError(
            f"{expected}; got {out}, of which the system says '{_reason(trouble)}'. {_cure(trouble)}"
        ) from trouble


def told(command: str, trouble: OSError, resumes: bool) -> DataError:
    """Put trouble with files that came up during the work into one sentence."""
    kept = " What was finished is kept: the same command goes on from there." if resumes else ""
    place = f" for {trouble.filename}" if trouble.filename is not None else ""
    return DataError(
        f"snapfm {command} expects files it can read and folders it can write to; got '{_reason(trouble)}'{place}. "
        f"{_cure(trouble)}{kept}"
    )


def _reason(trouble: OSError) -> str:
    return trouble.strerror or str(trouble) or type(trouble).__name__


def _cure(trouble: OSError) -> str:
    if trouble.errno in _NO_SPACE:
        return "Free some space, or choose another disk."
    if trouble.errno in _NO_ACCESS:
        return "Choose a place you may write to."
    if trouble.errno in _IN_THE_WAY:
        return "Something else is in its place: remove it, or choose another place."
    return "Choose another place."
