"""`snapfm project` on a Zarr file of 10 000 fields: memory against the count, and the bits after a kill.

Records the peak memory of the process for 1 000 and for 10 000 fields, and whether a run killed halfway and started again ends
with the file of a run that was left alone.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import zarr

COUNTS, SHAPE = (1000, 10_000), (48, 40)
LAWS = """
from snapfm import Equality, Inequality

laws = [
    Equality("initial", lambda u, p: u[:, 0] - p["u0"]),
    Equality("mass", lambda u, p: u[:, 1:].sum(0) - p["u0"].sum()),
    Inequality("energy", lambda u, p: (u[:, 1:] ** 2).sum(0) - (u[:, :-1] ** 2).sum(0)),
]
"""
DRIVER = """
import resource, sys
from snapfm.cli import main
try:
    main()
finally:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, file=sys.stderr)
"""


def run() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "laws_of_the_benchmark.py").write_text(LAWS)
        peaks, load = {}, os.getloadavg()[0]
        for count in COUNTS:
            _write(folder / f"in{count}.zarr", count)
            done = _started(folder, count, f"out{count}.zarr")
            peaks[str(count)] = int(done.communicate()[1].split()[-1])
            assert done.returncode == 0
        last = COUNTS[-1]
        halfway = _started(folder, last, "killed.zarr")
        marks = folder / "killed.zarr.part" / "store" / "sample" / "c"
        while not marks.is_dir() or len(list(marks.iterdir())) < last // 100 // 2:
            time.sleep(0.05)
        halfway.kill()
        halfway.communicate()
        kept = len(list(marks.iterdir()))
        again = _started(folder, last, "killed.zarr")
        again.communicate()
        assert again.returncode == 0
        field_bytes = 8 * int(np.prod(SHAPE))
        return {
            "shape": list(SHAPE), "counts": list(COUNTS), "peak_bytes": peaks, "field_bytes": field_bytes,
            "more_bytes_of_fields": (COUNTS[1] - COUNTS[0]) * field_bytes, "blocks_kept_by_the_kill": kept,
            "blocks": last // 100, "equal_after_the_kill": _tree(folder / "killed.zarr") == _tree(folder / f"out{last}.zarr"),
            "load": load,
        }  # fmt: skip


def _write(file: Path, count: int) -> None:
    root = zarr.create_group(file)
    fields = root.create_array("u", shape=(count, *SHAPE), dtype="float64", chunks=(100, *SHAPE))
    starts = root.create_array("u0", shape=(count, SHAPE[0]), dtype="float64", chunks=(100, SHAPE[0]))
    dice = np.random.default_rng(0)
    for start in range(0, count, 100):
        some = np.cumsum(dice.normal(size=(100, *SHAPE)), axis=1) / 10
        fields[start : start + 100], starts[start : start + 100] = some, some[:, :, 0] + 0.01


def _started(folder: Path, count: int, out: str) -> subprocess.Popen[str]:
    command = ["project", f"in{count}.zarr", "--laws", "laws_of_the_benchmark:laws", "--batch", "100", "--out", out]
    return subprocess.Popen(
        [sys.executable, "-c", DRIVER, *command], cwd=folder, env={**os.environ, "OMP_NUM_THREADS": "1"}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def _tree(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}
