"""Folders of planted records: every state, a method that lies, two suites, powers that are known."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from snapfm_bench.judge import UnjudgedLaw, Verdict
from snapfm_bench.record import CellState, to_line
from snapfm_bench.suites.projection.suite import Kind, MethodTurn, ProjectionCell, SuitePoint

MACHINE = {
    "commit": "0123456789ab", "dirty": False, "date": "2026-11-18", "processor": "x86_64", "cores": 2,
    "versions": {"snapfm": "0.1.0", "torch": "2.13.0"},
}  # fmt: skip
SAMPLES, STEPS = 32, 100
INPUTS = ("tau 0.00", "tau 1.00")


def verdict(accepted: int = SAMPLES, *, samples: int = SAMPLES, **given: Any) -> Verdict:
    """A verdict on samples that all lie two from their inputs, of which some are accepted, unless given otherwise."""
    laws = (UnjudgedLaw("initial", 1.5e-12, 2.5e-13), UnjudgedLaw("mass", 2.5e-11, 3.5e-12))
    settings = {
        "claimed": accepted, "converged": accepted, "lawful": accepted, "violation": 1e-9, "stationarity": 2e-9,
        "distances": (2.0,) * samples, "iterations_median": 4.0, "iterations_worst": 7, "laws": laws,
        "exact_distances": (2.0,) * accepted + (None,) * (samples - accepted),
    }  # fmt: skip
    return Verdict(samples=samples, **{**settings, **given})


def cell(case: str, method: str, kind: Kind, state: CellState = CellState.DONE, **given: Any) -> ProjectionCell:
    settings = {
        "problem": "heat-ic-mass", "samples": SAMPLES, "unknowns": 10_000, "rows": 199, "tolerance": 1e-5, "threads": 2,
        "seconds": 12.0, "machine": MACHINE, "load": 0.5,
    }  # fmt: skip
    return ProjectionCell(case, method, kind, state, **{**settings, **given})


def projection(case: str, method: str, seconds: float, found: Verdict | None = None, **given: Any) -> ProjectionCell:
    """Two inputs of three repeats each, whose medians are `seconds`."""
    turns = tuple(MethodTurn(name, (3 * seconds, seconds, 0.5 * seconds), found or verdict()) for name in INPUTS)
    cold = {"structure": 0.25, "build": 0.5, "first_call": 0.25}
    return cell(case, method, Kind.PROJECTION, turns=turns, cold=cold, peak_bytes=50_000_000, **given)


def walk(
    case: str, method: str, velocity: float, spent: float, found: Verdict | None = None, **given: Any
) -> ProjectionCell:
    """Three walks, of which the median takes `velocity` + `spent` seconds, all of the rest in projections."""
    seconds = {"velocity": velocity, "projection": spent, "total": velocity + spent}
    walks = (1.5 * seconds["total"], seconds["total"], seconds["total"])
    return cell(case, method, Kind.WALK, walk=seconds, walks=walks, steps=STEPS, verdict=found or verdict(), **given)


def paper_suite() -> dict[str, Any]:
    return {
        "name": "paper", "title": "Six <problems> & more", "methods": ["ours", "ipopt", "lbfgs", "madnlp", "gauss-newton"],
        "repeats": 3, "budget": 600.0,
        "cases": [
            {"name": "heat", "problem": "heat-ic-mass", "published": "heat-ic-mass"},
            {"name": "waves", "problem": "navier-stokes-ic-mass-enstrophy", "published": "navier-stokes-ic-mass-enstrophy"},
            {"name": "odd", "problem": "heat-ic-mass"},
        ],
    }  # fmt: skip


def paper_cells() -> list[ProjectionCell]:
    """Ours is beaten in speed by a method that converges on fewer samples, and in nearness by one rival on three samples."""
    nearer = verdict(distances=(1.0,) * 3 + (2.0,) * 28 + (None,))
    lying = verdict(
        3, claimed=SAMPLES, lawful=3, violation=0.25, stationarity=None, distances=(0.5,) * 3 + (None,) * 29
    )
    waves = {"problem": "navier-stokes-ic-mass-enstrophy", "samples": 2, "unknowns": 12_800, "rows": 354}
    why = "RuntimeError: <b>boom</b> | *twice* & `more`"
    return [
        projection("heat", "ipopt", 0.64, nearer),
        projection("heat", "ours", 0.032, phases={"residual": 0.01, "factor": 0.02}),
        projection("heat", "lbfgs", 0.016, lying),
        cell("heat", "madnlp", Kind.PROJECTION, CellState.ABSENT, why="julia is not installed"),
        cell("heat", "gauss-newton", Kind.PROJECTION, CellState.REFUSED, why="inequalities are not for it"),
        walk("heat", "ours", 4.0, 2.0),
        walk("heat", "ipopt", 4.0, 56.0),
        walk("heat", "lbfgs", 4.0, 1.0, lying),
        cell("heat", "madnlp", Kind.WALK, CellState.DNF, why="600 s were used up after step 7 of 100", seconds=600.0),
        cell("heat", "gauss-newton", Kind.WALK, CellState.FAILED, why=why),
        cell("heat", "ours", Kind.CURVE, curve=tuple(SuitePoint(i, 0.01 * i, 10.0**-i, 10.0 ** (1 - i)) for i in range(1, 9))),
        cell("heat", "ipopt", Kind.CURVE, curve=(SuitePoint(5, 0.3, 1e-3, None), SuitePoint(10, 0.6, 0.0, None))),
        cell("heat", "madnlp", Kind.CURVE, CellState.ABSENT, why="julia is not installed"),
        walk("waves", "ours", 2.0, 1.0, verdict(2, samples=2), **waves),
        cell("waves", "ours", Kind.PROJECTION, CellState.FAILED, why="killed by signal 9", **waves),
        projection("odd", "ours", 0.1, verdict(31, claimed=31)),
        projection("odd", "lbfgs", 0.05, verdict(30, claimed=30)),
    ]  # fmt: skip


SIZES = (101, 202, 697, 1192)


def scaling_suite() -> dict[str, Any]:
    names = [f"rows {size}" for size in SIZES]
    return {
        "name": "scaling", "title": "Rows", "methods": ["ours", "ipopt"],
        "cases": [{"name": name, "problem": "burgers-ic-mass-flux", "axis": "rows"} for name in names] + [{"name": "heat"}],
    }  # fmt: skip


def scaling_cells() -> list[ProjectionCell]:
    """Ours takes 1e-6 rows^1.5 seconds; ipopt 1e-4 rows^2, but loses samples at 697 and does not finish 1192."""
    made = []
    for size in SIZES:
        case, given = f"rows {size}", {"problem": "burgers-ic-mass-flux", "rows": size, "unknowns": 10_201}
        made += [
            projection(case, "ours", 1e-6 * size**1.5, **given),
            walk(case, "ours", 1e-2 * size, 1e-2 * size, **given),
        ]
        if size < 1192:
            off = 1.0 if size < 697 else 3.0  # a point that would bend the line
            made.append(projection(case, "ipopt", off * 1e-4 * size**2, verdict(SAMPLES if size < 697 else 5), **given))
        else:
            made.append(cell(case, "ipopt", Kind.PROJECTION, CellState.DNF, why="budget", **given))
    return [*made, projection("heat", "ours", 0.5), projection("heat", "ipopt", 0.25)]


def folder(where: Path, suite: dict[str, Any], cells: list[ProjectionCell]) -> Path:
    """Write a folder as a run leaves it, with an older record of every cell that the newer one replaces, and a torn line."""
    where.mkdir(parents=True)
    older = [
        replace(one, seconds=1e6, walk={}, turns=(), state=CellState.FAILED, why="an older record") for one in cells
    ]
    lines = [json.dumps({"suite": suite}), *(to_line(one) for one in [*older, *cells])]
    (where / "records.jsonl").write_text("\n".join(lines) + '\n{"case": "hea', encoding="utf-8")
    return where


def keep_fields(where: Path, case: str, shape: tuple[int, ...]) -> None:
    (where / "fields").mkdir(exist_ok=True)
    across = np.linspace(0.0, 6.28, int(np.prod(shape))).reshape(shape)
    before = np.stack([np.sin(across + i) for i in range(4)])
    np.savez(where / "fields" / f"{case}.npz", before=before, after=before + 0.1 * np.cos(3 * before))
