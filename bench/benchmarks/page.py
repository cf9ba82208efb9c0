"""Pages made from records: written, or compared with what they should be (`--check`)."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
# Commits whose solver (solve, kernels, reduce, compile) is the present one. Add the commit of new records; empty it when the
# solver changes, and write the pages again.
CURRENT: frozenset[str] = frozenset()
# Records from before commit and day were recorded: the day they were committed, by `git log --follow`. They tell no commit.
COMMITTED = {
    "any_law": "2026-11-18", "audit": "2026-11-17", "cluster": "2026-11-18", "cutest": "2026-11-17", "exact": "2026-11-18",
    "inequalities": "2026-11-17", "projecting": "2026-11-18", "quality": "2026-11-16", "quality_plain": "2026-11-18",
    "quality_plain_steps": "2026-11-18", "quality_steps": "2026-11-16", "ray_overhead": "2026-11-18",
}  # fmt: skip
_OLDER = "The solver has changed since; figures of the present code are not measured yet."


def told_sources(machines: Mapping[str, Mapping[str, Any]]) -> str:
    """Write commit and day of the records of a page, by case, and whether the solver has changed since."""
    by_source: dict[str, list[str]] = {}
    for case, machine in machines.items():
        by_source.setdefault(_source(case, machine), []).append(f"`{case}`")
    if len(by_source) == 1:
        told = f"Records of {next(iter(by_source))}."
    else:
        parts = [f"{', '.join(cases)} of {source}" for source, cases in by_source.items()]
        told = f"Records: {'; '.join(parts)}."
    current = all(machine.get("commit") in CURRENT for machine in machines.values())
    return told if current else f"{told} {_OLDER}"


def _source(case: str, machine: Mapping[str, Any]) -> str:
    changed = " with changes" if machine.get("dirty") else ""
    if machine.get("commit"):
        return f"{machine['date']}, commit {machine['commit']}{changed}"
    return f"{COMMITTED[case]}, commit not recorded"


def main(wanted: Mapping[Path, str]) -> str | None:
    """Write the files, or print which of them differ from the records."""
    if "--check" in sys.argv:
        stale = [file.name for file, words in wanted.items() if file.read_text(encoding="utf-8") != words]
        return f"{', '.join(stale)} differ from the records" if stale else None
    for file, words in wanted.items():
        file.write_text(words, encoding="utf-8")
        sys.stdout.write(f"wrote {file.name}\n")
    return None
