"""Pages made from records: written, or compared with what they should be (`--check`)."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def told_source(machine: Mapping[str, Any]) -> str:
    """Write the commit and day of a record; nothing for one from before these were kept."""
    changed = " with changes" if machine.get("dirty") else ""
    return f"commit {machine['commit']}{changed} of {machine['date']}" if machine.get("commit") else ""


def main(wanted: Mapping[Path, str]) -> str | None:
    """Write the files, or print which of them differ from the records."""
    if "--check" in sys.argv:
        stale = [file.name for file, words in wanted.items() if file.read_text(encoding="utf-8") != words]
        return f"{', '.join(stale)} differ from the records" if stale else None
    for file, words in wanted.items():
        file.write_text(words, encoding="utf-8")
        sys.stdout.write(f"wrote {file.name}\n")
    return None
