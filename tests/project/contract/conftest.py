from __future__ import annotations

import pytest
from tests.project.contract.cases import BATCH, CASES, Case, Run, randn

from snapfm import Projector


@pytest.fixture(scope="module", params=CASES, ids=lambda case: case.name)
def run(request: pytest.FixtureRequest) -> Run:
    case: Case = request.param
    project = Projector(case.laws, shape=case.shape, params=case.draw(1))
    u_hat, params = randn(BATCH, *case.shape, seed=2), case.draw(BATCH)
    return Run(case, project, u_hat, params, project(u_hat, params))
