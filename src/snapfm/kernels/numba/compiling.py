"""Compile a kernel with numba, when it is first called, and keep the result (kernels.numba.cache).

numba compiles every function that a kernel calls as if Python called it too: with a wrapper that unpacks Python's arguments, and
with machine code of its own, which contains all that it calls in deadline. Here a function that is compiled for another one stays
LLVM's code, optimized as numba does it. What Python calls has the machine code that numba would give it. Nothing of numba
changes for kernels of others. benchmarks/first_call.py measures what a first call costs. Imports kernels.numba only.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from time import perf_counter
from typing import Any

from llvmlite import binding  # type: ignore[import-untyped]
from numba import njit
from numba.core import compiler, errors, sigutils
from numba.core.ccallback import CFunc
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler_lock import global_compiler_lock
from numba.core.dispatcher import _FunctionCompiler
from numba.core.registry import CPUDispatcher
from numba.core.runtime import rtsys

from snapfm import progress
from snapfm.kernels.numba import cache as kept
from snapfm.kernels.numba.cache import LINKABLE, OBJECT
from snapfm.kernels.numba.stored import Unkept, described, rebuilt

_KERNELS = __package__.rpartition(".")[0]  # the package of all kernels
_DYNAMIC = "numba.dynamic.globals"  # addresses of this process in LLVM's code: not to be kept

# What is used of numba's insides. A version without them compiles in numba's own way, in every process.
_KNOWN = hasattr(compiler.Flags, "no_compile") and all(
    hasattr(JITCodeLibrary, name)
    for name in ("_optimize_final_module", "_get_module_for_linking", "_ensure_finalized", "_get_compiled_object")
)

_under_way: list[str] = []  # what is being compiled, each for the one before; under numba's lock
_spent = 0.0  # seconds that this process has compiled; under numba's lock, as all that follows
_logged = False
_line: progress.Line | None = None
_symbols: dict[str, Callable[[], int]] = {}  # C functions that kernels call, and what returns their addresses


def compiled(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Decorate a kernel: numba's njit with these options, compiled at its first call and kept for the next process."""

    def decorate(function: Callable[..., Any]) -> Any:
        return Kernel(function, {}, {"nopython": True, **options}) if _KNOWN else njit(**options)(function)

    return decorate


class Kernel(CPUDispatcher):
    """A function that is compiled twice at most: for Python (`overloads`), and for the kernels that call it (`_linkable`)."""

    def __init__(
        self, py_func: Any, locals: Any = None, targetoptions: Any = None, pipeline_class: Any = compiler.Compiler
    ) -> None:
        super().__init__(py_func, locals or {}, targetoptions or {}, pipeline_class)
        given = (py_func, self.targetdescr, self.targetoptions, self.locals, pipeline_class)
        self._compiler, self._for_kernels = _ForPython(*given), _ForKernels(*given)
        self._linkable: dict[Any, Any] = {}
        self._cache = _Kept(_named(py_func), py_func)

    @property
    def nopython_signatures(self) -> list[Any]:
        """The signatures that callers may choose from."""
        return [one.signature for one in {**self.overloads, **self._linkable}.values()]

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """Prepare a call by another compiled function, a kernel or not."""
        with global_compiler_lock:
            _under_way.append("a caller")
            try:
                return super().get_call_template(args, kws)
            finally:
                _under_way.pop()

    def get_overload(self, sig: Any) -> Any:
        """Return what stands for a signature in the code of callers."""
        return self._linkable[tuple(sigutils.normalize_signature(sig)[0])].entry_point

    def compile(self, sig: Any) -> Any:
        """Return the entry point of a signature: read, or compiled and kept. For a caller if one is under way."""
        with global_compiler_lock:
            args, return_type = sigutils.normalize_signature(sig)
            key, form = tuple(args), LINKABLE if _under_way else OBJECT
            found = (self._linkable if _under_way else self.overloads).get(key)
            if found is None:
                if not self._can_compile:
                    raise RuntimeError("compilation disabled")
                found = self._read(key, form)
            if found is None:
                with self._compiling_counter, _announced(self.__name__), kept.alone(self._cache.kernel, key, form):
                    found = self._read(key, form) or self._make(key, return_type, form)
            return found.entry_point

    def _read(self, key: Any, form: str) -> Any:
        if form == OBJECT:
            found = self._cache.load_overload(key, self.targetctx)
            if found is not None:
                self.add_overload(found)
            return found
        held = kept.read(self._cache.kernel, key, form)
        return None if held is None else self._link(_restored(self.targetctx, *held, self.py_func, key))

    def _make(self, key: Any, return_type: Any, form: str) -> Any:
        try:
            made = (self._compiler if form == OBJECT else self._for_kernels).compile(key, return_type)
        except errors.ForceLiteralArg as wanted:
            raise wanted.bind_fold_arguments(
                lambda args, kws: self._compiler.fold_argument_types(args, kws)[1]
            ) from wanted
        if form == OBJECT:
            for environment in made._find_referenced_environments():  # of functions inside without code of their own
                made.codegen.set_env(environment.env_name, environment)
            self.add_overload(made)
            self._linkable.setdefault(key, made)  # numba has listed it for callers already
            self._cache.save_overload(key, made)
            return made
        _finish(made.library)
        if not any(one.name.startswith(_DYNAMIC) for one in made.library._final_module.global_variables):
            with suppress(Unkept):
                bitcode = made.library._get_module_for_linking().as_bitcode()
                kept.write(self._cache.kernel, key, form, described(made), [bitcode])
        return self._link(made)

    def _link(self, made: Any) -> Any:
        """List what callers may link, under a name of its own."""
        made = made._replace(entry_point=object())
        self.targetctx.insert_user_function(made.entry_point, made.fndesc, [made.library])
        self._linkable[tuple(made.signature.args)] = made
        return made


class _ForPython(_FunctionCompiler):  # type: ignore[misc]
    def _customize_flags(self, flags: Any) -> Any:
        flags.no_cfunc_wrapper = True  # nobody calls kernels from C
        return flags


class _ForKernels(_FunctionCompiler):  # type: ignore[misc]
    def _customize_flags(self, flags: Any) -> Any:
        flags.no_cpython_wrapper = flags.no_cfunc_wrapper = flags.no_compile = True
        return flags


class _Kept:
    """The cache of one function, as numba knows it: machine code, without LLVM's code."""

    def __init__(self, kernel: str, function: Any) -> None:
        self.kernel, self.function = kernel, function

    @property
    def cache_path(self) -> str | None:
        """Where machine code is written to."""
        folder = kept.own()
        return None if folder is None else str(folder)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return what was kept, ready to be called.

        Of numba, machine code needs its memory only. To refresh the whole context, as numba does here, imports what it compiles
        with: whoever compiles refreshes it first anyway.
        """
        found = kept.read(self.kernel, sig, OBJECT)
        if found is None:
            return None
        header, code = found
        rtsys.initialize(target_context)
        _provide(code)
        descriptor, environment, signature, environments = rebuilt(header, self.function, _arguments(sig))
        return compiler.CompileResult._rebuild(
            target_context, libdata=(header["library"], "object", tuple(code)), fndesc=descriptor, env=environment,
            signature=signature, objectmode=False, lifted=(), typeann="", reload_init=(), referenced_envs=environments,
        )  # fmt: skip

    def save_overload(self, sig: Any, made: Any) -> None:
        """Keep machine code, if it is valid in other processes. Of LLVM's code only names are needed to find it."""
        library = made.library
        if library.has_dynamic_globals:
            return
        names = _names_only(library._final_module).as_bitcode()
        with suppress(Unkept):
            kept.write(self.kernel, sig, OBJECT, described(made), [library._get_compiled_object(), names])


def _arguments(sig: Any) -> tuple[Any, ...]:
    """Return the types of arguments; functions behind C symbols are asked for with their result."""
    return tuple(sigutils.normalize_signature(sig)[0])


def _named(function: Any) -> str:
    """Name a kernel by its file and itself. Those of other packages have no name: their changes would not be noticed."""
    package, _, file = function.__module__.partition(f"{_KERNELS}.")
    return f"{file}.{function.__qualname__}" if not package else ""


@contextmanager
def _announced(kernel: str) -> Iterator[None]:
    with announced(kernel, outermost=not _under_way):
        _under_way.append(kernel)
        try:
            yield
        finally:
            _under_way.pop()


@contextmanager
def announced(kernel: str, outermost: bool) -> Iterator[None]:
    """Say what is compiled inside, once that has taken two seconds in a process. Kernels compiled for another one are named too.

    On a terminal a line shows it, elsewhere there is one entry in the log.
    """
    global _spent, _line
    if not outermost:
        if _line is not None:
            _line.report(kernel)
        yield
        return
    began, timer = perf_counter(), None
    if sys.stderr is not None and sys.stderr.isatty():
        _line = progress.Line("compiling kernels, once", _spent)
        _line.report(kernel)
    elif not _logged:
        timer = threading.Timer(max(0.0, progress.AFTER - _spent), _log)
        timer.daemon = True
        timer.start()
    try:
        yield
    finally:
        _spent += perf_counter() - began
        if timer is not None:
            timer.cancel()
        if _line is not None:
            _line.end()
            _line = None


def _log() -> None:
    global _logged
    _logged = True
    logging.getLogger("snapfm").warning(
        "compiling kernels for this machine, which may take a minute; they are kept for the next process"
    )


def _finish(library: Any) -> None:
    """Do what numba does to finish a library, up to machine code: link what it calls, and optimize."""
    for other in dict.fromkeys(library._linking_libraries):
        library._final_module.link_in(other._get_module_for_linking(), preserve=True)
    library._optimize_final_module()
    library._final_module.verify()
    library._finalized = True


def _restored(target_context: Any, header: dict[str, Any], code: list[bytes], function: Any, args: Any) -> Any:
    """Return what can be linked, from what was kept of it."""
    _provide(code)
    target_context.refresh()
    library = target_context.codegen().create_library(header["library"])
    library._final_module = binding.parse_bitcode(code[0])
    library._finalized = True
    descriptor, environment, signature, environments = rebuilt(header, function, args)
    return compiler.compile_result(
        typing_context=target_context.typing_context, target_context=target_context, library=library,
        fndesc=descriptor, environment=environment, signature=signature, objectmode=False, lifted=(), reload_init=(),
        referenced_envs=environments,
    )  # fmt: skip


def _names_only(module: Any) -> Any:
    """Return a module that defines functions of the same names, with nothing in them."""
    names = [one.name for one in module.functions if not one.is_declaration]
    return binding.parse_assembly("\n".join(f'define void @"{name}"() {{ unreachable }}' for name in names))


def c_function(symbol: str, kind: Any, function: Callable[..., Any], kernel: str, **options: Any) -> None:
    """Let kernels call a function by a C symbol: compiled once, when the first kernel needs it, and never inlined."""

    def address() -> int:
        made = CFunc(function, sigutils.normalize_signature(kind), {}, {"nopython": True, **options})
        made._cache = _Kept(kernel, function)
        with announced(kernel, outermost=not _under_way):
            made.compile()
        _held.append(made)
        found: int = made.address
        return found

    _symbols[symbol] = address


_held: list[Any] = []  # functions behind symbols


def provide(symbol: str) -> None:
    """Make a symbol known to the linker before code that calls it is."""
    with global_compiler_lock:
        address = _symbols.pop(symbol, None)
        if address is not None:
            binding.add_symbol(symbol, address())


def _provide(code: list[bytes]) -> None:
    for symbol in list(_symbols):
        if any(symbol.encode() in piece for piece in code):
            provide(symbol)
