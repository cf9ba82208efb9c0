"""No two public classes of the library, or of the library and the bench, share a name."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_no_two_public_classes_share_a_name():
    found = defaultdict(list)
    for tree in ("src/snapfm", "bench/src/snapfm_bench"):
        for file in sorted((ROOT / tree).rglob("*.py")):
            for node in ast.parse(file.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    found[node.name].append(str(file.relative_to(ROOT)))
    assert len(found) > 200
    assert {name: files for name, files in found.items() if len(files) > 1} == {}
