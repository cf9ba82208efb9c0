"""Reduction: what is left of whole problems, and of small laws with every pathology, once structure has decided its share."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

import snapfm
from snapfm.compile import CompiledLaws, RowKind, compile_laws
from snapfm.laws import Equality, Inequality, Law
from snapfm.reduce.reduce import Reduction, reduce

NOTHING = np.zeros(0, np.int64)


def _sorted(laws: CompiledLaws, bounded: tuple[int, ...] = (), redundant: tuple[int, ...] = ()) -> Reduction:
    limits = np.isin(np.arange(laws.unknowns), bounded)
    constant, dropped = laws.kinds == RowKind.AFFINE, np.array(redundant, np.int64)
    return reduce(laws.scalar.tape, laws.scalar.rows, laws.equality_rows, constant, limits, dropped)


def _reduced(name: str, **settings: object):  # type: ignore[no-untyped-def]
    problem = snapfm.problem(name, **settings)
    structure = compile_laws(problem.laws, problem.grid.shape, problem.params(1, torch.Generator().manual_seed(0)))
    return structure, _sorted(structure)


def test_explicit_steps_after_an_initial_condition_become_substitutions():
    structure, found = _reduced("burgers-ic-mass-flux", flux_steps=5)
    # the initial slice, then each step determines two points less at either end: 99, 97, … of the 99 inner points; and
    # the mass of the second slice, which ties its two open ends, fixes one of them once they are rotated
    assert [len(level.rows) for level in found.cascade.levels] == [101, 99, 98, 95, 93, 91]
    assert (len(found.rotations), (~found.cascade.free).sum()) == (1, 577)
    # the first mass row repeats the initial condition; 95 later ones stand alone; the rest is one small system
    assert [structure.where(int(row))[0].name for row in found.cascade.implied] == ["mass"]
    assert len(found.affine) == 95
    (system,) = found.systems
    assert (system.parts, system.rows.shape[1], system.unknowns.shape[1]) == (1, 24, 19)


def test_slices_that_share_no_unknown_become_parts_of_one_make():
    structure, found = _reduced("navier-stokes-ic-mass-enstrophy")
    (system,) = found.systems
    # every slice is seen through its sum and its sum of squares only: two unknowns
    assert (len(found.aggregates), len(found.aggregates.members)) == (49, 49 * 256)
    assert (system.parts, system.rows.shape[1], system.unknowns.shape[1]) == (49, 2, 2)
    assert sorted(system.rows.ravel()) == list(range(256, structure.rows))


def test_unknowns_that_enter_no_operation_are_eliminated():
    structure, found = _reduced("burgers-bc-mass")
    (system,) = found.systems
    assert system.unknowns.shape == (1, 101)  # only the outflow is squared
    # the inflow is fixed, and so is half of each pair that the zero-gradient edge ties
    assert (len(found.rotations), (~found.cascade.free).sum()) == (101, 202)
    assert system.eliminated.shape == (1, 101 * 101 - 202 - 101)
    assert structure.rows - (~found.cascade.free).sum() == system.rows.shape[1] == 100


def _group_sizes(*laws: Law) -> list[int]:
    found = _sorted(compile_laws(list(laws), (3, 5)))
    return sorted(np.diff(found.aggregates.ptr).tolist())


def test_only_what_all_rows_see_alike_is_grouped():
    total = Equality("total", lambda u, p: u.sum(0) - 1.0)
    energy = Equality("energy", lambda u, p: (u**2).sum() - 2.0)
    assert _group_sizes(energy) == [15]
    assert _group_sizes(energy, total) == [3] * 5
    assert _group_sizes(energy, Equality("edge", lambda u, p: u[0] * u[1] - 0.1)) == [5]
    assert (
        _group_sizes(energy, Equality("weighted", lambda u, p: (torch.arange(3.0)[:, None] * u).sum() - 1.0)) == [5] * 3
    )
    # squares of params' multiples, cubes, and products of two unknowns are no sums of squares
    assert _group_sizes(Equality("cube", lambda u, p: (u**3).sum() - 1.0)) == []
    assert _group_sizes(Equality("nested", lambda u, p: (u**2).sqrt().sum() - 1.0)) == []
    assert _group_sizes(total) == []  # eliminated through their multipliers instead


def test_a_logistic_source_is_a_sum_of_squares():
    assert _group_sizes(Equality("source", lambda u, p: (u * (1.0 - u)).sum(0) - 0.3)) == [3] * 5


# Small laws.

Function = Callable[[Tensor, dict[str, Tensor]], Tensor]


def small(*functions: Function, shape: tuple[int, ...] = (4,)) -> CompiledLaws:
    params = {"a": torch.ones(1, dtype=torch.float64)}
    return compile_laws([Equality(f"law {i}", one) for i, one in enumerate(functions)], shape, params)


def everything_is_somewhere(laws: CompiledLaws, found: Reduction) -> None:
    """Every row is used up, implied, solved in closed form or part of one system, and of one of them only."""
    in_systems = [system.rows.ravel() for system in found.systems]
    rows = np.concatenate([found.cascade.pinned_rows(), found.implied, found.affine, *in_systems])
    assert sorted(rows.tolist()) == list(range(laws.rows))


def test_rows_that_pin_everything_leave_nothing():
    laws = small(lambda u, p: u - p["a"])
    found = _sorted(laws)
    everything_is_somewhere(laws, found)
    assert (~found.cascade.free).sum() == 4
    assert (len(found.affine), found.systems, len(found.implied)) == (0, (), 0)
    assert [program.operations for program in found.substitutions] == [0]


def test_contradictory_pins_leave_one_row_to_be_judged():
    laws = small(lambda u, p: u[:1], lambda u, p: u[:1] - 1.0)
    found = _sorted(laws)
    everything_is_somewhere(laws, found)
    assert found.cascade.pinned_rows().tolist() == [0]
    assert found.implied.tolist() == [1]


def test_rows_that_become_dependent_are_dropped():
    """Once u0 and then u1 are known, rows 2 and 3 both say u2 + u3."""
    laws = small(lambda u, p: torch.stack([u[0], u[1] - u[0] ** 2, u.sum(), u[2] + u[3] - u[0]]))
    found = _sorted(laws)
    everything_is_somewhere(laws, found)
    assert [level.rows.tolist() for level in found.cascade.levels] == [[0], [1]]
    assert sorted([*found.dropped, *found.affine]) == [2, 3]  # either stands for both
    assert len(found.dropped) == 1


def test_rows_known_to_be_redundant_are_not_used():
    laws = small(lambda u, p: torch.stack([u[0], 2 * u[0], u[1] + u[2]]))
    found = _sorted(laws, redundant=(0,))
    everything_is_somewhere(laws, found)
    assert found.cascade.pinned_rows().tolist() == [1]
    assert found.dropped.tolist() == [0]


def test_affine_rows_and_curved_ones_fall_apart():
    """Rows 0 and 1 share no unknown with row 2."""
    laws = small(lambda u, p: torch.stack([u[0] + u[1], u[0] - u[1] - 1.0, u[2] * u[3]]))
    found = _sorted(laws)
    everything_is_somewhere(laws, found)
    assert found.affine.tolist() == [0, 1]
    (system,) = found.systems
    assert (system.rows.tolist(), system.unknowns.tolist()) == ([[2]], [[2, 3]])
    assert system.eliminated.shape == (1, 0)


def test_what_enters_linearly_is_eliminated_with_its_gram_matrix():
    laws = small(lambda u, p: torch.stack([u[0] ** 3 + 2 * u[1] - u[2], u[0] * 3 + u[2] + u[3]]))
    found = _sorted(laws)
    everything_is_somewhere(laws, found)
    (system,) = found.systems
    assert (system.unknowns.tolist(), system.eliminated.tolist()) == ([[0]], [[1, 2, 3]])
    np.testing.assert_array_equal(system.linear.toarray(), [[2, -1, 0], [0, 1, 1]])
    np.testing.assert_array_equal(system.gram.toarray(), [[5, -1], [-1, 2]])
    assert system.equality.tolist() == [True, True]


def test_inequalities_are_iterated_on_and_never_pin():
    laws = compile_laws(
        [Inequality("ceiling", lambda u, p: u[:1] - 1.0), Equality("sum", lambda u, p: u[1:].sum())], (4,)
    )
    found = _sorted(laws)
    everything_is_somewhere(laws, found)
    assert (~found.cascade.free).sum() == 0
    (system,) = found.systems
    assert (system.rows.tolist(), system.equality.tolist()) == ([[0]], [False])
    assert found.affine.tolist() == [1]


def test_an_inequality_between_known_unknowns_is_implied():
    laws = compile_laws([Equality("start", lambda u, p: u[:1]), Inequality("ceiling", lambda u, p: u[:1] - 1.0)], (4,))
    found = _sorted(laws)
    everything_is_somewhere(laws, found)
    assert found.implied.tolist() == [1]


def test_unknowns_with_limits_are_iterated_on():
    laws = small(lambda u, p: torch.stack([u[0] + u[1], u[2] + u[3]]))
    found = _sorted(laws, bounded=(1,))
    everything_is_somewhere(laws, found)
    (system,) = found.systems
    assert (system.rows.tolist(), system.unknowns.tolist(), system.eliminated.tolist()) == ([[0]], [[1]], [[0]])
    assert found.affine.tolist() == [1]


def test_parts_of_one_make_share_a_program_and_others_do_not():
    """Three pairs multiply; the third is shifted by another number."""

    def law(u: Tensor, p: dict[str, Tensor]) -> Tensor:
        return u[:3] * u[3:] - torch.tensor([1.0, 1.0, 2.0]).double()

    found = _sorted(small(law, shape=(6,)))
    assert sorted(system.parts for system in found.systems) == [1, 2]
    pair = max(found.systems, key=lambda system: system.parts)
    assert pair.rows.tolist() == [[0], [1]]
    assert pair.unknowns.tolist() == [[0, 3], [1, 4]]


def test_params_do_not_set_parts_apart():
    laws = compile_laws(
        [Equality("pairs", lambda u, p: u[:2] * u[2:] - p["a"])], (4,), {"a": torch.ones(1, 2, dtype=torch.float64)}
    )
    (system,) = _sorted(laws).systems
    assert (system.parts, system.params.shape) == (2, (2, 1))
    assert len(set(system.params.ravel().tolist())) == 2


def test_too_many_parts_are_solved_as_one(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("snapfm.reduce.reduce._PART_LIMIT", 1)
    laws = small(lambda u, p: u[:2] * u[2:] - 1.0)
    found = _sorted(laws)
    everything_is_somewhere(laws, found)
    (system,) = found.systems
    assert (system.parts, system.rows.tolist(), system.unknowns.tolist()) == (1, [[0, 1]], [[0, 1, 2, 3]])


@pytest.mark.parametrize("shape", [(0,), (1,), (3,)])
def test_no_laws(shape: tuple[int, ...]):
    found = _sorted(compile_laws([], shape))
    assert (found.systems, len(found.affine), len(found.implied), found.substitutions) == ((), 0, 0, ())
    assert found.cascade.free.all()


def test_laws_without_rows():
    laws = small(lambda u, p: u[:0] ** 2)
    everything_is_somewhere(laws, _sorted(laws))


def test_one_row_of_one_unknown():
    laws = small(lambda u, p: u**3 - 8.0, shape=(1,))
    found = _sorted(laws)
    everything_is_somewhere(laws, found)
    (system,) = found.systems
    assert (system.rows.tolist(), system.unknowns.tolist()) == ([[0]], [[0]])


def test_rows_of_params_alone_are_implied():
    laws = small(lambda u, p: torch.stack([u[0] + u[1] * u[2], p["a"] - 1.0]))
    found = _sorted(laws)
    everything_is_somewhere(laws, found)
    assert found.implied.tolist() == [1]


def test_laws_that_cannot_be_looked_into_are_one_system():
    laws = small(lambda u, p: torch.stack([u[0] * u[1], u[2] + u[3]]))
    found = Reduction.opaque(laws.scalar.tape, laws.scalar.program, np.array([0]), np.array([1]), np.array([True]))
    (system,) = found.systems
    assert (system.rows.tolist(), system.unknowns.tolist()) == ([[0]], [[0, 1, 2, 3]])
    assert found.implied.tolist() == [1]
    assert found.cascade.free.all()
    assert (system.gram.nnz, system.eliminated.shape) == (0, (1, 0))
