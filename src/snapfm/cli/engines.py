"""Options of all commands that compute blocks: --part, --engine and what a Ray worker gets; and the engine they name."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from snapfm.errors import SettingError, UnknownName

if TYPE_CHECKING:
    from snapfm.runs import Engine

Part: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="K/N",
        help="Compute part K of N; other processes compute the rest. `auto` reads K and N from Slurm or torchrun.",
    ),
]
EngineName: TypeAlias = Annotated[
    str,
    typer.Option(
        "--engine", metavar="here|ray", help="Where to compute: in this process, or on a Ray cluster (RAY_ADDRESS)."
    ),
]
Workers: TypeAlias = Annotated[
    int | None, typer.Option(help="Number of Ray workers.", show_default="as many as the cluster has room for")
]
Cpus: TypeAlias = Annotated[float, typer.Option(help="Processors (and threads) per Ray worker.")]
Gpus: TypeAlias = Annotated[float, typer.Option(help="GPUs per Ray worker.")]
Resources: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--resource", metavar="NAME=AMOUNT", help="Custom resource per Ray worker; repeatable."),
]

_NAMES = ("here", "ray")


def engine_of(
    name: str, part: str | None, workers: int | None, cpus: float, gpus: float, resources: list[str] | None,
    told: Callable[[str], None] | None = None,
) -> Engine:  # fmt: skip
    """Build the engine that the options name; refuse options of another one. `told` hears of blocks that are given up."""
    from snapfm.runs import Here, OnRay, share_of

    if name not in _NAMES:
        raise UnknownName(f"--engine expects one of {list(_NAMES)}; got {name!r}. Use one of these.")
    if name == "here":
        if workers is not None or resources or gpus or cpus != 1.0:
            raise SettingError(
                "--workers, --cpus, --gpus and --resource expect --engine ray; got --engine here. Leave them out, or add it."
            )
        return Here(share_of(part))
    if part is not None:
        raise SettingError(
            "--part expects --engine here; got --engine ray, which computes all parts. Leave one of them out."
        )
    return OnRay(workers, cpus, gpus, _amounts(resources), told)


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
