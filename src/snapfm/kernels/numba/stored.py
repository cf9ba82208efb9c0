"""One compiled kernel as bytes: a checksum, a header in JSON, and code. Reading it executes nothing.

numba would pickle its results, and to unpickle a file is to run it. What the reader knows is not stored: the function and the
types of its arguments. The rest are names, numbers, types of results (`_written`) and the constants of environments, which are
dtypes of numpy in all kernels. A kernel with anything else is not kept. Imports nothing of snapfm.
"""

from __future__ import annotations

import hashlib
import json
import sys
from typing import Any

import numpy as np
from numba.core import types
from numba.core.environment import Environment, lookup_environment
from numba.core.funcdesc import PythonFunctionDescriptor

_MAGIC = b"snapfm kernel 1\n"
_LENGTH = 8  # bytes of the length of the header
_OWN = __package__.rpartition(".")[0] + "."  # modules whose types may be named in a file
_SCALARS = {
    str(one): one
    for one in (types.none, types.boolean, types.int8, types.int32, types.int64, types.float32, types.float64)
}
_NAMES = ("unique_name", "mangled_name", "env_name", "inline", "noalias", "abi_tags", "uid")  # of a descriptor


class Unkept(Exception):
    """A kernel has a type or a constant that is not written to files."""


def packed(header: dict[str, Any], code: list[bytes]) -> bytes:
    """Join a header and pieces of code to one file."""
    words = json.dumps({**header, "sizes": [len(piece) for piece in code]}).encode()
    body = b"".join([len(words).to_bytes(_LENGTH, "little"), words, *code])
    return _MAGIC + hashlib.sha256(body).digest() + body


def unpacked(raw: bytes) -> tuple[dict[str, Any], list[bytes]]:
    """Return the header and the pieces of code of a file; raises ValueError if it is damaged or none of ours."""
    begin = len(_MAGIC) + hashlib.sha256().digest_size
    if raw[: len(_MAGIC)] != _MAGIC or raw[len(_MAGIC) : begin] != hashlib.sha256(raw[begin:]).digest():
        raise ValueError("not a kernel, or damaged")
    at = begin + _LENGTH + int.from_bytes(raw[begin : begin + _LENGTH], "little")
    header = json.loads(raw[begin + _LENGTH : at])
    code = []
    for size in header["sizes"]:
        code.append(raw[at : at + size])
        at += size
    return header, code


def described(made: Any) -> dict[str, Any]:
    """Describe what numba compiled, without its code; raises Unkept."""
    if made.objectmode or made.lifted or made.reload_init:
        raise Unkept(made.fndesc.unique_name)
    environments = dict.fromkeys([made.environment, *made._find_referenced_environments()])
    return {
        "library": made.library.name,
        "returns": _written(made.fndesc.restype),
        "names": {name: getattr(made.fndesc, name) for name in _NAMES},
        "environments": [
            [one.env_name, one.globals["__name__"], [_dtype(constant) for constant in one.consts]]
            for one in environments
        ],
    }


def rebuilt(header: dict[str, Any], function: Any, args: tuple[Any, ...]) -> tuple[Any, Any, Any, tuple[Any, ...]]:
    """Return descriptor, environment, signature and all environments of a function that was described."""
    names, returns = dict(header["names"]), _read(header["returns"])
    mangled, code = names.pop("mangled_name"), function.__code__
    descriptor = PythonFunctionDescriptor(
        native=True, modname=function.__module__, qualname=function.__qualname__, doc=function.__doc__ or "",
        typemap=None, calltypes=None, restype=returns, argtypes=args, args=code.co_varnames[: code.co_argcount], kws=(),
        mangler=lambda *_, **__: mangled, **names,
    )  # fmt: skip
    environments = tuple(_environment(*one) for one in header["environments"])
    return descriptor, environments[0], returns(*args), environments


def _environment(name: str, module: str, constants: list[str]) -> Any:
    """Return the environment of a name. Kernels read its constants only: of its module the name is enough."""
    found = lookup_environment(name)
    if found is None:
        found = Environment({"__name__": module})
        found.consts[:] = [np.dtype(constant) for constant in constants]
        found.env_name = name
        Environment._memo[name] = found
    return found


def _dtype(constant: Any) -> str:
    if not isinstance(constant, np.dtype) or constant.hasobject or constant.fields is not None:
        raise Unkept(repr(constant))
    return constant.str


def _written(kind: Any) -> Any:
    """Write a type as JSON; raises Unkept for kinds that no kernel returns."""
    if kind == _SCALARS.get(str(kind)):
        return str(kind)
    if type(kind) is types.Array:
        return ["array", _written(kind.dtype), kind.ndim, kind.layout, not kind.mutable, kind.aligned]
    if isinstance(kind, types.NamedTuple | types.NamedUniTuple):
        return ["named", *_place(kind.instance_class), *map(_written, kind.types)]
    if isinstance(kind, types.Tuple | types.UniTuple):
        return ["tuple", *map(_written, kind.types)]
    return ["own", *_place(type(kind))]  # made without arguments, as packs are


def _place(kind: type) -> tuple[str, str]:
    if not kind.__module__.startswith(_OWN):
        raise Unkept(repr(kind))
    return kind.__module__, kind.__qualname__


def _read(words: Any) -> Any:
    """Return the type that `_written` wrote."""
    if isinstance(words, str):
        return _SCALARS[words]
    form, *rest = words
    if form == "array":
        dtype, ndim, layout, readonly, aligned = rest
        return types.Array(_read(dtype), ndim, layout, readonly=readonly, aligned=aligned)
    if form == "tuple":
        return types.BaseTuple.from_types(tuple(map(_read, rest)))
    module, name, *members = rest
    # Loaded already: the kernel's own module imports what it returns.
    kind: Any = vars(sys.modules[module])[name] if module.startswith(_OWN) else None
    if form == "named" and issubclass(kind, tuple):
        return types.BaseTuple.from_types(tuple(map(_read, members)), kind)
    if form == "own" and issubclass(kind, types.Type):
        return kind()
    raise ValueError(f"no type of a kernel: {words}")
