"""A Ray cluster under attack: four nodes on this machine, a worker killed, a node removed and another added, the driver killed.

Samples of a nonlinear problem are drawn by one process, then by the cluster while it is disturbed; then by four processes at once
(`--part K/4`). Records whether the files are equal, byte by byte, and how much memory driver and workers took, beside a run of
fewer samples that nobody disturbs. Needs snapfm[ray].
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

FEW, COUNT, BATCH, STEPS = 400, 2000, 20, 1
COMMAND = ("sample", "burgers-ic-mass-flux", "--batch", str(BATCH), "--steps", str(STEPS), "--threads", "1")
NODES = 4
_LOOK = 0.05  # seconds between two looks at the store


def run(count: int = COUNT, few: int = FEW) -> dict[str, Any]:
    from ray.cluster_utils import Cluster

    load, events, peaks = os.getloadavg()[0], list[str](), {few: dict[str, int](), count: dict[str, int]()}
    blocks = count // BATCH
    with tempfile.TemporaryDirectory() as folder:
        alone, out, parts = (Path(folder, f"{name}.zarr") for name in ("alone", "ray", "parts"))
        assert _started(alone, count).wait() == 0
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
        nodes = [cluster.add_node(num_cpus=1) for _ in range(NODES)]
        on_ray = {"more": ("--engine", "ray"), "environment": {"RAY_ADDRESS": cluster.address}}

        def happened(what: str) -> None:
            events.append(f"{what} after {_blocks(out)} blocks")

        try:
            calm = Path(folder, "few.zarr")
            driver = _started(calm, few, **on_ray)
            _until(calm, few // BATCH, driver, peaks[few])
            assert driver.wait() == 0
            driver = _started(out, count, **on_ray)
            _until(out, blocks // 10, driver, peaks[count])
            os.kill(_workers()[0], signal.SIGKILL)
            happened("worker killed")
            _until(out, blocks // 4, driver, peaks[count])
            cluster.remove_node(nodes[0], allow_graceful=False)
            happened("node removed")
            cluster.add_node(num_cpus=1)
            happened("node added")
            _until(out, blocks // 2, driver, peaks[count])
            driver.kill()
            driver.wait()
            happened("driver killed")
            driver = _started(out, count, **on_ray)
            _until(out, blocks, driver, peaks[count])
            assert driver.wait() == 0
        finally:
            cluster.shutdown()
        processes = [_started(parts, count, ("--part", f"{part}/4")) for part in (1, 2, 3, 4)]
        assert [one.wait() for one in processes] == [0] * 4
        whole = _tree(alone)
        return {
            "command": f"{' '.join(COMMAND)} --count {count}", "nodes": NODES, "events": events, "files": len(whole),
            "ray_equal": _tree(out) == whole, "parts_equal": _tree(parts) == whole,
            "peak_bytes": {str(number): found for number, found in peaks.items()}, "load": load,
        }  # fmt: skip


def _started(
    out: Path, count: int, more: tuple[str, ...] = (), environment: dict[str, str] | None = None
) -> subprocess.Popen[bytes]:
    fixed = {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "snapfm", *COMMAND, "--count", str(count), "--out", str(out), *more],
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
    """Find the actors of this cluster by the name that Ray gives their processes; others may have a cluster here too."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                title = (folder / "cmdline").read_bytes()
            except OSError:
                continue
            if title.startswith(b"ray::Worker") and os.getpid() in _ancestors(int(folder.name)):
                found.append(int(folder.name))
    return found


def _ancestors(pid: int) -> list[int]:
    """Return the processes that started this one, the nearest first."""
    found = []
    while pid > 1:
        try:
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        except OSError:
            break
        pid = next(int(line.split()[1]) for line in lines if line.startswith("PPid"))
        found.append(pid)
    return found


def _memory(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM")), 0)


def _tree(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}
