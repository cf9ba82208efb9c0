"""Recipe: all that decides the bits of a data file. Two files of one recipe are equal, however often they were stopped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib import metadata
from typing import Any, Literal, TypeAlias

from snapfm.errors import DataError, UnknownName
from snapfm.problems import Problem, problem

DtypeName: TypeAlias = Literal["float64", "float32"]

_LARGEST_SEED = 2**63 - 1  # stored as int64 beside each sample
_PAPER_COUNTS = {"heat": 10_000, "navier-stokes": 10_000, "burgers": 6_400, "reaction-diffusion": 6_400}


@dataclass(frozen=True)
class Recipe:
    """Which fields a file holds: sample i is sample i of this problem's training distribution under this seed."""

    problem: str
    count: int
    seed: int = 0
    dtype: DtypeName = "float64"
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_request("data", self.count, self.seed, self.dtype)

    def build(self) -> Problem:
        """Build the problem, refusing unknown names and settings."""
        return problem(self.problem, **self.settings)

    def asked(self) -> dict[str, Any]:
        """Give what a caller asks for, in plain values."""
        return asdict(self)

    def identity(self) -> dict[str, Any]:
        """Add the versions that may change bits: a run is only resumed with the same ones."""
        return {**self.asked(), "versions": versions()}


def check_request(command: str, count: int, seed: int, dtype: str) -> None:
    """Refuse what no file can hold; `command` is what the caller called."""
    if not isinstance(count, int) or count < 1:
        raise DataError(f"{command}(count) expects a whole number >= 1; got {count!r}. Ask for at least one field.")
    if not isinstance(seed, int) or not 0 <= seed <= _LARGEST_SEED:
        raise DataError(f"{command}(seed) expects a whole number from 0 to 2**63 - 1; got {seed!r}. Try 0.")
    if dtype not in ("float64", "float32"):
        raise UnknownName(
            f"{command}(dtype) expects one of ['float64', 'float32']; got {dtype!r}. float64 loses nothing, "
            "float32 halves the file."
        )


def versions(*more: str) -> dict[str, str]:
    """Name the packages that compute the fields."""
    return {name: metadata.version(name) for name in ("snapfm", "torch", "numpy", "scipy", *more)}


def paper_count(name: str) -> int:
    """Give the number of training fields the paper uses for a problem's equation."""
    return _PAPER_COUNTS[problem(name).equation]
