"""Count the outcomes of the battery by cause. Reads the kept outcomes only."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.cutest.methods import TOLERANCE

SAME = 1e-6  # relative difference of distances that counts as none
LATE = 1.0  # seconds past the budget that count as late: the clock is looked at between callbacks
FALSE_STATIONARITY = 1e-3  # relative: ten times what the judge asks of a solved pair


def count(file: Path) -> dict[str, Any]:
    """Count all pairs of a problem and a start."""
    outcomes = [json.loads(line) for line in file.read_text().splitlines()]
    counts: Counter[str] = Counter()
    status: dict[str, Counter[str]] = {"ours": Counter(), "ipopt": Counter()}
    lost: Counter[str] = Counter()
    told: dict[str, list[str]] = {
        key: [] for key in ("false_converged", "false_infeasible", "late", "crash", "refused", "only_ipopt")
    }
    ratios: list[float] = []
    for outcome in outcomes:
        if "unloadable" in outcome or "why" in outcome:
            counts["unloadable"] += 1
            continue
        counts["problems"] += 1
        if "refused" in outcome["ours"]:
            told["refused"].append(f"{outcome['name']}: {outcome['ours']['refused']}")
        times = []
        missing: Counter[str] = Counter()
        for k, (ours, theirs) in enumerate(zip(outcome["ours"]["answers"], outcome["ipopt"]["answers"])):
            counts["pairs"] += 1
            a, b = ours or {"status": "NONE"}, theirs or {"status": "NONE"}
            status["ours"][a["status"]] += 1
            status["ipopt"][b["status"]] += 1
            one, two, where = bool(a.get("solved")), bool(b.get("solved")), f"{outcome['name']}:{k}"
            counts["ours"] += one
            counts["ipopt"] += two
            counts["both" if one and two else "only_ours" if one else "only_ipopt" if two else "neither"] += 1
            if two and not one:
                missing[a["status"]] += 1
                lost[a["status"]] += 1
            if one and two:
                gap = (a["distance"] - b["distance"]) / max(1e-12, b["distance"], a["distance"])
                counts["same" if abs(gap) <= SAME else "farther" if gap > 0 else "nearer"] += 1
                times.append((a["cpu"], b["cpu"]))
            wrong = a.get("violation", 0) > 2 * TOLERANCE or a.get("stationarity", 0) > FALSE_STATIONARITY
            if a["status"] == "CONVERGED" and wrong:
                told["false_converged"].append(where)
            if a["status"] == "INFEASIBLE" and b.get("violation", 1.0) <= TOLERANCE:
                told["false_infeasible"].append(where)
            if a["status"] in ("KILLED",) or a.get("seconds", 0.0) > outcome["seconds"] + LATE:
                told["late"].append(where)
            if a["status"] in ("CRASH", "DIED"):
                told["crash"].append(where)
        if missing:
            told["only_ipopt"].append(f"{outcome['name']} {dict(missing)}")
        if times:
            ratios.append(sum(two for _, two in times) / max(1e-9, sum(one for one, _ in times)))
    pairs = max(1, counts["pairs"])
    return {
        "counts": dict(counts), "share_ours": counts["ours"] / pairs, "share_ipopt": counts["ipopt"] / pairs,
        "status": {who: dict(found) for who, found in status.items()}, "only_ipopt_by_our_status": dict(lost),
        "time_ratio": {"median": median(ratios) if ratios else None, "problems": len(ratios)}, "told": told,
    }  # fmt: skip
