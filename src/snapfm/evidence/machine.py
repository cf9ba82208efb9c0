"""What was measured on which machine: processor, memory, versions, and the weights of a network."""

from __future__ import annotations

import hashlib
import os
import platform
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

# Ours, its dependencies, and those of the peers; a package that is not installed is left out.
PACKAGES = ("snapfm", "torch", "numpy", "scipy", "numba", "casadi", "piqp", "pounce", "juliacall")


def machine() -> dict[str, Any]:
    """Describe this machine."""
    return {
        "processor": platform.machine(),
        "model": _field("/proc/cpuinfo", "model name") or platform.processor(),
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": platform.system(),
        "python": platform.python_version(),
        "versions": versions(PACKAGES),
    }


def machine_and_threads() -> dict[str, Any]:
    """Describe this machine and the number of torch threads of this process."""
    return {**machine(), "threads": torch.get_num_threads()}


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
