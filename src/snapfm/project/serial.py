"""Keep torch's operations on the thread that calls them, for the length of one call.

Torch spreads an operation on more than 32 768 numbers over OpenMP threads. Inside a projection that costs more than it
gains: with one core of two busy elsewhere every operation waits for a scheduling quantum, and sums depend, in their last
bits, on the number of threads. The number is a property of the calling thread in OpenMP, so it is changed there and put
back; torch.set_num_threads would change it for the whole process. Where OpenMP cannot be reached nothing is done.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

import torch


@contextmanager
def one_thread() -> Iterator[None]:
    """Run torch's operations of this thread on this thread."""
    found = _openmp()
    if found is None:
        yield
        return
    get, set_ = found
    before = get()
    set_(1)
    try:
        yield
    finally:
        set_(before)


@cache
def _openmp() -> tuple[Callable[[], int], Callable[[int], None]] | None:
    """Find the functions of the OpenMP library that torch has loaded; None if they are not what torch listens to."""
    torch.get_num_threads()  # torch sets a thread's number when it first asks for it
    try:
        library = ctypes.CDLL(None)
        get, set_ = library.omp_get_max_threads, library.omp_set_num_threads
    except (AttributeError, OSError, TypeError):  # another way of threading, or a system without global symbols
        return None
    get.restype, set_.restype, set_.argtypes = ctypes.c_int, None, [ctypes.c_int]
    before = get()
    set_(before + 1)
    heard = torch.get_num_threads() == before + 1
    set_(before)
    return (get, set_) if heard else None
