"""Who computes: the options that all commands of long runs share, in one place, and the engine they name.

A command takes one argument, `engine: EngineOptions`; `with_engine` shows it on the command line as the options that it holds.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from snapfm.errors import SettingError, UnknownName

if TYPE_CHECKING:
    from snapfm.files.engines import Engine

_NAMES = ("here", "ray")


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

        if self.engine not in _NAMES:
            raise UnknownName(f"--engine expects one of {list(_NAMES)}; got {self.engine!r}. Use one of these.")
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
        return OnRay(self.workers, self.cpus, self.gpus, _amounts(self.resource), on_message)


THIS_PROCESS = EngineOptions()
_ARGUMENT = "engine"


def with_engine(command: Callable[..., None]) -> Callable[..., None]:
    """Show the argument `engine` of a command as the options of engines."""
    hints = get_type_hints(command, include_extras=True)
    own = get_type_hints(EngineOptions, include_extras=True)
    options = [
        inspect.Parameter(one.name, inspect.Parameter.KEYWORD_ONLY, default=one.default, annotation=own[one.name])
        for one in fields(EngineOptions)
    ]
    shown: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        plain = parameter.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY)
        shown += options if name == _ARGUMENT else [plain]

    @wraps(command)
    def called(**given: Any) -> None:
        engine = EngineOptions(**{one.name: given.pop(one.name) for one in options})
        command(**given, **{_ARGUMENT: engine})

    called.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    called.__annotations__ = {one.name: one.annotation for one in shown}
    return called


def _amounts(texts: list[str] | None) -> dict[str, float]:
    found = {}
    for text in texts or []:
        name, equals, amount = text.partition("=")
        try:
            found[name] = float(amount)
        except ValueError:
            equals = ""
        if not (name and equals):
            raise SettingError(f"--resource expects NAME=AMOUNT; got {text!r}. Write it as in --resource tpu=1.")
    return found
