"""How a projector travels to other processes: as the arguments it was built from, packed. The other side prepares it again.

What is prepared holds graphs, compiled programs and memory that are valid for one process and one version; its recipe is
small, and gives the same bits anywhere. A process prepares a recipe once, however often it arrives: tasks of a cluster and
workers of a DataLoader may unpack it for every batch.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeVar

from snapfm.errors import LawError, MissingDependency
from snapfm.laws import Law

Kind = TypeVar("Kind")

_KEPT = 2  # prepared problems that a process keeps for the next arrival: each may hold the memory of a batch
# What pickle and cloudpickle raise for an object they cannot write; libraries add errors of their own, such as RuntimeError.
_UNWRITABLE = (pickle.PicklingError, AttributeError, TypeError, ValueError, RuntimeError, NotImplementedError)


def packed(kind: type[Any], laws: Sequence[Law], arguments: Mapping[str, Any]) -> bytes:
    """Pack the class, laws and other arguments of a projector; functions that have no name to be imported by go by value.

    Those need cloudpickle. Raises an error that names the law which cannot be packed.
    """
    try:
        return _dumps((kind, tuple(laws), dict(arguments)))
    except _UNWRITABLE as cause:
        found = next((law for law in laws if not _packs(law)), None)
        if found is None:
            raise
        what = f"a projector travels (pickle, spawn, Ray) if its laws do; law '{found.name}' does not pickle ({cause})"
        if _by_value() is None:
            raise MissingDependency(
                f"{what}. Functions inside functions and lambdas need cloudpickle: pip install 'snapfm[ray]'. Or write the law "
                "as a function of a module."
            ) from cause
        raise LawError(f"{what}. Let it close over tensors and numbers only.") from cause


def unpacked(recipe: bytes) -> Any:
    """Return a projector from its packed arguments; all of one recipe share what is prepared."""
    return sharing(_prepared(recipe))


def sharing(projector: Kind) -> Kind:
    """Return another projector on the same prepared problem, which never changes; its settings are its own."""
    made = object.__new__(type(projector))
    made.__dict__.update(projector.__dict__)
    return made


@lru_cache(maxsize=_KEPT)
def _prepared(recipe: bytes) -> Any:
    kind, laws, arguments = pickle.loads(recipe)  # cloudpickle writes what pickle reads
    return kind(laws, **arguments)


def _dumps(value: Any) -> bytes:
    by_value = _by_value()
    return bytes((pickle if by_value is None else by_value).dumps(value))


def _packs(law: Law) -> bool:
    try:
        _dumps(law)
    except _UNWRITABLE:
        return False
    return True


def _by_value() -> Any:
    """Return cloudpickle, which writes functions of scripts and lambdas by value; None where it is not installed."""
    try:
        import cloudpickle
    except ImportError:
        return None
    return cloudpickle
