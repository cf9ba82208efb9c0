"""Options that several commands share: --out, checked before the work starts, and --set NAME=VALUE; trouble with files."""

from __future__ import annotations

import errno
import json
import tempfile
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from snapfm.errors import DataError, SettingError

ProblemName: TypeAlias = Annotated[
    str, typer.Argument(metavar="PROBLEM", help="Name of a problem; `snapfm problems` lists them.")
]
Settings: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="NAME=VALUE", help="A setting of the problem, such as nx=128 or phase=none; repeatable."
    ),
]

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
_NO_ACCESS = (errno.EACCES, errno.EPERM, errno.EROFS)
_IN_THE_WAY = (errno.ENOTDIR, errno.EEXIST, errno.EISDIR)


def check_folder(command: str, out: Path) -> None:
    """Refuse a folder that cannot be made or written to, without creating it."""
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
            f"{expected}; got {out}, of which the system says '{_reason(trouble)}'. {_advice(trouble)}"
        ) from trouble


def check_suffix(command: str, out: Path, *suffixes: str) -> None:
    """Refuse a file whose name promises another format than the one written; a name may also end in nothing."""
    if out.suffix and out.suffix.lower() not in suffixes:
        raise DataError(
            f"snapfm {command} --out expects a name that ends in {' or '.join(suffixes)}; got {out}, the name of another format. "
            f"Write to {out.with_suffix(suffixes[0])}."
        )


def file_error(command: str, trouble: OSError, resumes: bool) -> DataError:
    """Describe an error with files that came up during the work in one sentence."""
    kept = " Finished work is kept: the same command resumes from there." if resumes else ""
    place = f" for {trouble.filename}" if trouble.filename is not None else ""
    return DataError(
        f"snapfm {command} expects files it can read and folders it can write to; got '{_reason(trouble)}'{place}. "
        f"{_advice(trouble)}{kept}"
    )


def read_settings(command: str, texts: list[str] | None) -> dict[str, Any]:
    """Read NAME=VALUE pairs: numbers, true, false and none as such, anything else as text."""
    found: dict[str, Any] = {}
    for text in texts or []:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise SettingError(f"snapfm {command} --set expects NAME=VALUE; got {text!r}. Write it as in --set nx=128.")
        try:
            found[name] = json.loads({"none": "null"}.get(value.lower(), value))
        except ValueError:
            found[name] = value
    return found


def read_names(text: str | None) -> tuple[str, ...] | None:
    """Read names that commas separate."""
    return None if text is None else tuple(one.strip() for one in text.split(","))


def read_shape(text: str) -> tuple[int, ...]:
    """Read extents that commas separate."""
    try:
        return tuple(int(one) for one in text.split(","))
    except ValueError as cause:
        raise SettingError(f"--shape expects whole numbers, as in 64,64; got {text!r}. Give one per axis.") from cause


def _reason(trouble: OSError) -> str:
    return trouble.strerror or str(trouble) or type(trouble).__name__


def _advice(trouble: OSError) -> str:
    if trouble.errno in _NO_SPACE:
        return "Free some space, or choose another disk."
    if trouble.errno in _NO_ACCESS:
        return "Choose a place you may write to."
    if trouble.errno in _IN_THE_WAY:
        return "Something else is in its place: remove it, or choose another place."
    return "Choose another place."
