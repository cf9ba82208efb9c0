"""Choose how many threads torch's operations take, for the length of one call and for the calling thread alone.

Torch runs large operations on OpenMP threads, its own and those of MKL. Inside a projection that costs more than it gains:
with one core of two busy elsewhere every operation waits for a scheduling quantum, in a forked child such threads wait for ever,
and the last bits of sums depend on their number, also of what compiled laws read of params. Both libraries keep the number per
calling thread, so it is changed there and restored; torch.set_num_threads would change it for the whole process. A library that
cannot be reached is left alone by a projection. Imports nothing of snapfm.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from pathlib import Path

import torch

Exchange = Callable[[int], int]  # set this thread's number, return the one before


def one_thread() -> AbstractContextManager[None]:
    """Run torch's operations of this thread on this thread."""
    return _threads(1)


@contextmanager
def exactly(number: int) -> Iterator[None]:
    """Run torch's operations of this thread on a number of threads, as bits may depend on it.

    Where torch's threads cannot be reached, its number for the process is changed and restored: there is no other way.
    """
    with _threads(number):
        before = torch.get_num_threads()
        if before == number:
            yield
            return
        torch.set_num_threads(number)
        try:
            yield
        finally:
            torch.set_num_threads(before)


@contextmanager
def _threads(number: int) -> Iterator[None]:
    before = [exchange(number) for exchange in _exchanges()]
    try:
        yield
    finally:
        for exchange, number in zip(_exchanges(), before):
            exchange(number)


@cache
def _exchanges() -> tuple[Exchange, ...]:
    return tuple(found for found in (_openmp(), _mkl()) if found is not None)


def _openmp() -> Exchange | None:
    """Find the OpenMP library that torch uses; None if there is none."""
    torch.get_num_threads()  # torch sets a thread's number when it first asks for it
    try:
        library = ctypes.CDLL(None)
        get, set_ = library.omp_get_max_threads, library.omp_set_num_threads
    except (AttributeError, OSError, TypeError):  # another threading library, or no global symbols
        return None
    get.restype, set_.restype, set_.argtypes = ctypes.c_int, None, [ctypes.c_int]

    def exchange(number: int) -> int:
        before = int(get())
        set_(number)
        return before

    before = exchange(int(get()) + 1)
    used = torch.get_num_threads() == before + 1
    exchange(before)
    return exchange if used else None


def _mkl() -> Exchange | None:
    """Find MKL inside torch, if it has one; 0 stands for the number of the process."""
    try:
        library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
        exchange = library.MKL_Set_Num_Threads_Local
    except (AttributeError, OSError):
        return None
    exchange.restype, exchange.argtypes = ctypes.c_int, [ctypes.c_int]
    found: Exchange = exchange
    return found
