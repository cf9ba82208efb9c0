"""What was measured, when, with which sources and on which machine: commit, date, processor, versions, weights of a network."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
import sys
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

# Modules whose versions count, ours, its dependencies and those of the peers, with the distribution each comes in.
PACKAGES = {
    "snapfm": "snapfm", "torch": "torch", "numpy": "numpy", "scipy": "scipy", "numba": "numba", "casadi": "casadi",
    "pounce": "pounce-solver", "torch_sla": "torch-sla", "pinet": "pinet-hcnn", "jax": "jax", "juliacall": "juliacall",
}  # fmt: skip


def machine() -> dict[str, Any]:
    """Describe this machine, the sources, the day, and the versions of what this process has imported."""
    return {
        **{key: value for key, value in source().items() if key != "changes"},
        "date": datetime.now(UTC).date().isoformat(),
        "processor": platform.machine(),
        "model": _field("/proc/cpuinfo", "model name") or platform.processor(),
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": platform.system(),
        "python": platform.python_version(),
        "versions": imported(),
    }


def machine_and_threads() -> dict[str, Any]:
    """Describe this machine and the number of torch threads of this process."""
    return {**machine(), "threads": torch.get_num_threads()}


@cache
def source() -> dict[str, Any]:
    """Identify the sources of this package: their commit, whether they differ from it, and a digest of how.

    Other files of a repository may change while a suite runs, its records for one: only the folder of the package counts. Outside
    a repository the commit is None, and the version is all that is known.
    """
    spec = find_spec("snapfm")  # not imported: the judge, which imports this file, must not load what it judges
    folder = Path((spec and spec.origin) or ".").parent

    def git(*words: str) -> str | None:
        try:
            done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True)
        except OSError:  # no git
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    if git("ls-files", "--error-unmatch", "__init__.py") is None:  # an installed copy, in whatever repository it lies
        return {"commit": None, "dirty": False, "changes": metadata.version("snapfm")}
    changes = git("status", "--porcelain", "--", ".")
    differs = hashlib.sha256(f"{changes}{git('diff', 'HEAD', '--', '.')}".encode()).hexdigest()[:16] if changes else ""
    return {"commit": git("rev-parse", "--short=12", "HEAD"), "dirty": bool(changes), "changes": differs}


def imported() -> dict[str, str]:
    """Return the versions of the distributions whose modules this process has imported."""
    return versions(tuple(name for module, name in PACKAGES.items() if sys.modules.get(module) is not None))


def versions(packages: tuple[str, ...]) -> dict[str, str]:
    """Return the versions of the packages that are installed."""
    found = {}
    for name in packages:
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def digest(network: nn.Module) -> str:
    """Identify the weights of a network by their bytes."""
    found = hashlib.sha256()
    for name, weight in sorted(network.state_dict().items()):
        values = weight if isinstance(weight, Tensor) else torch.as_tensor(weight)
        found.update(name.encode())
        found.update(torch.view_as_real(values).numpy().tobytes() if values.is_complex() else values.numpy().tobytes())
    return found.hexdigest()[:16]


def resident_bytes() -> int | None:
    """Measure the memory this process holds now; None where the system does not report it."""
    return _bytes("VmRSS")


def peak_bytes() -> int | None:
    """Measure the most memory this process has held since `forget_peak`."""
    return _bytes("VmHWM")


def forget_peak() -> None:
    """Reset the peak where the system can; elsewhere it is the peak of the whole process."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # 5: the peak resident size, see proc(5)


def _bytes(name: str) -> int | None:
    words = _field("/proc/self/status", name)
    return 1024 * int(words.split()[0]) if words else None  # the system writes kB


def _field(file: str, name: str) -> str | None:
    try:
        lines = Path(file).read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), None)
