"""The loop of peers that solve one sample at a time with SciPy: each is a subclass that solves one."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from snapfm.arrays import Values
from snapfm.errors import Status
from snapfm.laws import Params
from snapfm_bench.peers.certificate import Answer, broken
from snapfm_bench.peers.numeric import Sample
from snapfm_bench.peers.stoppable import Stoppable


@dataclass(frozen=True)
class SampleEnd:
    """Where one sample ended: its free unknowns and the multipliers of kept rows."""

    x: Values
    multipliers: Values
    iterations: int
    status: Status


@dataclass(frozen=True)
class Begin:
    """Where iterations of one sample begin: û and zeros, or an answer to a nearby input."""

    x: Values
    multipliers: Values


class Samplewise(Stoppable):
    """Its functions serve every tolerance and batch size."""

    @abstractmethod
    def one(self, sample: Sample, tolerance: float, iterations: int, begin: Begin) -> SampleEnd:
        """Solve one sample."""

    @abstractmethod
    def build(self) -> None:
        """Build the functions it calls."""

    def prepare(self, tolerance: float, count: int = 1) -> None:
        """Build everything that does not depend on values, once; `solve` does so at first use."""
        self.build()

    def again(self, start: Tensor, params: Params, tolerance: float, last: Answer) -> Answer:
        """Project as `run` does, each sample from the last answer, to a nearby input, as far as the method can use it."""
        return self.run(start, params, tolerance, last=last)

    def run(
        self, start: Tensor, params: Params, tolerance: float, iterations: int | None = None, last: Answer | None = None
    ) -> Answer:
        """Project one sample after the other without the certificate."""
        count, rows = len(start), self.rows
        u: Values = start.reshape(count, self.structure.unknowns).numpy().copy()
        first, weight = (u, np.zeros((count, self.structure.rows))) if last is None else last.start(u)
        first, weight = first[:, rows.free].copy(), weight[:, rows.kept]
        multipliers, done = np.zeros((count, self.structure.rows)), np.zeros(count, np.int64)
        status = np.full(count, Status.NONFINITE, np.int8)
        limit = self.iterations if iterations is None else iterations
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the status reports overflow and rank
            for i in np.flatnonzero(~broken(start, params).numpy()):
                sample = rows.sample(start, params, int(i))
                end = self.one(sample, tolerance, limit, Begin(first[i], weight[i]))
                u[i], done[i], status[i] = sample.whole(end.x), end.iterations, end.status
                multipliers[i, rows.kept] = end.multipliers
        return Answer(u, multipliers, done, status)
