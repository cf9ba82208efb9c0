"""No module needs what only POSIX has when it is imported: Windows has no fcntl, and nothing forks there."""

from __future__ import annotations

import subprocess
import sys

IMPORT_ALL = """
import importlib, os, pkgutil, sys
import numba, scipy.optimize, torch  # these have their own ways on other systems
del os.fork, os.register_at_fork, os.killpg, os.getloadavg
for name in ("fcntl", "termios", "resource", "pwd", "grp"):
    sys.modules[name] = None
import snapfm
for module in pkgutil.walk_packages(snapfm.__path__, "snapfm."):
    if module.name == "snapfm.__main__":
        continue  # the command itself
    try:
        importlib.import_module(module.name)
    except ModuleNotFoundError as missing:
        if sys.modules.get(missing.name, missing) is None:  # packages of extras may be missing
            print(module.name, missing)
    except ImportError as missing:
        print(module.name, missing)
    else:
        print("imported", module.name)
"""


def test_everything_can_be_imported_without_what_only_posix_has():
    ran = subprocess.run([sys.executable, "-c", IMPORT_ALL], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.splitlines()
    assert {
        "imported snapfm.files.engines.share",
        "imported snapfm.kernels.numba.cache",
        "imported snapfm.cli.app",
    } <= set(lines)
    assert [line for line in lines if not line.startswith("imported ")] == []
