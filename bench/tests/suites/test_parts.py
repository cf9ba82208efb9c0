"""A suite as a plan: its parts are its cases, and any engine that computes all blocks runs all of them."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from snapfm.files.engines import BlockFailed, Here, Share
from snapfm_bench.record import read_folder
from snapfm_bench.suites.exact.run import run
from snapfm_bench.suites.exact.suite import ExactCell, ExactSuite, cases
from snapfm_bench.suites.parts import Parts


def test_a_block_is_the_part_of_one_case() -> None:
    shares: list[Share] = []
    plan = Parts(["a", "b", "c"], lambda share: shares.append(share))
    told: list[float] = []
    assert Here().run(plan, told.append) == {}
    assert shares == [Share(1, 3), Share(2, 3), Share(3, 3)]
    assert [share.of(["a", "b", "c"]) for share in shares] == [("a",), ("b",), ("c",)]
    assert told == [0, 1, 2, 3]
    with pytest.raises(BlockFailed, match="case 'b' is missing"):
        plan.give_up(1)


def test_the_records_are_those_of_one_process(tmp_path: Path) -> None:
    suite, names = ExactSuite(count=4, steps=(2,)), list(cases())
    Parts(names, partial(run, suite, tmp_path / "parts")).compute(names.index("mixture"), lambda share: None)
    run(suite, tmp_path / "whole", "mixture")
    parts, whole = (read_folder(tmp_path / folder, suite, ExactCell) for folder in ("parts", "whole"))
    assert {key: cell.scores for key, cell in parts.items()} == {key: cell.scores for key, cell in whole.items()}
    assert {key[0] for key in parts} == {"mixture"}
