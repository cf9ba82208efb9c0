"""Evidence made by hand for the tests of demo: smooth fields, no model, no projector."""

from __future__ import annotations

import math

import numpy as np
import pytest

from snapfm_bench.demo.record import DemoCase, DemoScene, Evidence, LawFigures, Record, Seconds, Violation


@pytest.fixture(scope="session")
def record() -> Record:
    heat = DemoCase(
        problem="heat-ic-mass",
        model="heat-small",
        weights=1234567,
        shape=(12, 9),
        tolerance=1e-10,
        laws=(
            LawFigures("initial", 12, Violation(1.31, 0.42), Violation(2.9e-8, 2.1e-8), Violation(0.0, 0.0)),
            LawFigures("mass", 8, Violation(5.04, 3.3), Violation(1.2e-6, 1.1e-6), Violation(2.3e-14, 1.6e-14)),
        ),
        statuses=("CONVERGED",) * 3,
        stationarity=3.3e-16,
        iterations=0,
        free_seconds=Seconds(7.5, 0.0, 0.5),
        lawful_seconds=Seconds(7.0, 2.5, 0.5),
    )
    burgers = DemoCase(
        problem="burgers-ic-mass-flux",
        model="burgers-small",
        weights=7654321,
        shape=(10, 9),
        tolerance=1e-10,
        laws=(LawFigures("flux", 40, Violation(0.71, 0.31), Violation(3.1e-7, 2.2e-7), Violation(4.4e-13, 1.5e-13)),),
        statuses=("CONVERGED",) * 3,
        stationarity=6.1e-13,
        iterations=4,
        free_seconds=Seconds(3.0, 0.0, 1.0),
        lawful_seconds=Seconds(3.0, 1.0, 1.0),
    )
    return Record(
        count=3, steps=7, seed=5, cases=(heat, burgers), threads=2, versions={"python": "3.11.0", "snapfm": "0.1.0"}
    )


@pytest.fixture(scope="session")
def evidence(record: Record) -> Evidence:
    heat, burgers = record.cases
    nx, nt = heat.shape
    x, t = np.linspace(0, 2 * math.pi, nx), np.linspace(0, 1, nt)
    initial = np.tile(np.sin(x + math.pi / 4), (record.count, 1))
    lawful = initial[:, :, None] * np.exp(-np.arange(1, record.count + 1)[:, None, None] * t)
    free = lawful + np.random.default_rng(0).normal(scale=0.2, size=lawful.shape)
    steps = (np.linspace(0, 1, 10)[:, None] < 0.5 + 0.3 * t) * np.ones((record.count, 1, 1))
    return Evidence(
        record=record,
        heat=DemoScene(heat, x, t, {"free": free, "lawful": lawful}, {"free": {}, "lawful": {}}),
        burgers=DemoScene(
            burgers,
            np.linspace(0, 1, 10),
            t,
            {"free": 0.9 * steps, "lawful": steps},
            {"free": {"flux": np.full(record.count, 0.7)}, "lawful": {"flux": np.full(record.count, 3e-7)}},
        ),
        initial=initial,
        mass={"free": free[:, :-1].sum(1), "lawful": lawful[:, :-1].sum(1)},
        target_mass=initial[:, :-1].sum(1),
    )
