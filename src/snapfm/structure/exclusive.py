"""What torch can do for one thread at a time only: record a function with make_fx, and differentiate forward.

Both keep their state in globals of the process (torch 2.13). `make_fx` replaces methods of torch.nn.Module while it runs:
a module that another thread calls meanwhile returns the same values, but one made by torch.compile refuses to run, and two
records at once leave the replacements in place for good. `jvp` counts its nesting in a global: two at once raise, or return
wrong slopes silently. So both hold one lock of the process, and `make_fx` is for preparing only, never for a call.

A fork waits for the lock, so that no child begins with torch half-way through, and the child gets a lock of its own.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule

from snapfm.torch_internals import make_fx

_lock = threading.RLock()  # a law may itself record or differentiate


def recorded(
    function: Callable[..., Any], *inputs: Any, decompositions: Mapping[Any, Callable[..., Any]] | None = None
) -> GraphModule:
    """Record the operators that a function runs on example inputs."""
    with _lock:
        return make_fx(function, tracing_mode="real", decomposition_table=decompositions)(*inputs)


def jvp(function: Callable[[Tensor], Tensor], at: Tensor, direction: Tensor) -> Tensor:
    """Differentiate a function forward: its slope at a point, along a direction."""
    with _lock:
        slope: Tensor = torch.func.jvp(function, (at,), (direction,))[1]
    return slope


def _before_fork() -> None:
    _lock.acquire()


def _after_fork_in_parent() -> None:
    _lock.release()


def _after_fork_in_child() -> None:
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):  # not on Windows, where nothing forks
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
