"""The CUTEst battery without its packages: a problem in the package's form, outcomes, and processes that die."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from benchmarks.cutest.battery import Battery, append, outcomes, run_all
from benchmarks.cutest.groups import Groups
from benchmarks.cutest.judge import judge
from benchmarks.cutest.methods import METHODS, Ours
from benchmarks.cutest.problems import SIZES, Feasible
from benchmarks.cutest.table import count, lines
from scipy.sparse import csr_array


class Fake(SimpleNamespace):
    """x₀² weighted by 3, plus x₀ − 2x₂, minus 1, over 2; (x₁x₂ + x₁)²; x₀ + x₂: as S2MPJ writes problems."""

    def getglobs(self) -> None:
        pass

    @staticmethod
    def square(self: Any, level: int, x: Any, number: int) -> Any:
        value = float(x[0, 0] ** 2)
        return (value, np.array([2.0 * x[0, 0]]), np.array([[2.0]]))[:level] if level > 1 else value

    @staticmethod
    def product(self: Any, level: int, x: Any, number: int) -> Any:
        value = float(x[0, 0] * x[1, 0])
        slopes, bend = np.array([x[1, 0], x[0, 0]]), np.array([[0.0, 1.0], [1.0, 0.0]])
        return (value, slopes, bend)[:level] if level > 1 else value

    @staticmethod
    def L2(self: Any, level: int, inner: float, number: int) -> Any:
        return (inner**2, 2.0 * inner, 2.0)[:level] if level > 1 else inner**2


def fake() -> Feasible:
    """Two curved rows and a linear one; group 0 would be the objective."""
    matrix = csr_array(np.array([[0.0, 0.0, 0.0], [1.0, 0.0, -2.0], [0.0, 1.0, 0.0], [1.0, 0.0, 1.0]]))
    problem = Fake(
        n=3, congrps=np.array([1, 2, 3]), A=matrix, gconst=[None, 1.0, None, None], gscale=[None, 2.0, None, None],
        grelt=[None, [0], [1], None], grelw=[None, [3.0], None, None], elftype=["square", "product"],
        elvar=[[0], [1, 2]], grftype=[None, None, "L2", None],
    )  # fmt: skip
    return Feasible(
        "FAKE", np.array([1.0, 0.5, 0.2]), np.array([0.0, -np.inf, -np.inf]), np.full(3, np.inf), np.array([0.0, -1.0, 0.0]),
        np.array([0.0, 1.0, np.inf]), Groups(problem),
    )  # fmt: skip


def rows(x: Any) -> Any:
    return np.array([(3 * x[0] ** 2 + x[0] - 2 * x[2] - 1) / 2, (x[1] * x[2] + x[1]) ** 2, x[0] + x[2]])


def test_values_and_derivatives_of_groups() -> None:
    problem, x, y, step = fake(), np.array([0.7, -0.4, 0.3]), np.array([1.5, -2.0, 3.0]), 1e-6
    np.testing.assert_allclose(problem.value(x), rows(x), rtol=1e-15)
    slopes = np.zeros((3, 3))
    slopes[problem.pattern] = problem.jacobian(x)
    expected = np.stack([(rows(x + step * e) - rows(x - step * e)) / (2 * step) for e in np.eye(3)], axis=1)
    np.testing.assert_allclose(slopes, expected, atol=1e-8)
    bent = np.zeros((3, 3))
    bent[problem.pairs] = problem.hessian(x, y)
    bent += np.tril(bent, -1).T

    def pulled(at: Any) -> Any:
        matrix = np.zeros((3, 3))
        matrix[problem.pattern] = problem.jacobian(at)
        return y @ matrix

    expected = np.stack([(pulled(x + step * e) - pulled(x - step * e)) / (2 * step) for e in np.eye(3)])
    np.testing.assert_allclose(bent, expected, atol=1e-7)
    assert problem.linear.tolist() == [False, False, True]


def test_ours_is_solved_by_the_judge_and_a_feasible_point_that_is_not_nearest_is_not() -> None:
    problem = fake()
    way, start = Ours(problem), problem.starts()[4]
    answer = way.project(start, 10.0)
    assert answer.status == "CONVERGED"
    assert judge(problem, start, answer.x).solved
    other = judge(problem, start, way.project(start + 1.0, 10.0).x)
    assert other.feasible
    assert not other.solved
    assert not judge(problem, start, answer.x + 0.1).feasible


def test_the_judge_takes_a_multiplier_beside_a_limit_only_if_nothing_could_be_gained() -> None:
    """x ≤ 0.3 within 1e-5: from x̂ = 0.3 − 1e-7 next to nothing could be gained, from x̂ = 2 it could."""
    problem = fake()
    limited = Feasible(
        "LIMIT", problem.x0, np.full(3, -np.inf), np.array([0.3, np.inf, np.inf]), np.full(3, -np.inf), np.full(3, np.inf),
        problem.groups,
    )  # fmt: skip
    x = np.array([0.3 - 1e-5, 0.0, 0.0])
    assert judge(limited, np.array([0.3 + 1e-3, 0.0, 0.0]), x).solved
    assert not judge(limited, np.array([2.0, 0.0, 0.0]), x).solved


class Script:
    """A process that tells what a script says: None is silence, "" an end."""

    def __init__(self, script: dict[str, list[Any]]) -> None:
        self.script, self.told, self.killed = script, [json.dumps({"event": "ready"})], False

    def order(self, line: str) -> None:
        self.told = [one if one in (None, "") else json.dumps(one) for one in self.script[line]]

    def next(self, seconds: float) -> Any:
        return self.told.pop(0)

    def kill(self) -> None:
        self.killed = True


def answers(first: int) -> list[Any]:
    told: list[Any] = [{"event": "prepared", "preparing": 0.1}]
    for k in range(first, len(SIZES)):
        told += [{"event": "calling", "start": k}, {"event": "answer", "start": k, "status": "SOLVED", "solved": True}]
    return [*told, {"event": "done"}]


def test_a_method_that_dies_loses_one_start_and_no_other_method_loses_any() -> None:
    begun = [{"event": "size", "n": 1, "m": 1}, {"event": "preparing"}]
    script = {
        "P ours 0": [*begun, *answers(0)[:3], {"event": "calling", "start": 1}, None],
        "P ours 2": [*begun, {"event": "calling", "start": 2}, ""],
        "P ours 3": [*begun, *answers(3)],
        "P ipopt 0": [*begun, *answers(0)],
        "P ipopt_tuned 0": [*begun, {"event": "refused", "why": "no"}, {"event": "done"}],
    }
    begun_processes: list[Script] = []

    def begin() -> Script:
        begun_processes.append(Script(script))
        return begun_processes[-1]

    outcome = Battery(1.0, begin).run("P")
    assert [answer["status"] for answer in outcome["ours"]["answers"]] == ["SOLVED", "KILLED", "DIED"] + ["SOLVED"] * 5
    assert all(answer["status"] == "SOLVED" for answer in outcome["ipopt"]["answers"])
    assert outcome["ipopt_tuned"]["refused"] == "no"
    assert [one.killed for one in begun_processes] == [True, True, False]


def test_a_problem_that_cannot_be_loaded_is_told_once() -> None:
    told = {"P ours 0": [{"event": "loading"}, {"event": "unloadable", "why": "broken"}, {"event": "done"}]}
    assert Battery(1.0, lambda: Script(told)).run("P")["unloadable"] == "broken"


def test_lines_are_whole_and_a_run_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, ran = tmp_path / "outcomes.jsonl", []
    append(file, {"name": "A"})
    file.write_text(file.read_text() + '{"name": "B", "ours"')  # the machine went down
    monkeypatch.setattr(Battery, "run", lambda self, name: ran.append(name) or {"name": name})
    run_all(["A", "B", "C", "D"], file, 1.0, share=1, shares=2)
    run_all(["A", "B", "C", "D"], file, 1.0, share=0, shares=2)
    assert ran == ["B", "D", "C"]
    run_all(["E", "F"], file, 1.0, within=-1.0)
    assert ran == ["B", "D", "C"], "no problem is begun when the time is over"
    assert [one["name"] for one in outcomes(file)] == ["A", "B", "D", "C"]


def answer(**more: Any) -> dict[str, Any]:
    good = {
        "status": "CONVERGED", "seconds": 0.1, "cpu": 0.1, "violation": 0.0, "relative": 0.0, "stationarity": 0.0,
        "distance": 1.0, "feasible": True, "solved": True,
    }  # fmt: skip
    return good | more


def test_the_table_counts_shares_causes_and_claims_that_are_not_true() -> None:
    def pairs(*four: Any) -> dict[str, Any]:
        return {"answers": list(four)}

    failed = answer(status="STALLED", solved=False, feasible=False, violation=1.0, relative=1.0)
    false = answer(solved=False, feasible=False, violation=1e-3, relative=1e-3)
    outcome = {
        "name": "P", "seconds": 10.0,
        "ours": pairs(answer(), failed, false, answer(status="INFEASIBLE", solved=False, seconds=12.0)),
        "ipopt": pairs(answer(distance=2.0), answer(), None, answer(violation=1e-9)),
        "ipopt_tuned": pairs(answer(reformulated=True), failed, failed, failed) | {"refused": "x"},
    }  # fmt: skip
    found = count([outcome, {"name": "Q", "unloadable": "KILLED"}])
    assert found["share"] == {"ours": 0.25, "ipopt": 0.75, "ipopt_tuned": 0.25, "ipopt_either": 0.75}
    assert found["refused_by_ipopt_as_they_are"] == 1
    assert found["share_of_the_others"]["ours"] == 0.0
    assert found["told"]["false_converged"] == ["P:2"]
    assert found["told"]["false_infeasible"] == ["P:3"]
    assert found["told"]["late"] == ["P:3"]
    assert found["told"]["unloadable"] == ["Q: KILLED"]
    assert found["causes"]["ours"] == {
        "STALLED, not feasible": 1, "CONVERGED, not feasible": 1, "INFEASIBLE, feasible but not nearest": 1,
    }  # fmt: skip
    assert found["causes"]["ipopt"] == {"GIVEN_UP": 1}
    assert found["against"]["ipopt"] == {"both": 1, "nearer": 1, "only_ipopt": 2, "neither": 1}
    assert found["lost_to_ipopt"] == {"P": {"STALLED, not feasible": 1, "INFEASIBLE, feasible but not nearest": 1}}
    table = lines(found)
    assert all(line.count("|") == len(METHODS) + 2 for line in table)
    assert "25.0%" in table[2]
    assert "| CONVERGED, and not true | 1 |  |  |" in table
    assert "| past its budget | 1 |  |  |" in table
    assert "| crashed | 0 |  |  |" in table
    assert table[-1] == "| processor time over ours, median of problems |  | 1.00 of 1 | 1.00 of 1 |"
