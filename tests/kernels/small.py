"""Systems of one to three unknowns in tiles of eight lanes, with rows and derivatives written out by hand.

Nothing is reduced: every unknown is iterated on, but those an example names as eliminated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from snapfm import Equality, Inequality
from snapfm.compile import compile_laws
from snapfm.compile.lower.tape import without
from snapfm.compile.program import build_program
from snapfm.kernels import layout
from snapfm.kernels.callback import Callback
from snapfm.kernels.interior import interior_tiles
from snapfm.kernels.layout import Frame, Settings, Tile
from snapfm.kernels.newton import solve_tiles
from snapfm.kernels.operations import LANES
from snapfm.kernels.program import Code
from snapfm.kernels.restoration import restore_tiles
from snapfm.linear import Lanes, Solver
from snapfm.reduce.reduce import System
from snapfm.solve import kkt
from snapfm.solve.system import Part, _factorization_callback

Values = npt.NDArray[np.float64]

EPS = float(np.finfo(np.float64).eps)
TOLERANCE = 1e-10  # asked of iterations: far above the rounding of rows of order one
STATIONARITY, POLISH = 1e-11, 1e-2  # likewise, of the slope, and the share of the tolerance that needs no further step
ORDINARY = 1e-3  # rows of sizes from this to one over it are not measured by their size
ALL = 1.0  # measure all rows by their size (point.size_rows)
NOTHING = np.zeros(0, np.int64)


@dataclass(frozen=True)
class Example:
    """Laws on n unknowns; rows (m), Jacobian (m, n) and Σλ∇²h (n, n) at one point u (n), by hand."""

    name: str
    n: int
    laws: tuple[Equality | Inequality, ...]
    rows: Callable[[Values], Any]
    jacobian: Callable[[Values], Any]
    curvature: Callable[[Values, Values], Any]
    eliminated: tuple[int, ...] = ()

    @property
    def moving(self) -> list[int]:
        return [j for j in range(self.n) if j not in self.eliminated]


def _bell(x: float) -> float:
    return float(1.0 - np.tanh(x) ** 2)  # the slope of tanh


def _nothing(u: Values, lam: Values) -> Values:
    return np.zeros((len(u), len(u)))


ROOT = Example(
    "root of one unknown",
    1,
    (Equality("root", lambda u, p: u**2 - 2.0),),
    lambda u: [u[0] ** 2 - 2.0],
    lambda u: [[2.0 * u[0]]],
    lambda u, lam: [[2.0 * lam[0]]],
)
CIRCLE = Example(
    "circle",
    2,
    (Equality("circle", lambda u, p: u[0] ** 2 + u[1] ** 2 - 1.0),),
    lambda u: [u[0] ** 2 + u[1] ** 2 - 1.0],
    lambda u: [[2.0 * u[0], 2.0 * u[1]]],
    lambda u, lam: np.diag([2.0 * lam[0], 2.0 * lam[0]]),
)
ELLIPSE = Example(
    "ellipse",
    2,
    (Equality("ellipse", lambda u, p: u[0] ** 2 / 4.0 + u[1] ** 2 - 1.0),),
    lambda u: [u[0] ** 2 / 4.0 + u[1] ** 2 - 1.0],
    lambda u: [[u[0] / 2.0, 2.0 * u[1]]],
    lambda u, lam: np.diag([lam[0] / 2.0, 2.0 * lam[0]]),
)
HYPERBOLA = Example(  # its Hessian is not diagonal, so that its matrix is the augmented one
    "hyperbola",
    2,
    (Equality("product", lambda u, p: u[0] * u[1] - 1.0),),
    lambda u: [u[0] * u[1] - 1.0],
    lambda u: [[u[1], u[0]]],
    lambda u, lam: [[0.0, lam[0]], [lam[0], 0.0]],
)
LENS = Example(
    "sphere, and a half space",
    3,
    (
        Equality("sphere", lambda u, p: (u**2).sum() - 1.0),
        Inequality("half", lambda u, p: u[0] + 2.0 * u[1] - u[2] - 0.5),
    ),
    lambda u: [u @ u - 1.0, u[0] + 2.0 * u[1] - u[2] - 0.5],
    lambda u: [2.0 * u, [1.0, 2.0, -1.0]],
    lambda u, lam: 2.0 * lam[0] * np.eye(3),
)
WAVE = Example(  # operators that are evaluated lane by lane
    "hyperbolic tangent and sine",
    3,
    (Equality("wave", lambda u, p: u[0].tanh() * u[1].sin() - u[2]),),
    lambda u: [np.tanh(u[0]) * np.sin(u[1]) - u[2]],
    lambda u: [[_bell(u[0]) * np.sin(u[1]), np.tanh(u[0]) * np.cos(u[1]), -1.0]],
    lambda u, lam: (
        lam[0]
        * np.array(
            [
                [-2.0 * np.tanh(u[0]) * _bell(u[0]) * np.sin(u[1]), _bell(u[0]) * np.cos(u[1]), 0.0],
                [_bell(u[0]) * np.cos(u[1]), -np.tanh(u[0]) * np.sin(u[1]), 0.0],
                [0.0, 0.0, 0.0],
            ]
        )
    ),
)
PARABOLA = Example(
    "parabola, two unknowns eliminated",
    3,
    (
        Equality("parabola", lambda u, p: u[0] ** 2 + u[1] + 2.0 * u[2] - 1.0),
        Equality("line", lambda u, p: u[0] - u[2]),
    ),
    lambda u: [u[0] ** 2 + u[1] + 2.0 * u[2] - 1.0, u[0] - u[2]],
    lambda u: [[2.0 * u[0], 1.0, 2.0], [1.0, 0.0, -1.0]],
    lambda u, lam: np.diag([2.0 * lam[0], 0.0, 0.0]),
    eliminated=(1, 2),
)
TWICE = Example(
    "circle, written twice",
    2,
    (
        Equality("circle", lambda u, p: u[0] ** 2 + u[1] ** 2 - 1.0),
        Equality("again", lambda u, p: 2.0 * (u[0] ** 2 + u[1] ** 2 - 1.0)),
    ),
    lambda u: [u @ u - 1.0, 2.0 * (u @ u - 1.0)],
    lambda u: [2.0 * u, 4.0 * u],
    lambda u, lam: (2.0 * lam[0] + 4.0 * lam[1]) * np.eye(2),
)
DISC = Example(
    "disc",
    2,
    (Inequality("disc", lambda u, p: u[0] ** 2 + u[1] ** 2 - 1.0),),
    CIRCLE.rows,
    CIRCLE.jacobian,
    CIRCLE.curvature,
)
PLANE = Example(
    "plane",
    3,
    (Equality("plane", lambda u, p: u.sum() - 1.0),),
    lambda u: [u.sum() - 1.0],
    lambda u: [[1.0, 1.0, 1.0]],
    _nothing,
)
CONE = Example(  # of degree one, so that a solution in larger units is the same one, larger
    "cone",
    3,
    (Equality("cone", lambda u, p: (u[0] ** 2 + u[1] ** 2).sqrt() - u[2]),),
    lambda u: [np.hypot(u[0], u[1]) - u[2]],
    lambda u: [[u[0] / np.hypot(u[0], u[1]), u[1] / np.hypot(u[0], u[1]), -1.0]],
    lambda u, lam: (
        lam[0]
        / np.hypot(u[0], u[1]) ** 3
        * np.array([[u[1] ** 2, -u[0] * u[1], 0.0], [-u[0] * u[1], u[0] ** 2, 0.0], [0.0, 0.0, 0.0]])
    ),
)
NEVER = Example(
    "never",
    2,
    (Equality("never", lambda u, p: u[0] ** 2 + u[1] ** 2 + 1.0),),
    lambda u: [u @ u + 1.0],
    lambda u: [2.0 * u],
    lambda u, lam: 2.0 * lam[0] * np.eye(2),
)
EXAMPLES = [ROOT, CIRCLE, ELLIPSE, HYPERBOLA, LENS, WAVE, PARABOLA, PLANE, CONE]


def system_of(example: Example) -> System:
    """Compile the laws of an example; all rows are kept, redundant ones too."""
    scalar = compile_laws(example.laws, (example.n,)).scalar
    tape, rows = scalar.tape, csr_array(scalar.rows)
    eliminated, moving = np.array(example.eliminated, np.int64), np.array(example.moving, np.int64)
    still = csr_array(rows[:, tape.first_unknown + eliminated])
    gone = np.isin(np.arange(tape.cells), tape.first_unknown + eliminated)
    program = build_program(tape, without(rows, gone), moving)
    equality = np.concatenate(
        [np.full(size, isinstance(law, Equality)) for law, size in zip(example.laws, [1] * len(example.laws))]
    )
    return System.of(program, np.arange(rows.shape[0]), moving, equality, eliminated=eliminated, linear=still)


class Small:
    """The tiles of one example. `bounds` are (lower, upper), one number each per unknown; lane L of tile k is column L of it.

    `augmented` takes the augmented matrix where the Schur complement would do, `coupled` the Schur complement where the
    augmented matrix is cheaper; `solver` other than Lanes() is called back.
    """

    def __init__(
        self,
        example: Example,
        augmented: bool = False,
        bounds: tuple[Sequence[float], Sequence[float]] | None = None,
        solver: Solver | None = None,
        tiles: int = 1,
        coupled: bool = False,
    ) -> None:
        self.example, self.system = example, system_of(example)
        lower, upper = bounds if bounds is not None else ([-np.inf] * example.n, [np.inf] * example.n)
        self.lower, self.upper = np.array(lower, float), np.array(upper, float)
        largest = mock.patch.object(kkt, "_LARGE", 0 if coupled else kkt._LARGE)
        with largest, mock.patch.object(kkt, "_PRODUCTS", -1 if augmented else kkt._PRODUCTS):
            self.part = Part(self.system, self.lower, self.upper, NOTHING, Lanes() if solver is None else solver)
        self.space = np.zeros((tiles, int(self.part.at[-1])))
        self.code: Code = self.system.program.code
        self.frame: Frame = self.part.kkt.frame
        self.plan = self.part.kkt.schedule
        self.callback: Callback | None = None
        if not self.part.kkt.fused:
            workspace = self.part.kkt.linear.workspace()
            self.callback = Callback(
                _factorization_callback(workspace, self.part.at, self.part.kkt.entries, np.zeros(1, np.int64))
            )
            self.frame = self.frame._replace(callback=self.callback.address)

    @property
    def tile(self) -> Tile:
        """The first tile, as kernels take it."""
        return Tile(self.space[0], self.space[0], self.part.at)

    def section(self, number: int, tile: int = 0) -> Values:
        """See a section of a tile as (packs, LANES)."""
        at = self.part.at
        return self.space[tile, at[number] : at[number + 1]].reshape(-1, LANES)

    def start(self, x: npt.ArrayLike, target: npt.ArrayLike, multipliers: npt.ArrayLike = 0.0, tile: int = 0) -> Small:
        """Begin anew at x (n,) or (n, LANES), near target, with multipliers (m,) or (m, LANES); NaN fills all other memory."""
        example, rows = self.example, self.system.rows.shape[1]
        moving, eliminated = example.moving, list(example.eliminated)
        target = _spread(target, example.n)
        self.space[tile] = np.nan  # what a kernel does not write it must not read
        self.section(layout.X, tile)[:] = _spread(x, example.n)[moving]
        self.section(layout.TARGET, tile)[:] = target[moving]
        self.section(layout.MULTIPLIER, tile)[:] = _spread(multipliers, rows)
        self.section(layout.SHIFT, tile)[:] = self.system.linear @ target[eliminated]
        self.section(layout.CELLS, tile)[:1] = 1.0
        self.section(layout.JACOBIAN, tile)[:] = self.system.program.constants[:, None]
        for number in (layout.BARRIER, layout.BOUND_WEIGHT, layout.REGULARIZATION):
            self.section(number, tile)[:] = 0.0
        self.section(layout.UNIT, tile)[:] = 1.0
        if self.frame.bounded:
            self.section(layout.LOWER, tile)[:] = self.lower[moving, None]
            self.section(layout.UPPER, tile)[:] = self.upper[moving, None]
        return self

    def point(self, lane: int) -> Values:
        """All unknowns of a lane: those eliminated are û − Aᵀλ."""
        u, eliminated = np.empty(self.example.n), list(self.example.eliminated)
        u[self.example.moving] = self.section(layout.X)[:, lane]
        u[eliminated] = self.target[eliminated, lane] - self.system.linear.T @ self.section(layout.MULTIPLIER)[:, lane]
        return u

    @property
    def target(self) -> Values:
        """û (n, LANES); of eliminated unknowns the least one that gives their share of the rows."""
        target = np.empty((self.example.n, LANES))
        target[self.example.moving] = self.section(layout.TARGET)
        still = self.system.linear.toarray()
        target[list(self.example.eliminated)] = np.linalg.pinv(still) @ self.section(layout.SHIFT)
        return target


@dataclass(frozen=True)
class Finished:
    """What a loop says of each lane, (LANES,) or (tiles, LANES), and where it left them."""

    status: npt.NDArray[np.int64]
    iterations: npt.NDArray[np.int64]
    second: npt.NDArray[np.int64]
    x: Values  # (unknowns, LANES)
    multipliers: Values

    def lanes(self, which: Any) -> list[bytes]:
        """The bits of some lanes."""
        everything = (self.status, self.iterations, self.second, self.x, self.multipliers)
        return [np.ascontiguousarray(part[..., which]).tobytes() for part in everything]


def _loop(
    small: Small, kernel: Any, given: tuple[Any, ...], limits: Any, live: Any, stop: int, second: bool
) -> Finished:
    tiles = len(small.space)
    shape = (tiles, LANES)
    # Copies: views that cannot be written to have a type of their own, for which kernels would be compiled again.
    most = np.array(np.broadcast_to(np.asarray(limits, np.int64), shape))
    alive = np.array(np.broadcast_to(np.asarray(live, bool), shape))
    ended = [np.full(shape, -9, np.int64) for _ in range(3)]
    kept = int(small.part.at[layout.KEPT])
    space, work = small.space[:, :kept].copy(), np.full(small.space.shape[1], np.nan)
    kernel(
        small.code, small.frame, small.plan, *given, most, np.array([stop]), alive, space, small.part.at, work,
        *(ended if second else ended[:2]),
    )  # fmt: skip
    small.space[-1] = work
    small.space[:, :kept] = space
    if small.callback is not None:
        small.callback.check()
    x = np.concatenate([small.section(layout.X, k) for k in range(tiles)], axis=1).copy()
    lam = np.concatenate([small.section(layout.MULTIPLIER, k) for k in range(tiles)], axis=1).copy()
    return Finished(*(part.ravel() for part in ended), x, lam)


def newton(
    small: Small, limits: Any = 50, live: Any = True, stop: int = 0, trials: int = 50, tolerance: float = TOLERANCE,
    filtered: bool = False, patience: int = 0,
) -> Finished:  # fmt: skip
    """Run Newton's loop on all tiles."""
    settings = Settings(tolerance, STATIONARITY, POLISH, ORDINARY, trials, int(filtered), patience)
    return _loop(small, solve_tiles, (settings,), limits, live, stop, True)


def interior(small: Small, limits: Any = 100, live: Any = True, stop: int = 0, soft: bool = False) -> Finished:
    """Follow the barrier in all tiles, with soft equalities if asked."""
    return _loop(small, interior_tiles, (ORDINARY, int(soft)), limits, live, stop, False)


def restore(small: Small, limits: Any = 200, live: Any = True, stop: int = 0, tolerance: float = TOLERANCE) -> Finished:
    """Lower the violation in all tiles."""
    return _loop(small, restore_tiles, (tolerance,), limits, live, stop, False)


def lanes_near(center: Sequence[float], spread: float, seed: int = 0) -> Values:
    """Draw one point per lane (n, LANES), uniform within `spread` of a center."""
    rng = np.random.default_rng(seed)
    return np.array(center, float)[:, None] + spread * rng.uniform(-1.0, 1.0, (len(center), LANES))


def _spread(values: npt.ArrayLike, packs: int) -> Values:
    given = np.asarray(values, float)
    return np.array(np.broadcast_to(given if given.ndim == 2 else given.reshape(-1, 1), (packs, LANES)))
