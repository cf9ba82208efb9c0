"""Simulated: the fields of a problem's training distribution, with all that was drawn for them, as a source."""

from __future__ import annotations

from typing import Any

from snapfm.data.layout import about, drawn, field
from snapfm.data.recipe import Recipe
from snapfm.data.source import Arrays, Layout


class Simulated:
    """The source of a recipe; building it refuses unknown problems and settings."""

    command = "data"
    block = 32  # samples per shard: a few MB, and at most half a minute of simulation lost by a stop

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self.problem = recipe.build()
        self.count, self.seed, self.dtype = recipe.count, recipe.seed, str(recipe.dtype)
        self.grid = self.problem.grid

    def asked(self) -> dict[str, Any]:
        """Give the recipe."""
        return self.recipe.asked()

    def identity(self) -> dict[str, Any]:
        """Give the recipe and the versions that simulate."""
        return self.recipe.identity()

    def layout(self) -> Layout:
        """Describe the fields and what is drawn for them, from a first sample."""
        problem = self.problem
        _, example = problem.draw_training(self.seed, 0, 1)
        attributes = {
            "title": f"{self.count} simulated fields: {problem.equation}",
            **about(problem),
            "seed": self.seed,
            "count": self.count,
            "snapfm": self.identity()["versions"]["snapfm"],
        }
        variables = {"u": field(problem, self.dtype), **drawn(self.grid, example, self.dtype)}
        return Layout(attributes, variables)

    def draw(self, start: int, stop: int) -> Arrays:
        """Simulate the samples start .. stop − 1."""
        fields, values = self.problem.draw_training(self.seed, start, stop - start)
        return {name: value.numpy() for name, value in {"u": fields, **values}.items()}
