"""What torch does for one thread at a time: records and forward derivatives made by many threads, and across a fork."""

from __future__ import annotations

import os
import select
import sys
import threading
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor
from torch.func import vmap

import snapfm
from snapfm.compile import compile_laws
from snapfm.compile.trace.recording import jvp, recorded

TIMEOUT = 60.0  # of a child that needs milliseconds


@pytest.fixture(autouse=True)
def _hasty() -> Iterator[None]:
    """Let threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def together(work: Callable[[int], None], threads: int = 8) -> None:
    """Run work(0), work(1), … at the same time; raise what one of them raises."""
    gate, failures = threading.Barrier(threads), []

    def guarded(number: int) -> None:
        try:
            gate.wait()
            work(number)
        except BaseException as failure:
            failures.append(failure)

    running = [threading.Thread(target=guarded, args=(number,)) for number in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    if failures:
        raise failures[0]


def waves(x: Tensor) -> Tensor:
    return torch.sin(x).cumsum(0) ** 2


def slopes(x: Tensor) -> Tensor:
    return vmap(lambda seed: jvp(waves, x, seed))(torch.eye(5, dtype=x.dtype))


def test_forward_slopes_of_many_threads_are_those_of_one():
    points = torch.rand(8, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    alone = [slopes(point) for point in points]

    def work(number: int) -> None:
        for _ in range(40):
            assert torch.equal(slopes(points[number]), alone[number])

    together(work)


def test_records_of_many_threads_leave_modules_as_they_were():
    call, attribute = torch.nn.Module.__call__, torch.nn.Module.__getattr__
    point = torch.rand(5, dtype=torch.float64)

    def work(number: int) -> None:
        for _ in range(5):
            assert torch.equal(recorded(waves, point)(point), waves(point))

    together(work, 4)
    assert torch.nn.Module.__call__ is call
    assert torch.nn.Module.__getattr__ is attribute
    assert not torch.fx._symbolic_trace._is_fx_tracing_flag


def test_laws_are_compiled_by_many_threads_at_once():
    law = snapfm.Equality("waves", lambda u, p: waves(u) - 1.0)
    expected = compile_laws([law], (5,)).pattern.indices.tolist()

    def work(number: int) -> None:
        structure = compile_laws([law], (5,))
        structure.check()
        assert structure.pattern.indices.tolist() == expected

    together(work, 4)


def test_a_call_lets_compiled_modules_of_other_threads_run():
    """make_fx would stop them: so a call records batches by itself."""
    network = torch.compile(torch.nn.Linear(4, 4), backend="eager")
    given = torch.rand(2, 4)
    network(given)
    law = snapfm.Equality("waves", lambda u, p: waves(u) - 1.0)
    structures = [compile_laws([law], (5,)) for _ in range(6)]
    done = threading.Event()

    def work(number: int) -> None:
        if number:
            while not done.is_set():
                network(given)
            return
        try:
            with torch.no_grad():
                for structure in structures:
                    for _ in range(3):  # the second time records
                        structure.residual(torch.rand(3, 5, dtype=torch.float64), {})
        finally:
            done.set()

    together(work, 2)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_child_forked_in_the_midst_of_slopes_can_take_its_own():
    point = torch.rand(5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    expected, done = slopes(point), threading.Event()

    def busy() -> None:
        while not done.is_set():
            slopes(point)

    other = threading.Thread(target=busy)
    other.start()
    try:
        for _ in range(5):
            assert child_says(lambda: torch.equal(slopes(point), expected))
    finally:
        done.set()
        other.join()


def child_says(question: Callable[[], bool]) -> bool:
    """Ask a forked child; one that does not answer is ended, and says no."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writing, b"y" if question() else b"n")
        finally:
            os._exit(0)
    os.close(writing)
    ready = select.select([reading], [], [], TIMEOUT)[0]
    answer = os.read(reading, 1) if ready else b""
    if not ready:
        os.kill(child, 9)
    os.waitpid(child, 0)
    os.close(reading)
    return answer == b"y"
