"""Python called from the compiled loops: laws and factorisations from outside take the same steps as those inside."""

from __future__ import annotations

import ctypes
from unittest import mock

import numpy as np
import pytest
from tests.kernels.small import (
    DISC,
    EPS,
    EXAMPLES,
    HYPERBOLA,
    LENS,
    TWICE,
    Example,
    Finished,
    Small,
    interior,
    lanes_near,
    newton,
    restore,
)

from snapfm.kernels import layout
from snapfm.kernels.callback import NO_CALLBACK, Callback, call_back
from snapfm.kernels.newton import CONVERGED
from snapfm.kernels.numba.compiling import compiled
from snapfm.kernels.operations import LANES
from snapfm.linear import Fronts
from snapfm.linear.fronts import FrontsWorkspace

CENTER, AIM = [1.2, 0.9, 0.7], [1.0, 0.8, 0.5]
ROUNDING = 4096 * EPS  # of answers of some ten steps, each the solution of a well-conditioned system
forms = pytest.mark.parametrize("augmented", [False, True], ids=["schur", "augmented"])
every_example = pytest.mark.parametrize("example", [*EXAMPLES, DISC], ids=lambda example: example.name)
loops = pytest.mark.parametrize("loop", [newton, interior, restore], ids=["newton", "interior", "restoration"])


def begun(example: Example, augmented: bool = False, solver=None) -> Small:
    small = Small(example, augmented, solver=solver)
    return small.start(lanes_near(CENTER[: example.n], 0.3), lanes_near(AIM[: example.n], 0.5, seed=1))


def by_hand(small: Small) -> Callback:
    """Evaluate the rows of an example and their derivatives by its own Python functions."""
    example, at, moving = small.example, small.part.at, small.example.moving
    pattern, hessian = small.system.program.pattern, small.system.program.hessian
    assert not example.eliminated

    def serve(task: int, memory: int) -> None:
        tile = np.ctypeslib.as_array((ctypes.c_double * int(at[-1])).from_address(memory))

        def section(number: int) -> np.ndarray:
            return tile[at[number] : at[number + 1]].reshape(-1, LANES)

        for lane in range(LANES):
            u = section(layout.CELLS)[1 : 1 + example.n, lane].copy()
            if task == layout.TO_EVALUATE:
                section(layout.ROWS)[:, lane] = example.rows(u)
                continue
            assert task == layout.TO_DIFFERENTIATE
            jacobian = np.array(example.jacobian(u), float)[:, moving]
            section(layout.JACOBIAN)[:, lane] = jacobian[pattern.row_of(), pattern.indices]
            curvature = np.array(example.curvature(u, section(layout.MULTIPLIER)[:, lane].copy()), float)
            section(layout.HESSIAN)[:, lane] = curvature[hessian.row_of(), hessian.indices]

    return Callback(serve)


def assert_same_walk(found: Finished, right: Finished) -> None:
    assert found.status.tolist() == right.status.tolist()
    assert found.second.tolist() == right.second.tolist()
    assert found.iterations.tolist() == right.iterations.tolist()
    np.testing.assert_allclose(found.x, right.x, rtol=0.0, atol=ROUNDING)


@pytest.mark.parametrize(
    "example", [e for e in [*EXAMPLES, DISC] if not e.eliminated], ids=lambda example: example.name
)
@forms
@loops
def test_a_law_evaluated_by_python_takes_the_same_steps(example: Example, augmented: bool, loop):
    small, inside = begun(example, augmented), begun(example, augmented)
    small.callback = by_hand(small)
    small.code = small.code._replace(callback=small.callback.address)
    assert_same_walk(loop(small), loop(inside))


@every_example
@forms
@loops
def test_a_factorisation_by_callback_takes_the_same_steps(example: Example, augmented: bool, loop):
    assert_same_walk(loop(begun(example, augmented, Fronts())), loop(begun(example, augmented)))


def test_a_callback_repairs_inertia_and_leaves_out_repeated_rows_alike():
    start = np.tile([[2.0], [0.3]], LANES)
    for example, target, lam in ((HYPERBOLA, [0.1, 0.1], [3.0]), (TWICE, [0.4, 0.2], [-0.4, -0.4])):
        walks = [
            newton(Small(example, solver=solver).start(start, target, lam), limits=4) for solver in (None, Fronts())
        ]
        assert walks[0].iterations.tolist() == walks[1].iterations.tolist()
        assert walks[0].status.tolist() == walks[1].status.tolist()
        size = 1.0 + np.abs(walks[0].x).max()
        np.testing.assert_allclose(walks[0].x, walks[1].x, rtol=0.0, atol=ROUNDING * size)


@forms
def test_with_a_callback_too_nan_in_one_lane_leaves_the_others_and_calls_repeat_to_the_bit(augmented: bool):
    clean, again = newton(begun(LENS, augmented, Fronts())), newton(begun(LENS, augmented, Fronts()))
    assert clean.status.tolist() == [CONVERGED] * LANES
    assert clean.lanes(slice(None)) == again.lanes(slice(None))
    spoilt = begun(LENS, augmented, Fronts())
    spoilt.section(layout.X)[0, 3] = np.nan
    others = np.flatnonzero(np.arange(LANES) != 3)
    assert newton(spoilt).lanes(others) == clean.lanes(others)


@loops
def test_lanes_that_are_absent_or_done_are_not_factorized(loop):
    small, live = begun(LENS, solver=Fronts()), np.arange(LANES) % 3 == 0
    small.section(layout.X)[:, 3] += 5.0  # needs the most steps
    asked, plain = [], FrontsWorkspace.factorize

    def factorize(self, values, running, stop):
        asked.append(running.copy())
        return plain(self, values, running, stop)

    with mock.patch.object(FrontsWorkspace, "factorize", factorize):
        ended = loop(small, live=live)
    assert not np.array(asked)[:, ~live].any()
    assert asked[0].any()
    assert asked[-1].sum() < live.sum()
    assert ended.iterations[~live].tolist() == [0] * int((~live).sum())


@pytest.mark.parametrize("task", [layout.TO_EVALUATE, layout.TO_DIFFERENTIATE], ids=["rows", "derivatives"])
@loops
def test_what_a_law_raises_is_raised_again_once_the_loop_has_ended(task: int, loop):
    small = begun(HYPERBOLA)
    inner, calls = by_hand(small), []

    def serve(asked: int, memory: int) -> None:
        calls.append(asked)
        if asked == task:
            raise KeyError("no such law")
        call(inner.address, asked, np.ctypeslib.as_array((ctypes.c_double * 1).from_address(memory)))

    small.callback = Callback(serve)
    small.code = small.code._replace(callback=small.callback.address)
    with pytest.raises(KeyError, match="no such law") as caught:
        loop(small)
    assert calls.count(task) == 1  # nothing is asked of it any more
    assert calls[-1] == task
    with pytest.raises(KeyError) as again:
        small.callback.check()
    assert again.value is caught.value


@loops
def test_what_a_factorisation_raises_is_raised_again_once_the_loop_has_ended(loop):
    small = begun(LENS, solver=Fronts())

    def serve(task: int, memory: int) -> None:
        raise MemoryError(f"task {task}")

    small.callback = Callback(serve)
    small.frame = small.frame._replace(callback=small.callback.address)
    with pytest.raises(MemoryError, match=f"task {layout.TO_FACTORIZE}"):
        loop(small)


@compiled(nogil=True)
def call(address, task, memory):
    """Call back from compiled code."""
    return call_back(address, task, memory)


def test_a_callback_gets_its_task_and_the_address_of_the_memory_itself():
    memory, seen = np.arange(3.0), []

    def serve(task: int, address: int) -> None:
        seen.append((task, address))
        np.ctypeslib.as_array((ctypes.c_double * 3).from_address(address))[1] = 7.0

    callback = Callback(serve)
    assert callback.address != NO_CALLBACK
    assert call(callback.address, 5, memory) == 0
    assert seen == [(5, memory.ctypes.data)]
    assert memory.tolist() == [0.0, 7.0, 2.0]
    callback.check()  # nothing was raised


def test_a_callback_says_that_it_raised_and_is_not_called_again():
    calls = []

    def serve(task: int, address: int) -> None:
        calls.append(task)
        raise ValueError("once")

    callback, memory = Callback(serve), np.zeros(1)
    assert [call(callback.address, task, memory) for task in (1, 2, 3)] == [1, 1, 1]
    assert calls == [1]
    with pytest.raises(ValueError, match="once"):
        callback.check()
