"""The map in docs/architecture.md leads to files that exist, in at most eight stops."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "architecture.md").read_text()
PATHS = sorted({path for path in re.findall(r"[\w/]+(?:\.py|/)(?=[`\s,;:)])", TEXT) if "/" in path.rstrip("/")})


def test_the_map_names_files() -> None:
    assert len(PATHS) > 30


@pytest.mark.parametrize("path", PATHS)
def test_every_file_of_the_map_exists(path: str) -> None:
    assert any((root / path).exists() for root in (ROOT, ROOT / "src" / "snapfm", ROOT / "bench" / "src"))


def test_the_walk_has_at_most_eight_stops() -> None:
    stops = re.findall(r"^ +(\d+)  (src/snapfm/\S+\.py)", TEXT, re.M)
    assert 0 < len(stops) <= 8
    assert [int(number) for number, _ in stops] == list(range(1, len(stops) + 1))


def test_the_packages_are_those_of_the_import_contract() -> None:
    listed = re.findall(r"```\n(cli\n.*?)```", TEXT, re.S)[0]
    contract = (ROOT / "pyproject.toml").read_text()
    layers = re.findall(r'"snapfm\.([\w .|]+)"', contract.split("layers = [")[1].split("]")[0])
    assert [re.findall(r"\w+", line) for line in listed.splitlines()] == [
        re.findall(r"\w+", line.replace("snapfm.", "")) for line in layers
    ]
