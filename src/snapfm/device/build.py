"""Compile the kernels to PTX: `python -m snapfm.device.build`, with numba-cuda installed (the extra `cuda-build`).

The modules of snapfm.kernels are loaded a second time, in a process of their own, with those of device.target in place of the
ones of the same name. What comes out is written to device/kernels.json.gz, with a hash of the sources it was made from: structure
is data, so one PTX serves all laws. No GPU and no driver are needed.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

_PACKAGE = Path(__file__).parents[1]
_REPLACED = tuple(
    sorted(path.stem for path in (Path(__file__).parent / "target").glob("*.py") if path.stem != "__init__")
)
_ALONE = "--compile"  # the argument of the process that does nothing else
# Kernels that are called from several places, and the table of operators: one copy of each. Inlined, they took minutes to
# compile, the code did not fit into an instruction cache, and a barrier had a copy on every path, however rarely taken.
_APART = (
    "apply", "called", "slopes", "bends", "tile_values", "tile_partials", "tile_slopes", "tile_bends", "_adjoints", "residual_at",
    "derivatives_at", "merit_parts", "choose_sets", "gap_of", "factorize_tile", "_substitute", "correct", "_follow", "_apply",
    "_precondition", "_conjugate", "spread_of", "rows_at", "_off", "_merit", "mark_broken", "added", "greatest",
)  # fmt: skip
_FOREIGN = re.compile(r'@"?(llvm\.|__nv_)')  # instructions, and functions of libdevice: none waits
_LARGE = re.compile(rf"\d({'|'.join(_APART)})B\d+v\d")
# Of the language. The compiler states its own, which drivers of last year do not know; instructions are those of 7.0.
_VERSION = re.compile(r"^\.version [\d.]+$", re.M)
_HINT = re.compile(
    r'^\s*\.pragma "used_bytes_mask [^"]*";\n', re.M
)  # which bytes of a load are used: of 8.3, and only a hint
_MANGLED, _KERNEL = re.compile(r"\b(_ZN\w+?)(_param_\d+)?\b"), re.compile(r"\d([A-Za-z_]+)B\d+v\d")
_FLOATS = frozenset(
    {"tolerance", "stationarity", "polish", "ordinary", "back", "goal"}
)  # arguments of entries that are floats


def build() -> bytes:
    """Compile all entries; return an Artifact, packed. In a process of its own: kernels for the CPU have the same names."""
    from snapfm.errors import require_all  # not in that process, where the package is not run

    require_all("compiling kernels for CUDA", {"numba_cuda": "cuda-build"})
    return subprocess.run(
        [sys.executable, str(Path(__file__).resolve()), _ALONE], check=True, stdout=subprocess.PIPE
    ).stdout


def _compiled() -> bytes:
    _module(
        "_numba_cuda_redirector"
    )  # numba.cuda is numba-cuda's: done at start only where it is installed, not on PYTHONPATH
    _load_for_device()
    cuda, kinds = _module("numba.cuda"), _module("numba.cuda.types")

    from snapfm.device.artifact import Artifact, sources
    from snapfm.device.entries import ENTRIES

    _go_offline()
    ptx = {}
    for entry in ENTRIES:
        names = entry.__code__.co_varnames[: entry.__code__.co_argcount]
        signature = tuple(kinds.float64 if name in _FLOATS else kinds.int64 for name in names)
        text, _ = cuda.compile_ptx(entry, signature, cc=(8, 0))
        ptx[entry.__name__] = _named(_HINT.sub("", _VERSION.sub(".version 8.0", text)))
    return Artifact(sources(), f"numba-cuda {_module('numba_cuda').__version__}", ptx).packed()


def _named(ptx: str) -> str:
    """Give functions short names: those of the compiler spell out the types of all arguments, and were half of the text."""
    short: dict[str, str] = {}

    def named(found: re.Match[str]) -> str:
        name, parameter = found.groups()
        kernel = _KERNEL.search(name)
        word = "environment" if kernel is None or "NumbaEnv" in name else kernel.group(1)
        return short.setdefault(name, f"{word}_{len(short)}") + (parameter or "")

    return _MANGLED.sub(named, ptx)


def _load_for_device() -> None:
    """Put modules of device.target where kernels look for those of snapfm.kernels; the package itself is not run."""
    for name, folder in (("snapfm", _PACKAGE), ("snapfm.device", _PACKAGE / "device")):
        package = types.ModuleType(name)
        package.__path__ = [str(folder)]
        sys.modules[name] = package
    for name in _REPLACED:
        wanted = f"snapfm.kernels.{name}"
        spec = importlib.util.spec_from_file_location(wanted, _PACKAGE / "device" / "target" / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[wanted] = module
        setattr(importlib.import_module("snapfm.kernels"), name, module)
        spec.loader.exec_module(module)


def _go_offline() -> None:
    """Let numba-cuda compile where there is no driver, and what it does not foresee.

    Functions ask the driver for the device's version; kernels for a given one do not. Functions may not return arrays,
    as nothing would own them: here nothing is owned. Kernels count from the beginning, so no index is compared with zero.
    Products and sums are not fused unless a kernel says so. Functions are linked in the order in which they are first
    called, not in that of a set, which is another in every process.
    """
    dispatcher, typed_passes = _module("numba.cuda.dispatcher"), _module("numba.cuda.core.typed_passes")
    nvrtc, nvvm = _module("numba.cuda.cudadrv.nvrtc"), _module("numba.cuda.cudadrv.nvvm")
    dispatcher.get_current_device = lambda: types.SimpleNamespace(compute_capability=(8, 0))
    typed_passes.types = types.SimpleNamespace(**vars(typed_passes.types) | {"Array": ()})
    arrays, intp = _module("numba.cuda.np.arrayobj"), _module("numba.cuda.types").intp
    arrays.fix_integer_index = lambda context, builder, kind, index, _: context.cast(builder, index, kind, intp)
    nvrtc.get_arch_option = lambda *_: "compute_80"  # asks nvrtc, a library of a hundred megabytes
    _module("numba.cuda.cuda_paths")._get_nvrtc_path = lambda: None  # so it need not be there
    library = _module("numba.cuda.codegen").CUDACodeLibrary
    begin = library.__init__

    def begin_in_order(self: Any, *given: Any, **options: Any) -> None:
        begin(self, *given, **options)
        self._linking_libraries = _InOrder()

    library.__init__ = begin_in_order
    original = nvvm.compile_ir

    def compile_ir(code: list[str] | str, **options: Any) -> Any:
        return original([_kept_apart(one) for one in ([code] if isinstance(code, str) else code)], fma=False, **options)

    nvvm.compile_ir = compile_ir


class _InOrder(dict[Any, None]):
    """A set that remembers the order in which things were added."""

    def add(self, one: Any) -> None:
        """Add at the end, unless it is there."""
        self.setdefault(one)


def _module(name: str) -> Any:
    """Import a module that is there where numba-cuda is installed."""
    return importlib.import_module(name)


def _kept_apart(code: str) -> str:
    """Forbid in LLVM's text to inline some kernels, and to move calls to where not all threads are: any may lead to a barrier."""
    kept = []
    for line in code.split("\n"):
        if line.startswith(("define ", "declare ")) and not _FOREIGN.search(line):
            apart = " noinline" if line.startswith("define ") and _LARGE.search(line) else ""
            line = f"{line} convergent{apart}"
        kept.append(line)
    return "\n".join(kept)


if __name__ == "__main__":
    if sys.argv[1:] == [_ALONE]:
        sys.stdout.buffer.write(_compiled())
    else:
        (Path(__file__).parent / "kernels.json.gz").write_bytes(build())
