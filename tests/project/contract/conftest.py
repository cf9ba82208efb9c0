from __future__ import annotations

import pytest
from tests.project.contract.cases import BATCH, CASES, SOLVERS, Case, Run, randn

from snapfm.linear import Solver

PAIRS = [(case, linear) for linear in SOLVERS for case in CASES]


@pytest.fixture(scope="module", params=PAIRS, ids=lambda pair: f"{type(pair[1]).__name__}: {pair[0].name}")
def run(request: pytest.FixtureRequest) -> Run:
    case: Case
    linear: Solver
    case, linear = request.param
    project = case.projector(linear)
    u_hat, params = randn(BATCH, *case.shape, seed=2), case.draw(BATCH)
    return Run(case, linear, project, u_hat, params, project(u_hat, params))
