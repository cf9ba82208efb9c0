"""Evidence made by hand for the tests of demo: smooth fields, no model, no projector."""

from __future__ import annotations

import math

import numpy as np
import pytest

from snapfm.evidence.demo.record import Evidence, LawFigures, Record, Seconds, Violation


@pytest.fixture(scope="session")
def record() -> Record:
    return Record(
        problem="heat-ic-mass",
        model="heat-small",
        weights=1234567,
        shape=(12, 9),
        count=3,
        steps=7,
        seed=5,
        tolerance=1e-10,
        laws=(
            LawFigures("initial", 12, Violation(1.31, 0.42), Violation(2.9e-8, 2.1e-8), Violation(0.0, 0.0)),
            LawFigures("mass", 8, Violation(5.04, 3.3), Violation(1.2e-6, 1.1e-6), Violation(2.3e-14, 1.6e-14)),
        ),
        statuses=("CONVERGED",) * 3,
        stationarity=3.3e-16,
        free_seconds=Seconds(8.0, 0.0),
        lawful_seconds=Seconds(7.5, 2.5),
        threads=2,
        versions={"python": "3.11.0", "snapfm": "0.1.0"},
    )


@pytest.fixture(scope="session")
def evidence(record: Record) -> Evidence:
    nx, nt = record.shape
    x, t = np.linspace(0, 2 * math.pi, nx), np.linspace(0, 1, nt)
    initial = np.tile(np.sin(x + math.pi / 4), (record.count, 1))
    lawful = initial[:, :, None] * np.exp(-np.arange(1, record.count + 1)[:, None, None] * t)
    free = lawful + np.random.default_rng(0).normal(scale=0.2, size=lawful.shape)
    return Evidence(
        record=record,
        x=x,
        t=t,
        fields={"free": free, "lawful": lawful},
        initial=initial,
        mass={"free": free[:, :-1].sum(1), "lawful": lawful[:, :-1].sum(1)},
        target_mass=initial[:, :-1].sum(1),
    )
