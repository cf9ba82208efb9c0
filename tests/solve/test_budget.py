"""A call ends: by its limit of iterations, by its seconds, by Control-C; what is cut short harms nobody else."""

from __future__ import annotations

import os
import signal
import threading
import time

import numpy as np
import pytest
import torch

import snapfm
from snapfm import Equality, Inequality, Projector, Status
from snapfm.errors import SettingError
from snapfm.kernels.threads import Clock, Deadline, cut, run, workers
from snapfm.solve.newton import Newton
from snapfm.solve.stage import State
from snapfm.solve.tiles import AttemptOutcome


def randn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def variation() -> list[Inequality]:
    """A total-variation bound: kinks everywhere, which take some sixty iterations from noise."""
    return [Inequality("variation", lambda u, p: (u[1:] - u[:-1]).abs().sum() - 1.0)]


def coupled(size: int) -> list[Equality]:
    """Darcy's equation on a grid: coefficient and pressure are both unknown, so nothing falls apart."""

    def flow(u: torch.Tensor, p: snapfm.laws.Params) -> torch.Tensor:
        a, v = u[0], u[1]
        east = 0.5 * (a[1:, 1:-1] + a[:-1, 1:-1]) * (v[1:, 1:-1] - v[:-1, 1:-1])
        north = 0.5 * (a[1:-1, 1:] + a[1:-1, :-1]) * (v[1:-1, 1:] - v[1:-1, :-1])
        return (east[1:] - east[:-1]) + (north[:, 1:] - north[:, :-1]) + 1.0 / size**2

    return [Equality("flow", flow)]


@pytest.mark.parametrize("limit", [1, 7, 60])
def test_no_sample_iterates_beyond_the_limit(limit: int):
    project = Projector(variation(), (64,))
    result = project(3.0 * randn(5, 64), limit=limit)
    assert (result.iterations <= limit).all()
    assert set(result.status.tolist()) <= {int(Status.CONVERGED), int(Status.ITERATION_LIMIT), int(Status.STALLED)}
    assert not result.converged.all()
    assert (Projector(variation(), (64,), limit=limit)(3.0 * randn(5, 64)).iterations <= limit).all()


def test_a_part_that_takes_all_its_time_leaves_some_for_those_after_it(monkeypatch: pytest.MonkeyPatch):
    laws = [
        Equality("pair", lambda u, p: u[0] * u[1] - 1.0),
        Equality("three", lambda u, p: u[2] * u[3] * u[4] - 1.0),
    ]
    project = Projector(laws, (5,))
    u_hat = 1.0 + 0.1 * randn(2, 5)
    project(u_hat)  # compiles
    assert isinstance(project.method, Newton)
    first, _ = project.method.plan.systems

    def endless(state: State) -> AttemptOutcome:
        while not state.deadline.over:
            time.sleep(0.01)
        return AttemptOutcome.unfinished(len(state.u))

    monkeypatch.setattr(first, "solve", endless)
    found = project(u_hat, seconds=0.5)
    assert (found.status == Status.ITERATION_LIMIT).all()
    slow, quick = ("pair", "three") if first.system.unknowns.shape[1] == 2 else ("three", "pair")
    assert (found.by_law[slow] > 1e-3).all()
    assert (found.by_law[quick] <= 1e-8).all()


def test_a_sample_cut_by_its_limit_leaves_the_bits_of_the_others():
    laws = [
        Equality("sphere", lambda u, p: (u**2).sum() - p["r"] ** 2),
        Equality("cube", lambda u, p: (u**3).sum() - p["c"]),
    ]
    project = Projector(laws, (7,), {"r": torch.ones(1), "c": torch.zeros(1)})
    u_hat, easy = randn(9, 7), {"r": torch.ones(9), "c": torch.zeros(9)}
    hard = {"r": torch.ones(9), "c": torch.zeros(9)}
    hard["c"][4] = 50.0  # beyond what the sphere allows
    alone, mixed = project(u_hat, easy, limit=40), project(u_hat, hard, limit=40)
    others = [k for k in range(9) if k != 4]
    assert not bool(mixed.converged[4])
    assert alone.u[others].numpy().tobytes() == mixed.u[others].numpy().tobytes()
    assert alone.status[others].tolist() == mixed.status[others].tolist()


def test_seconds_end_a_call_inside_compiled_loops():
    project = Projector(coupled(48), (2, 48, 48))
    assert isinstance(project.method, Newton)
    u_hat = 2.0 * randn(8, 2, 48, 48)
    project(u_hat[:1], limit=1)  # compiles
    for seconds in (0.1, 0.3):  # fast machines need less than a second
        began = time.process_time()  # of this process alone: a machine that is busy elsewhere does not count
        result = project(u_hat, seconds=seconds)
        took = time.process_time() - began
        assert took <= workers() * (1.1 * seconds + 0.5)
        assert (result.status == Status.ITERATION_LIMIT).any()
        assert result.u.isfinite().all()


def test_time_that_is_over_before_it_begins_gives_the_input_marked():
    project = Projector([Equality("sphere", lambda u, p: (u**2).sum() - 1.0)], (5,))
    u_hat = randn(20, 5)
    result = project(u_hat, seconds=1e-9)
    assert result.status.tolist() == [Status.ITERATION_LIMIT] * 20
    assert "seconds=" in Status.ITERATION_LIMIT.advice
    project(u_hat).raise_for_status()


def test_an_affine_call_and_a_slow_one_end_too():
    affine = Projector([Equality("mass", lambda u, p: u.sum() - 1.0)], (5,))
    slow = Projector([Equality("law", lambda u, p: torch.logsumexp(u, 0) - 1.0)], (5,))
    for project in (affine, slow):
        result = project(randn(20, 5), seconds=1e-9)
        assert (result.status == Status.ITERATION_LIMIT).any()
        assert not bool(result.converged.all())


@pytest.mark.parametrize(
    ("given", "said"),
    [({"limit": 0}, "limit=… expects a whole number"), ({"limit": 2.5}, "limit=…"), ({"limit": True}, "limit=…"),
     ({"seconds": 0}, "seconds=… expects a positive number"), ({"seconds": float("nan")}, "seconds=…"),
     ({"seconds": "5"}, "seconds=…")],
)  # fmt: skip
def test_budgets_that_make_no_sense_are_refused(given, said: str):
    laws, shape = [Equality("mass", lambda u, p: u.sum() - 1.0)], (5,)
    with pytest.raises(SettingError, match=said):
        Projector(laws, shape, **given)
    with pytest.raises(SettingError, match=said):
        Projector(laws, shape)(randn(2, 5), **given)


@pytest.mark.skipif(os.name == "nt", reason="signals are sent another way there")
def test_control_c_ends_a_projection_within_a_second_and_leaves_the_projector_usable():
    project = Projector(coupled(48), (2, 48, 48))
    u_hat = 2.0 * randn(8, 2, 48, 48)
    easy = torch.ones(2, 2, 48, 48, dtype=torch.float64)
    before = project(easy, limit=30)
    sent: list[float] = []

    def interrupt() -> None:
        sent.append(time.process_time())
        os.kill(os.getpid(), signal.SIGINT)

    def begun() -> None:
        timer.start()
        project(u_hat, seconds=600.0, limit=100_000)

    timer = threading.Timer(0.7, interrupt)
    before_all = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell in the background ignores it
    try:
        with pytest.raises(KeyboardInterrupt):
            begun()
        assert time.process_time() - sent[0] < workers() * 1.0
    finally:
        timer.join()
        signal.signal(signal.SIGINT, before_all)
    after = project(easy, limit=30)
    assert before.u.numpy().tobytes() == after.u.numpy().tobytes()
    assert before.status.tolist() == after.status.tolist()


# The runner itself.


def test_pieces_have_a_fair_share_and_begin_again_while_time_is_left():
    begun: list[int] = []

    def work(piece: slice, deadline: Deadline) -> bool:
        begun.append(piece.start)
        if piece.start == 0 and begun.count(0) == 1:  # the first is slow at its first deadline
            while not deadline.over:
                time.sleep(0.001)
            return False
        return True

    clock = Clock(4.0)  # shares of a second: longer than a busy machine keeps a thread waiting
    run(work, cut(4, 1, 4), clock)
    assert begun == [0, 1, 2, 3, 0]
    assert not clock.over


def test_every_piece_is_begun_even_when_time_is_over():
    seen: list[tuple[int, bool]] = []
    run(lambda piece, deadline: bool(seen.append((piece.start, deadline.over))), cut(3, 1, 3), Clock(0.0))
    assert seen == [(0, True), (1, True), (2, True)]


@pytest.mark.parametrize("threads", [1, 3])
def test_a_piece_that_raises_ends_the_call(threads: int):
    def work(piece: slice, deadline: Deadline) -> bool:
        if piece.start == 2:
            raise ValueError("third")
        return True

    with pytest.raises(ValueError, match="third"):
        run(work, cut(5, 1, 5), Clock(np.inf), threads)


def test_a_paused_clock_does_not_count():
    clock = Clock(0.2)
    with clock.paused():
        time.sleep(0.25)
    assert not clock.over
    assert 0.0 < clock.left <= 0.2


@pytest.mark.parametrize(("count", "unit", "number"), [(0, 8, 3), (1, 8, 3), (65, 8, 2), (96, 8, 2), (7, 1, 3)])
def test_cuts_cover_everything_once(count: int, unit: int, number: int):
    pieces = cut(count, unit, number)
    assert [k for piece in pieces for k in range(piece.start, piece.stop)] == list(range(count))
    assert len(pieces) <= number
    assert all(piece.start % unit == 0 for piece in pieces)


def test_a_first_call_shares_its_work_where_iterations_take_long(monkeypatch):
    used = []

    def watched(work, pieces, clock, threads=1, watched=False):
        used.append(threads)
        return run(work, pieces, clock, threads, watched)

    monkeypatch.setattr("snapfm.solve.pieces.run", watched)
    monkeypatch.setattr("snapfm.solve.pieces.workers", lambda: 2)
    Projector(coupled(32), (2, 32, 32))(randn(16, 2, 32, 32), limit=1)
    Projector([Equality("sphere", lambda u, p: (u**2).sum() - 1.0)], (7,))(randn(16, 7), limit=1)
    assert used == [2, 1]
