"""Kernels compile where no folder can be written, and a change of any kernel file makes all cached code stale."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numba
import pytest

from snapfm.kernels.compiling import compiled
from snapfm.kernels.lanes import gather


def test_without_a_folder_a_kernel_is_compiled_in_memory(monkeypatch):
    real = numba.njit

    def refusing(**options):
        if options.get("cache"):
            raise RuntimeError("cannot cache function 'double': no locator available for file 'x.py'")
        return real(**options)

    monkeypatch.setattr("snapfm.kernels.compiling.njit", refusing)

    @compiled(nogil=True)
    def double(x):
        return 2 * x

    assert double(21) == 42


def test_other_errors_of_the_compiler_are_not_swallowed(monkeypatch):
    def broken(**options):
        raise RuntimeError("out of order")

    monkeypatch.setattr("snapfm.kernels.compiling.njit", broken)
    with pytest.raises(RuntimeError, match="out of order"):
        compiled()(len)


def test_the_cache_is_valid_for_one_state_of_all_kernel_files():
    stamp = gather._cache._cache_file._source_stamp
    assert isinstance(stamp, tuple)
    assert len(stamp[1]) == 64


@pytest.mark.skipif(os.name == "nt", reason="needs a folder that cannot be written")
def test_snapfm_imports_where_no_cache_folder_can_be_written(tmp_path: Path):
    """A file where the folder should be: no user, not even root, can write below it."""
    blocked = tmp_path / "file"
    blocked.write_text("")
    script = (
        "import numba.core.caching as c\n"
        "c.InTreeCacheLocator.from_function = classmethod(lambda cls, f, p: None)\n"  # a read-only installation
        "import snapfm, torch\n"
        "project = snapfm.Projector([snapfm.Equality('mass', lambda u, p: u.sum() - 1.0)], (3,))\n"
        "print(float(project(torch.zeros(1, 3, dtype=torch.float64)).u.sum()))\n"
    )
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("NUMBA_", "XDG_"))}
    ran = subprocess.run(
        [sys.executable, "-c", script],
        env={**kept, "HOME": str(blocked / "home")},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert ran.returncode == 0, ran.stderr
    assert abs(float(ran.stdout) - 1.0) < 1e-9
