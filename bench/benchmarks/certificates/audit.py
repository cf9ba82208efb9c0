"""The audit of certificates: project and judge cases of all kinds, and count what is false."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from time import perf_counter
from typing import Any

import torch

import snapfm
from benchmarks.certificates.judge import false_claims, measure
from benchmarks.certificates.kinds import KINDS, Case, draw
from benchmarks.record import commit
from snapfm import Projection, Status
from snapfm_bench.judge import NEAREST

COUNT = 100_000
_SHOWN = 3  # samples of a case reported in full for each fault; all are listed by number


def run(count: int = COUNT) -> dict[str, Any]:
    """Project and judge about `count` samples, shared among the kinds."""
    kinds: dict[str, dict[str, Any]] = {}
    claims: list[dict[str, Any]] = []
    errors: list[dict[str, Any]] = []
    for kind, (_, share) in KINDS.items():
        began, cases = perf_counter(), list[dict[str, Any]]()
        while sum(case["samples"] for case in cases) < share * count:
            cases.append(one(kind, len(cases)))
        kinds[kind] = _sums(cases) | {"seconds": perf_counter() - began}
        claims += [claim for case in cases for claim in case["false"]]
        errors += [{"case": case["case"], "error": case["error"]} for case in cases if case["error"]]
        print(f"  {kind}: {json.dumps(kinds[kind], ensure_ascii=False)}", flush=True)
    return {
        "commit": commit(),
        "nearest": NEAREST,
        "samples": sum(kind["samples"] for kind in kinds.values()),
        "statuses": dict(sum((Counter(kind["statuses"]) for kind in kinds.values()), Counter())),
        "false": dict(sum((Counter(kind["false"]) for kind in kinds.values()), Counter())),
        "second_order": sum(kind["second_order"] for kind in kinds.values()),
        "kinds": kinds,
        "claims": _brief(claims),
        "errors": errors,
    }


def one(kind: str, number: int) -> dict[str, Any]:
    """Draw, project and judge one case; an exception of the projector is recorded, not raised."""
    case, error = draw(kind, number), None
    try:
        found = project(case)
    except Exception as cause:
        statuses, told, looked, loose = {"ERROR": len(case.u_hat)}, [], 0, 0
        error = f"{type(cause).__name__}: {cause}"
    else:
        seen = measure(case, found.u, found.multipliers)
        statuses = dict(Counter(Status(status).name for status in found.status.tolist()))
        told = [{"case": f"{kind}:{number}", **claim} for claim in false_claims(case, found, seen)]
        looked = int((found.converged & torch.isfinite(seen.curvature)).sum())
        loose = int((found.converged & seen.loose).sum())
    return {
        "case": f"{kind}:{number}", "laws": list(case.makes), "shape": list(case.shape), "samples": len(case.u_hat),
        "statuses": statuses, "second_order": looked, "loose": loose, "false": told, "error": error,
    }  # fmt: skip


def project(case: Case) -> Projection:
    """Ask snapfm."""
    example = {name: value[:1] for name, value in case.params.items()}
    projector = snapfm.Projector(case.laws, case.shape, example, tolerance=case.tolerance)
    warm = None if case.warm is None else projector(case.warm, case.params)
    return projector(case.u_hat, case.params, warm=warm)


def _sums(cases: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Count what became of the cases of one kind."""
    return {
        "cases": len(cases),
        "samples": sum(case["samples"] for case in cases),
        "statuses": dict(sum((Counter(case["statuses"]) for case in cases), Counter())),
        "second_order": sum(case["second_order"] for case in cases),
        "loose": sum(case["loose"] for case in cases),
        "false": dict(Counter(claim["fault"] for case in cases for claim in case["false"])),
    }


def _brief(claims: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Join the claims of one case and fault: all samples by number, the first few in full."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for claim in claims:
        found.setdefault((claim["case"], claim["fault"]), []).append(claim)
    shared = ("case", "fault", "laws", "shape")
    return [
        {name: some[0][name] for name in shared}
        | {"samples": [claim["sample"] for claim in some]}
        | {"first": [{k: v for k, v in claim.items() if k not in shared} for claim in some[:_SHOWN]]}
        for some in found.values()
    ]
