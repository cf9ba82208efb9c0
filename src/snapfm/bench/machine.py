"""What seconds were measured on: processor, memory, versions of everything that computes."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

# Ours, what it stands on, and what the peers stand on; a package that is not there is left out.
_PACKAGES = ("snapfm", "torch", "numpy", "scipy", "numba", "casadi", "piqp", "pounce", "juliacall")


def machine() -> dict[str, Any]:
    """Describe this machine."""
    return {
        "processor": platform.machine(),
        "model": _field("/proc/cpuinfo", "model name") or platform.processor(),
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": platform.system(),
        "python": platform.python_version(),
        "versions": _versions(),
    }


def load() -> float:
    """Give the runnable threads of the last minute."""
    return os.getloadavg()[0]


def resident_bytes() -> int | None:
    """Give the memory this process holds now; None where the system does not say."""
    return _bytes("VmRSS")


def peak_bytes() -> int | None:
    """Give the most memory this process has held since `forget_peak`."""
    return _bytes("VmHWM")


def forget_peak() -> None:
    """Let the peak begin anew, where the system can; else it is that of the whole process."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # 5: the peak resident size, see proc(5)
    except OSError:
        return


def _versions() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _bytes(name: str) -> int | None:
    words = _field("/proc/self/status", name)
    return 1024 * int(words.split()[0]) if words else None  # the system writes kB


def _field(file: str, name: str) -> str | None:
    try:
        lines = Path(file).read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), None)
