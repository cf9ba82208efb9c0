"""One projector, many threads; a child after fork; the state of torch: nothing is shared that a call changes."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from benchmarks.threads import SETS, stress

from snapfm import Equality, Projector
from snapfm.solve import single_thread
from snapfm.solve.single_thread import exactly, one_thread


@pytest.mark.parametrize("name", SETS)
def test_threads_get_the_bits_of_the_same_call_made_alone(name: str):
    row = stress(name, 4 if name == "slow path" else 60)
    assert row["calls"] >= 32
    assert row["wrong"] == 0


def _sphere() -> Projector:
    return Projector([Equality("sphere", lambda u, p: (u**2).sum(0) - 1.0)], (3, 5))


def _affine() -> Projector:
    return Projector([Equality("mass", lambda u, p: u.sum(0) - 1.0)], (3, 5))


@pytest.mark.parametrize("make", [_sphere, _affine], ids=["curved", "affine"])
def test_gradients_in_threads_are_those_made_alone(make):
    import threading

    project = make()
    inputs = [torch.randn(4, 3, 5, generator=torch.Generator().manual_seed(k), dtype=torch.float64) for k in range(4)]

    def gradient(u_hat: torch.Tensor) -> torch.Tensor:
        leaf = u_hat.clone().requires_grad_()
        (project(leaf).u ** 3).sum().backward()
        assert leaf.grad is not None
        return leaf.grad

    alone = [gradient(u_hat) for u_hat in inputs]
    wrong: list[int] = []

    def work() -> None:
        wrong.extend(k for k in range(40) if not torch.equal(gradient(inputs[k % 4]), alone[k % 4]))

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert wrong == []


@pytest.mark.parametrize("make", [_sphere, _affine], ids=["curved", "affine"])
def test_a_call_leaves_the_number_of_threads_of_torch_as_it_was(make):
    before = torch.get_num_threads()
    try:
        for number in (1, 2):
            torch.set_num_threads(number)
            make()(torch.zeros(40, 3, 5, dtype=torch.float64) + 0.3).raise_for_status()
            assert torch.get_num_threads() == number
    finally:
        torch.set_num_threads(before)


def test_inside_a_call_torch_works_on_the_calling_thread_alone():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with one_thread():
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
        with pytest.raises(KeyError), one_thread():
            raise KeyError
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def _elsewhere() -> int:
    """Return the number that another thread works with."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(torch.get_num_threads).result()


def test_an_exact_number_is_that_of_the_calling_thread_alone(monkeypatch: pytest.MonkeyPatch):
    before, others = torch.get_num_threads(), _elsewhere()
    monkeypatch.setattr(torch, "set_num_threads", lambda number: pytest.fail("changes the whole process"))
    for number in (others + 1, others + 2):
        with exactly(number):
            assert torch.get_num_threads() == number
            assert _elsewhere() == others
        assert torch.get_num_threads() == before


def test_where_threads_cannot_be_reached_the_number_of_the_process_is_restored(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(single_thread, "_exchanges", tuple)
    before = torch.get_num_threads()
    seen: list[int] = []

    def failing() -> None:
        with exactly(before + 1):
            seen.append(torch.get_num_threads())
            raise KeyError

    with pytest.raises(KeyError):
        failing()
    assert seen == [before + 1]
    assert torch.get_num_threads() == before


def test_the_first_and_the_second_call_of_a_process_have_the_same_bits_whatever_the_threads():
    script = textwrap.dedent(
        """
        import sys, torch, hashlib
        from snapfm import Equality, Projector
        torch.set_num_threads(int(sys.argv[1]))
        u_hat = torch.randn(16, 60, 50, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        laws = [Equality("mass", lambda u, p: u.sum(0) - p["m"]), Equality("total", lambda u, p: (u * u).sum() - 9.0)]
        for chosen in (laws[:1], laws):
            project = Projector(chosen, (60, 50), {"m": torch.ones(1, 50)})
            for _ in range(3):
                found = project(u_hat, {"m": u_hat.sum(1) / 9})
                bits = b"".join(part.numpy().tobytes() for part in (found.u, found.violation, found.stationarity))
                print(hashlib.sha256(bits).hexdigest(), torch.get_num_threads())
        """
    )
    seen = {
        threads: subprocess.run(
            [sys.executable, "-c", script, threads], capture_output=True, text=True, check=True, timeout=600
        ).stdout.split()
        for threads in ("1", "2")
    }
    for threads, words in seen.items():
        digests, numbers = words[::2], words[1::2]
        assert len(digests) == 6
        assert set(numbers) == {threads}
        assert len(set(digests[:3])) == len(set(digests[3:])) == 1
    assert seen["1"][::2] == seen["2"][::2]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_child_after_fork_projects_to_the_same_bits():
    for project in (_sphere(), _affine()):
        u_hat = torch.randn(64, 3, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        expected = project(u_hat).u.numpy().tobytes()
        context = multiprocessing.get_context("fork")
        told = context.SimpleQueue()
        child = context.Process(target=lambda: told.put(project(u_hat).u.numpy().tobytes()))  # noqa: B023
        child.start()
        child.join(600)
        alive = child.is_alive()
        if alive:
            child.kill()
        assert not alive, "the child hangs"
        assert child.exitcode == 0
        assert told.get() == expected
