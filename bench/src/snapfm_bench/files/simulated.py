"""DataRecipe: everything that decides the bits of a file of simulated fields, and `write`, which writes such a file.

Two files of one recipe are equal, no matter how often their runs were stopped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from snapfm.files.engines import Engine, Progress, Report
from snapfm.files.layout import Drawn, Layout
from snapfm.files.requests import DtypeName, check_recipe, versions
from snapfm.files.stream import HERE, Written, stream
from snapfm_bench.files.described import about, coordinates, drawn, field_variable
from snapfm_bench.problems import Problem, problem

_PAPER_COUNTS = {"heat": 10_000, "navier-stokes": 10_000, "burgers": 6_400, "reaction-diffusion": 6_400}


@dataclass(frozen=True)
class DataRecipe:
    """Which fields a file holds: sample i is sample i of this problem's training distribution under this seed."""

    problem: str
    count: int
    seed: int = 0
    dtype: DtypeName = "float64"
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_recipe("data", self)

    def build(self) -> Problem:
        """Build the problem, refusing unknown names and settings."""
        return problem(self.problem, **self.settings)

    def asked(self) -> dict[str, Any]:
        """Return what a caller asks for, in plain values."""
        return asdict(self)

    def identity(self) -> dict[str, Any]:
        """Add the versions that may change bits: a run is only resumed with the same ones."""
        return {**self.asked(), "versions": versions()}


def paper_count(name: str) -> int:
    """Return the number of training fields the paper uses for a problem's equation."""
    return _PAPER_COUNTS[problem(name).equation]


class Simulated:
    """The source of a recipe: fields of the problem's training distribution, with everything that was drawn for them."""

    command = "data"
    block = 32  # samples per shard: a few MB, and at most half a minute of simulation lost by a stop
    threads: int | None = 1  # the simulators' tiles fit the cache: threads would only wait for each other

    def __init__(self, recipe: DataRecipe) -> None:
        self.recipe = recipe
        self.problem = recipe.build()
        self.count, self.seed, self.dtype = recipe.count, recipe.seed, str(recipe.dtype)
        self.grid, self.shape = self.problem.grid, self.problem.grid.shape

    def __reduce__(self) -> tuple[type[Simulated], tuple[DataRecipe]]:
        return Simulated, (self.recipe,)

    def asked(self) -> dict[str, Any]:
        """Return the recipe."""
        return self.recipe.asked()

    def identity(self) -> dict[str, Any]:
        """Return the recipe and the versions that simulate."""
        return self.recipe.identity()

    def layout(self) -> Layout:
        """Describe the fields and the values drawn for them, from a first sample."""
        problem = self.problem
        _, example = problem.draw_training(self.seed, 0, 1)
        attributes = {
            "title": f"{self.count} simulated fields: {problem.equation}",
            **about(problem),
            "seed": self.seed,
            "count": self.count,
            "snapfm": self.identity()["versions"]["snapfm"],
        }
        variables = {"u": field_variable(problem, self.dtype), **drawn(self.grid, example, self.dtype)}
        return Layout(attributes, variables, coordinates(self.grid))

    def draw(self, start: int, stop: int, report: Report) -> Drawn:
        """Simulate the samples start .. stop − 1."""
        fields, values = self.problem.draw_training(self.seed, start, stop - start)
        return Drawn({name: value.numpy() for name, value in {"u": fields, **values}.items()})


def write(
    recipe: DataRecipe, out: str | Path, progress: Progress | None = None, *, engine: Engine = HERE
) -> Written:  # fmt: skip
    """Write the fields of a recipe to `out`, resuming a stopped run; unknown problems and settings are refused.

    `progress` is called with the number of samples on disk after every block. A finished file of the same recipe is left as
    it is. A file of another recipe is refused, finished or not. `engine` computes the blocks: see snapfm.files.engines.
    """
    return stream(Simulated(recipe), out, progress, engine=engine)
