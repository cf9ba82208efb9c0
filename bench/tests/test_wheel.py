"""The wheel of the bench: the package with its models, suites and pages, and nothing else."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

BENCH = Path(__file__).parents[1]
SOURCES = BENCH / "src"


def test_it_holds_every_file_of_the_package_and_joins_the_command_line(tmp_path: Path):
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=BENCH, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
        (entries,) = (name for name in archive.namelist() if name.endswith("entry_points.txt"))
        assert "[snapfm.commands]" in archive.read(entries).decode()
    sources = {
        str(file.relative_to(SOURCES)) for file in SOURCES.rglob("*") if file.is_file() and file.suffix != ".pyc"
    }
    assert held == sources
