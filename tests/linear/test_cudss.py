"""CuDSS: its arguments and its answers, with a stand-in for nvmath's bindings that factorizes with numpy in the CPU's memory."""

from __future__ import annotations

import ctypes
import inspect
import sys
from enum import IntEnum
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

import snapfm
from snapfm.compile.sparsity.pattern import Pattern
from snapfm.errors import MissingDependency
from snapfm.linear import CuDSS, Lanes, Outcome

_INT32, _FLOAT64 = 10, 1


class _Phase(IntEnum):
    ANALYSIS = 3
    FACTORIZATION = 4
    SOLVE = 1008


class _DataParam(IntEnum):
    NPIVOTS = 2
    INERTIA = 3
    DIAG = 8


class StandIn(ModuleType):
    """The functions of nvmath.bindings.cudss 1.0 that the solver calls, with the same arguments, in the same order."""

    Phase, DataParam = _Phase, _DataParam
    MatrixType, MatrixViewType = IntEnum("MatrixType", {"SYMMETRIC": 1}), IntEnum("MatrixViewType", {"LOWER": 1})
    IndexBase, Layout = IntEnum("IndexBase", {"ZERO": 0}), IntEnum("Layout", {"COL_MAJOR": 0})

    def __init__(self) -> None:
        super().__init__("nvmath.bindings.cudss")
        self.open: dict[int, SimpleNamespace] = {}
        self.phases: list[int] = []

    def _opened(self, **held) -> int:
        number = 1 + max(self.open, default=0)
        self.open[number] = SimpleNamespace(**held)
        return number

    def create(self) -> int:
        return self._opened()

    def destroy(self, handle: int) -> None:
        del self.open[handle]

    def config_create(self) -> int:
        return self._opened()

    def config_destroy(self, solver_config: int) -> None:
        del self.open[solver_config]

    def data_create(self, handle: int) -> int:
        assert handle in self.open
        return self._opened(analyzed=False)

    def data_destroy(self, handle: int, solver_data: int) -> None:
        del self.open[solver_data]

    def matrix_destroy(self, matrix: int) -> None:
        del self.open[matrix]

    def matrix_create_csr(
        self, nrows: int, ncols: int, nnz: int, row_start: int, row_end: int, col_indices: int, values: int,
        offset_type: int, index_type: int, value_type: int, mtype: int, mview: int, index_base: int,
    ) -> int:  # fmt: skip
        assert (offset_type, index_type, value_type, row_end) == (_INT32, _INT32, _FLOAT64, 0)
        assert (mtype, mview, index_base) == (1, 1, 0)
        assert nrows == ncols
        indptr = np.ctypeslib.as_array((ctypes.c_int32 * (nrows + 1)).from_address(row_start))
        indices = np.ctypeslib.as_array((ctypes.c_int32 * nnz).from_address(col_indices))
        numbers = np.ctypeslib.as_array((ctypes.c_double * nnz).from_address(values))
        return self._opened(size=nrows, indptr=indptr, indices=indices, numbers=numbers)

    def matrix_create_dn(self, nrows: int, ncols: int, ld: int, values: int, value_type: int, layout: int) -> int:
        assert (ncols, ld, value_type, layout) == (1, nrows, _FLOAT64, 0)
        return self._opened(numbers=np.ctypeslib.as_array((ctypes.c_double * nrows).from_address(values)))

    def execute(
        self, handle: int, phase: int, solver_config: int, solver_data: int, input_matrix: int, solution: int, rhs: int
    ) -> None:
        assert {handle, solver_config} <= set(self.open)
        self.phases.append(phase)
        data, given = self.open[solver_data], self.open[input_matrix]
        if phase == _Phase.ANALYSIS:
            data.analyzed = True
            return
        assert data.analyzed
        if phase == _Phase.FACTORIZATION:
            dense = np.zeros((given.size, given.size))
            row = np.repeat(np.arange(given.size), np.diff(given.indptr))
            dense[row, given.indices] = dense[given.indices, row] = given.numbers
            data.dense, data.pivots = dense, np.linalg.eigvalsh(dense)
            data.weak = int((np.abs(data.pivots) < 1e-13).sum())
            return
        self.open[solution].numbers[:] = np.linalg.lstsq(data.dense, self.open[rhs].numbers, rcond=1e-13)[0]

    def get_data_param_dtype(self, attr: int) -> type:
        return np.int32 if attr == _DataParam.INERTIA else np.int64

    def data_get(self, handle: int, data: int, param: int, value: int, size_in_bytes: int, size_written: int) -> None:
        one = self.open[data]
        told = {
            _DataParam.INERTIA: np.array([(one.pivots > 0).sum(), (one.pivots < 0).sum()], np.int32),
            _DataParam.NPIVOTS: np.array([one.weak], np.int64),
            _DataParam.DIAG: one.pivots,
        }[_DataParam(param)]
        assert told.nbytes == size_in_bytes
        ctypes.memmove(value, told.ctypes.data, told.nbytes)
        ctypes.c_int64.from_address(size_written).value = told.nbytes


@pytest.fixture
def cudss(monkeypatch) -> StandIn:
    made = StandIn()
    for name in ("nvmath", "nvmath.bindings"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, "nvmath.bindings.cudss", made)
    return made


def _system(lanes: int = 3, size: int = 6) -> tuple[Pattern, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    row, column = np.tril_indices(size)
    whole = rng.normal(size=(lanes, size, size))
    whole = whole @ whole.transpose(0, 2, 1) + np.eye(size)
    values = np.ascontiguousarray(whole[:, row, column].T)
    return Pattern.from_coordinates(row, column, (size, size)), values, rng.normal(size=(size, lanes))


def test_it_solves_and_counts_as_the_others_do(cudss):
    pattern, values, right = _system()
    work, other = CuDSS("cpu").prepare(pattern).workspace(), Lanes().prepare(pattern).workspace()
    pivots, wanted = work.factorize(values), other.factorize(values)
    assert pivots.status.tolist() == wanted.status.tolist()
    assert pivots.negative.tolist() == wanted.negative.tolist()
    assert np.allclose(work.solve(right.copy()), other.solve(right.copy()))
    assert np.allclose(work.log_determinant(), other.log_determinant())


def test_a_pattern_is_analyzed_once_a_lane_and_everything_is_freed(cudss):
    pattern, values, _ = _system()
    work = CuDSS("cpu").prepare(pattern).workspace()
    work.factorize(values)
    work.factorize(values)
    assert cudss.phases.count(_Phase.ANALYSIS) == 3
    assert cudss.phases.count(_Phase.FACTORIZATION) == 6
    del work
    assert not cudss.open


def test_lanes_that_are_singular_or_not_finite_are_told_apart(cudss):
    pattern, values, _ = _system()
    values[:, 0] = 1.0  # all rows equal
    values[0, 2] = np.nan
    pivots = CuDSS("cpu").prepare(pattern).workspace().factorize(values)
    assert [Outcome(one) for one in pivots.status] == [Outcome.SINGULAR, Outcome.FACTORED, Outcome.NONFINITE]


def test_a_projection_takes_it_through_the_seam(cudss):
    import torch

    law = snapfm.Equality("energy", lambda u, p: (u**2).sum(0) - 2.0)
    u_hat = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found = snapfm.Projector([law], (5, 3), linear=CuDSS("cpu"))(u_hat)
    assert bool(found.converged.all())
    assert torch.allclose(found.u, snapfm.Projector([law], (5, 3))(u_hat).u, atol=1e-9)
    assert cudss.phases.count(_Phase.SOLVE)


def test_without_the_bindings_it_names_the_extra():
    pattern, _, _ = _system()
    with pytest.raises(MissingDependency, match=r"pip install 'snapfm\[gpu\]'"):
        CuDSS("cpu").prepare(pattern).workspace()


def test_the_stand_in_has_the_arguments_of_the_bindings():
    cudss = pytest.importorskip("nvmath.bindings.cudss")
    for name in ("matrix_create_csr", "matrix_create_dn", "execute", "data_get", "data_create", "data_destroy"):
        ours = list(inspect.signature(getattr(StandIn, name)).parameters)[1:]
        text = getattr(cudss, name).__doc__ or ""
        assert all(argument in text for argument in ours), name
