"""The law being drawn, the table of operators it is drawn from, and the strategy that draws it.

A law is a chain of steps, each a small torch function of the value so far. While a chain is drawn it is run at the
points where it will be checked, so a step is offered only where it is defined (a logarithm where all values are
positive) and stays small (growing axes and growing values stop it). Its text is what a failing example prints.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

Params = Mapping[str, Tensor]
Apply = Callable[[Tensor, Params], Tensor]
Draw = Callable[[st.SearchStrategy[Any]], Any]

# Asymmetric shapes make up half of what is drawn; the rest are the edges: sizes 1 and 0, and no axis at all.
COMMON = [(3, 5), (4,), (2, 3, 4), (5, 2), (7,)]
EDGES = [(1, 6), (4, 1), (3, 1, 2), (1,), (1, 1), (), (0,), (0, 3), (2, 0, 3)]
LENGTHS = [2, 3, 4, 5, 1]  # in the order in which a failing law is made simpler
LARGEST = 48  # elements of any value of a chain: dense references are computed row by row
STEEPEST = 30.0  # values beyond this end a chain: a tolerance derived from the dtype would mean nothing


@dataclass
class Chain:
    """A law being drawn: its steps, its params, and its value at every point where it will be looked at."""

    shape: tuple[int, ...]
    fields: Tensor  # (points, *shape)
    generator: torch.Generator
    draw: Draw
    steps: list[tuple[str, Apply]] = field(default_factory=list)
    params: dict[str, Tensor] = field(default_factory=dict)  # (points, *shape of the param)
    values: list[Tensor] = field(default_factory=list)
    coarse: bool = False  # a float32 was on the way

    def residual(self, u: Tensor, params: Params) -> Tensor:
        """Evaluate the law."""
        for _, apply in self.steps:
            u = apply(u, params)
        return u

    def param(self, *shape: int) -> str:
        """Ask for a new param of that shape; values in (0.6, 1.6)."""
        name = f"p{len(self.params)}"
        points = len(self.fields)
        self.params[name] = 0.6 + torch.rand(points, *shape, generator=self.generator, dtype=torch.float64)
        # Points 0 and 1 stand for one sample: same params, two fields.
        self.params[name][1] = self.params[name][0]
        return name

    def constant(self, *shape: int) -> Tensor:
        """Make a constant that the law closes over; about a third of its entries are zero."""
        values = torch.rand(shape, generator=self.generator, dtype=torch.float64) + 0.3
        sign = torch.rand(shape, generator=self.generator, dtype=torch.float64)
        values = torch.where(sign < 0.5, -values, values)
        return torch.where(torch.rand(shape, generator=self.generator) < 0.3, 0.0, values)

    def pick(self, *options: Any) -> Any:
        """Draw one of the options."""
        return self.draw(st.sampled_from(options))

    def axis(self) -> int:
        """Draw an axis of the present value, counted from either end."""
        return self.draw(st.integers(-self.dim, self.dim - 1))

    def index(self, extent: int, count: int) -> Tensor:
        """Draw `count` indices below `extent`, repeated or not."""
        return torch.randint(0, extent, (count,), generator=self.generator)

    @property
    def value(self) -> Tensor:
        """The present value at the first point."""
        return self.values[0]

    @property
    def dim(self) -> int:
        """Number of axes of the present value."""
        return self.value.dim()

    @property
    def last(self) -> int:
        """Extent of the last axis."""
        return self.value.shape[-1] if self.dim else 0

    def below(self, limit: float) -> bool:
        """Whether all values are smaller than the limit in size."""
        return all(float(v.abs().max()) < limit for v in self.values if v.numel())

    def above(self, limit: float) -> bool:
        """Whether all values are greater than the limit."""
        return all(float(v.min()) > limit for v in self.values if v.numel())

    def add(self, text: str, apply: Apply) -> bool:
        """Append a step, unless its result is too large, too steep or undefined at some point."""
        results = []
        for i, value in enumerate(self.values):
            result = apply(value, {name: param[i] for name, param in self.params.items()})
            if result.numel() > LARGEST or not bool((result.abs() < STEEPEST).all()):
                return False
            results.append(result)
        self.steps.append((text, apply))
        self.values = results
        self.coarse |= text.startswith("float32")
        return True

    def __repr__(self) -> str:
        lines = [f"field {self.shape}, params { {k: tuple(v.shape[1:]) for k, v in self.params.items()} }"]
        return "\n  ".join([*lines, *(f"x = {text}" for text, _ in self.steps)])


@dataclass(frozen=True)
class Operator:
    """One kind of step: where it can be taken, and how it is drawn and appended."""

    fits: Callable[[Chain], bool]
    append: Callable[[Chain], bool]


FAMILIES: dict[str, dict[str, Operator]] = {}


def operator(family: str, name: str, fits: Callable[[Chain], bool] = lambda c: True) -> Callable[[Any], Any]:
    """Register how a step of that name is drawn and appended."""

    def register(append: Callable[[Chain], bool]) -> Callable[[Chain], bool]:
        FAMILIES.setdefault(family, {})[name] = Operator(fits, append)
        return append

    return register


def plain(family: str, name: str, apply: Apply, fits: Callable[[Chain], bool] = lambda c: True) -> None:
    """Register an operator that has nothing to draw."""
    operator(family, name, fits)(lambda c: c.add(name, apply))


@st.composite
def laws(draw: Draw, family: str) -> Chain:
    """Compose a law whose first step is of the given family and up to four more of any."""
    shape = draw(st.sampled_from(COMMON + COMMON + EDGES))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
    low = draw(st.sampled_from([0.2, -1.2]))
    fields = low + 1.3 * torch.rand(3, *shape, generator=generator, dtype=torch.float64)
    example = 0.1 + 0.8 * torch.rand(1, *shape, generator=generator, dtype=torch.float64)  # where compile_laws() looks
    chain = Chain(shape, torch.cat([fields, example]), generator, draw)
    chain.values = list(chain.fields.unbind())
    everything = [(name, operator) for table in FAMILIES.values() for name, operator in table.items()]
    for step in range(draw(st.sampled_from(LENGTHS))):
        table = list(FAMILIES[family].items()) if step == 0 else everything
        fitting = [entry for entry in table if entry[1].fits(chain)]
        if fitting:
            draw(st.sampled_from(fitting))[1].append(chain)
    return chain


def small(limit: float) -> Callable[[Chain], bool]:
    return lambda c: c.below(limit)


def large(limit: float) -> Callable[[Chain], bool]:
    return lambda c: c.above(limit)


def away(c: Chain) -> bool:
    return all(float(v.abs().min()) > 0.1 for v in c.values if v.numel())


def between(low: float, high: float) -> Callable[[Chain], bool]:
    return lambda c: c.above(low) and c.below(high)


def axes(c: Chain) -> bool:
    return c.dim >= 1


def full(c: Chain) -> bool:
    return c.dim >= 1 and c.value.numel() > 0


def plane(c: Chain) -> bool:
    return c.dim >= 2 and c.value.numel() > 0


def operand(c: Chain) -> tuple[str, Apply]:
    """Draw a second operand that broadcasts: a number, a constant with zeros, a param, or the value itself, moved."""
    kind = c.pick("number", "constant", "row", "param", "param-row", "param-scalar", "flipped", "first", "same")
    shape = tuple(c.value.shape)
    row = shape[-1:]
    if kind == "number":
        number = c.pick(2.0, -0.5, 3, 0.0)
        return str(number), lambda x, p: torch.full((), float(number), dtype=x.dtype)
    if kind in ("constant", "row"):
        constant = c.constant(*(shape if kind == "constant" else row))
        return f"constant{tuple(constant.shape)}", lambda x, p: constant
    if kind.startswith("param"):
        name = c.param(*{"param": shape, "param-row": row, "param-scalar": ()}[kind])
        return f"params['{name}']", lambda x, p: p[name]
    if kind == "flipped":
        axes = list(range(c.dim))
        return "x.flip", lambda x, p: x.flip(axes)
    if kind == "first" and c.dim and c.last:
        return "x[..., :1]", lambda x, p: x[..., :1]
    return "x", lambda x, p: x
