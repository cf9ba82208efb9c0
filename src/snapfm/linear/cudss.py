"""CuDSS: huge single systems on an NVIDIA GPU, by NVIDIA's sparse direct solver through the bindings of `nvmath`.

For matrices whose factors take seconds on the CPU: values go to the device and solutions come back, one lane at a time. A weak
pivot is replaced by a small number there instead of left out, and its lane is SINGULAR all the same. Needs the extra `gpu`.
Its arguments are tested against a stand-in for the bindings; it has never run on hardware.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from snapfm.arrays import Index, Mask, Values
from snapfm.compile.sparsity.pattern import Pattern
from snapfm.errors import require
from snapfm.kernels.ordering import Order, best
from snapfm.linear.base import Outcome, Pivots, Workspace, check_pattern

_FLOAT64, _INT32 = 1, 10  # of CUDA's cudaDataType
_WHOLE = 0  # an end of rows that is not given: rows lie one after the other


@dataclass(frozen=True)
class CuDSS:
    """The solver; `device` is where matrices are factorized."""

    device: str = "cuda"

    def prepare(self, pattern: Pattern, signs: Index | None = None) -> PreparedCuDSS:
        """Analyze the pattern; cuDSS chooses an order of its own, this one is for predictions of its cost."""
        check_pattern(pattern, signs)
        return PreparedCuDSS(pattern, best(pattern.indptr, pattern.indices, signs), torch.device(self.device))


@dataclass(frozen=True)
class PreparedCuDSS:
    """One pattern, and where its matrices are factorized."""

    pattern: Pattern
    order: Order
    device: torch.device

    def workspace(self) -> CuDSSWorkspace:
        """Make a workspace with memory of its own."""
        return CuDSSWorkspace(self)


class CuDSSWorkspace(Workspace):
    """One factor per live lane, on the device."""

    def __init__(self, prepared: PreparedCuDSS) -> None:
        super().__init__(prepared.pattern)
        self._prepared, self._cudss = prepared, require("nvmath.bindings.cudss", "the solver CuDSS", "gpu")
        self._handle = self._cudss.create()
        self._samples: list[_Sample] = []
        self._of: list[int] = []  # lanes that have a factor: _samples[k] is that of lane _of[k]

    def _factorize(self, values: Values, found: Pivots, live: Mask, stop: Index) -> None:
        found.status[:], found.negative[:], found.weak[:], found.smallest[:] = Outcome.NONFINITE, 0, 0, np.nan
        self._stream()
        self._of = [lane for lane in np.flatnonzero(live).tolist() if np.isfinite(values[:, lane]).all()]
        for k, lane in enumerate(self._of):
            if stop[0]:
                return
            if k == len(self._samples):
                self._samples.append(_Sample(self._cudss, self._handle, self._prepared))
            negative, weak, smallest = self._samples[k].factorize(values[:, lane])
            found.status[lane] = Outcome.SINGULAR if weak else Outcome.FACTORED
            found.negative[lane], found.weak[lane], found.smallest[lane] = negative, weak, smallest

    def _solve(self, rhs: Values, out: Values) -> None:
        self._stream()
        answers = [self._samples[k].solve(rhs[:, lane]) for k, lane in enumerate(self._of)]
        out[:] = 0.0
        for lane, answer in zip(self._of, answers):
            out[:, lane] = answer

    def _log_determinant(self, lanes: int) -> Values:
        logs = np.full(lanes, np.nan)
        for k, lane in enumerate(self._of):
            logs[lane] = np.log(np.abs(self._samples[k].diagonal())).sum()
        return logs

    def _stream(self) -> None:
        if self._prepared.device.type == "cuda":
            self._cudss.set_stream(self._handle, torch.cuda.current_stream(self._prepared.device).cuda_stream)

    def __del__(self) -> None:
        if hasattr(self, "_handle"):
            for sample in self._samples:
                sample.release()
            self._cudss.destroy(self._handle)


class _Sample:
    """The matrix of one lane, its factor, and vectors, on the device."""

    def __init__(self, cudss: Any, handle: int, prepared: PreparedCuDSS) -> None:
        pattern, device = prepared.pattern, prepared.device
        self._cudss, self._handle, self._size = cudss, handle, pattern.rows
        self._indptr, self._indices = (
            torch.from_numpy(one.astype(np.int32)).to(device) for one in (pattern.indptr, pattern.indices)
        )
        self._values = torch.empty(pattern.nnz, dtype=torch.float64, device=device)
        self._right, self._found = torch.empty(2, pattern.rows, dtype=torch.float64, device=device)
        self._config, self._data = cudss.config_create(), cudss.data_create(handle)
        self._matrix = cudss.matrix_create_csr(
            self._size, self._size, pattern.nnz, self._indptr.data_ptr(), _WHOLE, self._indices.data_ptr(),
            self._values.data_ptr(), _INT32, _INT32, _FLOAT64, cudss.MatrixType.SYMMETRIC.value,
            cudss.MatrixViewType.LOWER.value, cudss.IndexBase.ZERO.value,
        )  # fmt: skip
        self._b, self._x = (
            cudss.matrix_create_dn(self._size, 1, self._size, one.data_ptr(), _FLOAT64, cudss.Layout.COL_MAJOR.value)
            for one in (self._right, self._found)
        )
        self._analyzed = False

    def factorize(self, values: Values) -> tuple[int, int, float]:
        """Factorize a matrix (nnz,); return the numbers of negative and of weak pivots, and the smallest one's size."""
        self._values.copy_(torch.from_numpy(values.copy()))
        if not self._analyzed:
            self._execute(self._cudss.Phase.ANALYSIS)
            self._analyzed = True
        self._execute(self._cudss.Phase.FACTORIZATION)
        _, negative = self._told(self._cudss.DataParam.INERTIA, 2)
        (weak,) = self._told(self._cudss.DataParam.NPIVOTS, 1)
        return int(negative), int(weak), float(np.abs(self.diagonal()).min())

    def solve(self, right: Values) -> Values:
        """Solve for one right-hand side (n,)."""
        self._right.copy_(torch.from_numpy(right.copy()))
        self._execute(self._cudss.Phase.SOLVE)
        found: Values = self._found.cpu().numpy()
        return found

    def diagonal(self) -> Values:
        """Return D of the factorization (n,)."""
        return self._told(self._cudss.DataParam.DIAG, self._size, np.float64)

    def release(self) -> None:
        """Free what the bindings hold."""
        for matrix in (self._x, self._b, self._matrix):
            self._cudss.matrix_destroy(matrix)
        self._cudss.data_destroy(self._handle, self._data)
        self._cudss.config_destroy(self._config)

    def _execute(self, phase: Any) -> None:
        self._cudss.execute(self._handle, phase.value, self._config, self._data, self._matrix, self._x, self._b)

    def _told(self, param: Any, count: int, dtype: Any = None) -> Values:
        """Ask for `count` numbers about the factorization."""
        kind = self._cudss.get_data_param_dtype(param.value) if dtype is None else dtype
        values, written = np.zeros(count, kind), np.zeros(1, np.int64)
        self._cudss.data_get(
            self._handle, self._data, param.value, values.ctypes.data, values.nbytes, written.ctypes.data
        )
        return values


def available() -> bool:
    """Whether the bindings are installed; they are not loaded."""
    return importlib.util.find_spec("nvmath") is not None
