"""Which blocks a process computes: K/N, and what schedulers set."""

from __future__ import annotations

import pytest

from snapfm.errors import SettingError
from snapfm.files.engines import WHOLE, Share, share_of


@pytest.mark.parametrize("parts", [1, 2, 3, 7])
@pytest.mark.parametrize("count", [1, 6, 10])
def test_shares_are_disjoint_and_together_all(parts: int, count: int) -> None:
    blocks = [list(Share(part, parts).blocks(count)) for part in range(1, parts + 1)]
    assert sorted(block for share in blocks for block in share) == list(range(count))
    assert max(map(len, blocks)) - min(map(len, blocks)) <= 1  # equal work


def test_units_of_a_share_count_the_short_last_block() -> None:
    assert [Share(part, 3).units(23, 5) for part in (1, 2, 3)] == [10, 8, 5]  # blocks of 5 5 5 5 3
    assert WHOLE.units(23, 5) == 23


def test_parts_are_read() -> None:
    assert share_of(None) == WHOLE
    assert share_of("3/4") == Share(3, 4)
    assert str(Share(3, 4)) == "3/4"


@pytest.mark.parametrize("text", ["0/4", "5/4", "4", "a/b", "1/0", "", "1/4/2", "-1/4"])
def test_wrong_parts_are_refused(text: str) -> None:
    with pytest.raises(SettingError, match=r"--part expects K/N with 1 <= K <= N, or auto; got .* is --part 1/4"):
        share_of(text)


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"SLURM_ARRAY_TASK_ID": "0", "SLURM_ARRAY_TASK_COUNT": "4", "SLURM_ARRAY_TASK_MIN": "0"}, "1/4"),
        ({"SLURM_ARRAY_TASK_ID": "4", "SLURM_ARRAY_TASK_COUNT": "4", "SLURM_ARRAY_TASK_MIN": "1"}, "4/4"),
        # sbatch --array=0-9:3 has the tasks 0, 3, 6 and 9
        (
            {
                "SLURM_ARRAY_TASK_ID": "6", "SLURM_ARRAY_TASK_COUNT": "4", "SLURM_ARRAY_TASK_MIN": "0",
                "SLURM_ARRAY_TASK_STEP": "3",
            },
            "3/4",
        ),
        ({"SLURM_PROCID": "2", "SLURM_NTASKS": "8"}, "3/8"),
        ({"RANK": "0", "WORLD_SIZE": "2"}, "1/2"),
        # torchrun inside srun: the variables of the innermost count
        ({"RANK": "5", "WORLD_SIZE": "6", "SLURM_PROCID": "1", "SLURM_NTASKS": "2"}, "6/6"),
        # an array of two tasks with three processes each
        (
            {
                "SLURM_ARRAY_TASK_ID": "2", "SLURM_ARRAY_TASK_COUNT": "2", "SLURM_ARRAY_TASK_MIN": "1",
                "SLURM_PROCID": "1", "SLURM_NTASKS": "3",
            },
            "5/6",
        ),
    ],
)  # fmt: skip
def test_schedulers_are_detected(variables: dict[str, str], expected: str) -> None:
    assert str(share_of("auto", variables)) == expected


def test_all_tasks_of_an_array_with_processes_get_different_shares() -> None:
    found = {
        share_of("auto", {
            "SLURM_ARRAY_TASK_ID": str(task), "SLURM_ARRAY_TASK_COUNT": "3", "SLURM_ARRAY_TASK_MIN": "5",
            "SLURM_PROCID": str(process), "SLURM_NTASKS": "2",
        })
        for task in (5, 6, 7) for process in (0, 1)
    }  # fmt: skip
    assert found == {Share(part, 6) for part in range(1, 7)}


def test_without_a_scheduler_auto_says_what_it_looked_for() -> None:
    with pytest.raises(SettingError, match=r"--part auto expects the variables of Slurm .* got none of them\. Start"):
        share_of("auto", {})
    with pytest.raises(SettingError, match=r"expects a number from 1 to 2 for this process; its variables give 10\."):
        share_of("auto", {"SLURM_ARRAY_TASK_ID": "9", "SLURM_ARRAY_TASK_COUNT": "2"})
