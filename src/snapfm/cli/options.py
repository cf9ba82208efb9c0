"""Options that several commands share, each declared once; and what they say of files that cannot be read or written.

A command of long runs takes one argument, `engine: EngineOptions`; `with_engine` shows it on the command line as the options
that it holds.
"""

from __future__ import annotations

import errno
import inspect
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from snapfm.errors import DataError, SettingError, UnknownName

if TYPE_CHECKING:
    from snapfm.files.engines import Engine

Settings: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="NAME=VALUE", help="A setting of the problem, such as nx=128 or phase=none; repeatable."
    ),
]
Out: TypeAlias = Annotated[
    str, typer.Option(metavar="FILE.zarr|URL", help="File to write, created only once complete; or a URL: s3://…")
]
Tolerance: TypeAlias = Annotated[
    float, typer.Option(help="Largest violation of a law, in its own units, that counts as obeyed.")
]
Batch: TypeAlias = Annotated[
    int, typer.Option(help="Fields per block: computed, then written, then freed. A stop loses at most one block.")
]
KeepFailed: TypeAlias = Annotated[
    bool, typer.Option("--keep-failed", help="Also write fields that do not converge, marked by their status.")
]
Threads: TypeAlias = Annotated[
    int | None,
    typer.Option(help="Threads of torch; another number may change last bits.", show_default="all cores"),
]
Log: TypeAlias = Annotated[
    Path | None, typer.Option("--log", metavar="FILE.jsonl", help="Append a JSON line about the progress every second.")
]
Json: TypeAlias = Annotated[bool, typer.Option("--json", help="Print a JSON summary for scripts.")]
LAWS = typer.Option(metavar="MODULE:NAME", help="Laws in your module: a list, or a function that returns one.")

_ENGINES = ("here", "ray")
_ADVICE: dict[int | None, str] = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "Free some space, or choose another disk."),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), "Choose a place you may write to."),
    **dict.fromkeys(
        (errno.ENOTDIR, errno.EEXIST, errno.EISDIR),
        "Something else is in its place: remove it, or choose another place.",
    ),
}


@dataclass(frozen=True)
class EngineOptions:
    """Who computes, as written on the command line."""

    part: Annotated[
        str | None,
        typer.Option(
            metavar="K/N",
            help="Compute part K of N; other processes compute the rest. `auto` reads K and N from Slurm or torchrun.",
        ),
    ] = None
    engine: Annotated[
        str,
        typer.Option(metavar="here|ray", help="Where to compute: in this process, or on a Ray cluster (RAY_ADDRESS)."),
    ] = "here"
    workers: Annotated[
        int | None, typer.Option(help="Number of Ray workers.", show_default="as many as the cluster has room for")
    ] = None
    cpus: Annotated[float, typer.Option(help="Processors (and threads) per Ray worker.")] = 1.0
    gpus: Annotated[float, typer.Option(help="GPUs per Ray worker.")] = 0.0
    resource: Annotated[
        list[str] | None, typer.Option(metavar="NAME=AMOUNT", help="Custom resource per Ray worker; repeatable.")
    ] = None

    def build(self, on_message: Callable[[str], None] | None = None) -> Engine:
        """Build the engine; refuse options of another one. `on_message` hears of blocks that are given up."""
        from snapfm.files.engines import Here, OnRay, share_of

        if self.engine not in _ENGINES:
            raise UnknownName(f"--engine expects one of {list(_ENGINES)}; got {self.engine!r}. Use one of these.")
        if self.engine == "here":
            if self.workers is not None or self.resource or self.gpus or self.cpus != 1.0:
                raise SettingError(
                    "--workers, --cpus, --gpus and --resource expect --engine ray; got --engine here. Leave them out, or add it."
                )
            return Here(share_of(self.part), on_message)
        if self.part is not None:
            raise SettingError(
                "--part expects --engine here; got --engine ray, which computes all parts. Leave one of them out."
            )
        amounts = _pairs(self.resource, float, "--resource expects NAME=AMOUNT", "--resource tpu=1")
        return OnRay(self.workers, self.cpus, self.gpus, amounts, on_message)


THIS_PROCESS = EngineOptions()


def with_engine(command: Callable[..., None]) -> Callable[..., None]:
    """Show the argument `engine` of a command as the options of engines."""
    options = inspect.signature(EngineOptions, eval_str=True).parameters
    shown: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command, eval_str=True).parameters.items():
        shown += options.values() if name == "engine" else [parameter]
    shown = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in shown]

    @wraps(command)
    def called(**given: Any) -> None:
        engine = EngineOptions(**{name: given.pop(name) for name in options})
        command(**given, engine=engine)

    called.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    called.__annotations__ = {one.name: one.annotation for one in shown}
    return called


def read_settings(command: str, texts: list[str] | None) -> dict[str, Any]:
    """Read NAME=VALUE pairs: numbers, true, false and none as such, anything else as text."""
    return _pairs(texts, _value, f"snapfm {command} --set expects NAME=VALUE", "--set nx=128")


def _value(text: str) -> Any:
    try:
        return json.loads({"none": "null"}.get(text.lower(), text))
    except ValueError:
        return text


def _pairs(texts: Iterable[str] | None, read: Callable[[str], Any], expected: str, example: str) -> dict[str, Any]:
    """Read values that are named; `read` raises ValueError for a text that is none."""
    found = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        try:
            found[name] = read(value)
        except ValueError:
            equals = ""
        if not (name and equals):
            raise SettingError(f"{expected}; got {text!r}. Write it as in {example}.")
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
        f"snapfm {command} expects files it can read and folders it can write to; got {told(trouble, place)}{kept}"
    )


def told(trouble: OSError, place: str = "") -> str:
    """Say in the system's words what is wrong, and what to do."""
    reason = trouble.strerror or str(trouble) or type(trouble).__name__
    return f"'{reason}'{place}. {_ADVICE.get(trouble.errno, 'Choose another place.')}"
