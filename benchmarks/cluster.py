"""A Ray cluster under attack: four nodes on this machine, a worker killed, a node removed and another added, the driver killed.

Samples of a nonlinear problem are drawn by one process, then by the cluster while it is disturbed; then by four processes at once
(`--part K/4`). Records whether the files are equal, byte by byte, and how much memory driver and workers took. Needs snapfm[ray].
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

COUNT, BATCH, STEPS = 2000, 20, 1
COMMAND = (
    "sample", "burgers-ic-mass-flux", "--count", str(COUNT), "--batch", str(BATCH), "--steps", str(STEPS), "--threads", "1",
)  # fmt: skip
NODES = 4
_LOOK = 0.05  # seconds between two looks at the store


def run() -> dict[str, Any]:
    from ray.cluster_utils import Cluster

    with tempfile.TemporaryDirectory() as folder:
        alone = Path(folder, "alone.zarr")
        _started(alone).wait()
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
        nodes = [cluster.add_node(num_cpus=1) for _ in range(NODES)]
        try:
            out, peaks = Path(folder, "ray.zarr"), dict[str, int]()
            environment = {"RAY_ADDRESS": cluster.address}
            driver = _started(out, "--engine", "ray", environment=environment)
            events = []
            _until(out, 10, driver, peaks)
            victim = _workers()[0]
            os.kill(victim, signal.SIGKILL)
            events.append(f"worker killed after {_blocks(out)} blocks")
            _until(out, 25, driver, peaks)
            cluster.remove_node(nodes[0], allow_graceful=False)
            events.append(f"node removed after {_blocks(out)} blocks")
            cluster.add_node(num_cpus=1)
            events.append(f"node added after {_blocks(out)} blocks")
            _until(out, 50, driver, peaks)
            driver.kill()
            driver.wait()
            events.append(f"driver killed after {_blocks(out)} blocks")
            again = _started(out, "--engine", "ray", environment=environment)
            _until(out, COUNT // BATCH, again, peaks)
            assert again.wait() == 0
        finally:
            cluster.shutdown()
        parts = Path(folder, "parts.zarr")
        processes = [_started(parts, "--part", f"{part}/4") for part in (1, 2, 3, 4)]
        assert [one.wait() for one in processes] == [0] * 4
        whole = _tree(alone)
        return {
            "command": " ".join(COMMAND), "nodes": NODES, "events": events, "files": len(whole),
            "ray_equal": _tree(out) == whole, "parts_equal": _tree(parts) == whole, "peak_bytes": peaks,
        }  # fmt: skip


def _started(out: Path, *more: str, environment: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
    fixed = {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "snapfm", *COMMAND, "--out", str(out), *more],
        env={**os.environ, **fixed, **(environment or {})}, stdout=subprocess.DEVNULL,
    )  # fmt: skip


def _until(out: Path, blocks: int, driver: subprocess.Popen[bytes], peaks: dict[str, int]) -> None:
    """Wait until so many blocks are finished, and note the memory of driver and workers."""
    while _blocks(out) < blocks and not out.exists():
        if driver.poll() is not None and not out.exists():
            raise RuntimeError(f"the driver ended with code {driver.returncode} after {_blocks(out)} blocks")
        for name, pids in {"driver": [driver.pid], "worker": _workers()}.items():
            peaks[name] = max([peaks.get(name, 0), *(_memory(pid) for pid in pids)])
        time.sleep(_LOOK)


def _blocks(out: Path) -> int:
    marks = out.with_name(f"{out.name}.part") / "store" / "sample" / "c"
    return sum(one.name.isdecimal() for one in marks.iterdir()) if marks.is_dir() else 0


def _workers() -> list[int]:
    """Find the actors of this machine by the name that Ray gives their processes."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                if b"Worker" in (title := (folder / "cmdline").read_bytes()) and title.startswith(b"ray::"):
                    found.append(int(folder.name))
            except OSError:
                continue
    return found


def _memory(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM")), 0)


def _tree(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}
