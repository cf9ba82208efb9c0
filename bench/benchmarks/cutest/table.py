"""Count the outcomes of the battery by method and by cause of failure. Reads the kept outcomes only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from statistics import median
from typing import Any

from benchmarks.cutest.methods import METHODS, TOLERANCE

SAME = 1e-6  # relative difference of distances that counts as none
LATE = 1.0  # seconds past the budget that count as late: the clock is looked at between callbacks
FALSE_STATIONARITY = 1e-3  # relative: ten times what the judge asks of a solved pair
RIVALS = tuple(who for who in METHODS if who != "ours")
_CLAIMS = {
    "false_converged": "CONVERGED, and not true", "false_infeasible": "INFEASIBLE, and not true", "late": "past its budget",
    "crash": "crashed", "refused": "problems refused",
}  # fmt: skip

Outcome = dict[str, Any]


def count(outcomes: Iterable[Outcome]) -> dict[str, Any]:
    """Count all pairs of a problem and a start; a share counts every pair, also those that a method refuses or loses."""
    found, unloadable = [], []
    for outcome in outcomes:
        (unloadable if "unloadable" in outcome else found).append(outcome)
    pairs = [pair for outcome in found for pair in _pairs(outcome)]
    plain = [pair for pair in pairs if not any(pair[who].get("reformulated") for who in RIVALS)]
    told: dict[str, list[str]] = {
        "false_converged": [_where(pair) for pair in pairs if _false(pair)],
        "false_infeasible": [_where(pair) for pair in pairs if _wrongly_infeasible(pair)],
        "late": [_where(pair) for pair in pairs if _late(pair)],
        "crash": [_where(pair) for pair in pairs if pair["ours"]["status"] in ("CRASH", "DIED")],
        "refused": [f"{one['name']}: {one['ours']['refused']}" for one in found if "refused" in one["ours"]],
        "unloadable": [f"{one['name']}: {one['unloadable']}" for one in unloadable],
    }
    return {
        "problems": len(found), "pairs": len(pairs),
        "share": {who: _share(pairs, [who]) for who in METHODS} | {"ipopt_either": _share(pairs, RIVALS)},
        "refused_by_ipopt_as_they_are": len(pairs) - len(plain),
        "share_of_the_others": {who: _share(plain, [who]) for who in METHODS} | {"ipopt_either": _share(plain, RIVALS)},
        "causes": {who: dict(Counter(filter(None, (_cause(pair[who]) for pair in pairs))).most_common()) for who in METHODS},
        "against": {who: _against(pairs, who) for who in RIVALS},
        "lost_to_ipopt": _lost(pairs),
        "time_ratio": {who: _ratio(pairs, who) for who in RIVALS},
        "told": told,
    }  # fmt: skip


def lines(counts: dict[str, Any]) -> list[str]:
    """Lay the counts out as a table in Markdown: shares, failures by cause, wrong claims of ours, processor time.

    Claims are counted for ours alone. A ratio of time above one: ours is faster.
    """
    causes = sorted({cause for own in counts["causes"].values() for cause in own})
    head = ["", *METHODS]
    rows = [
        ["solved, all pairs", *(f"{counts['share'][who]:.1%}" for who in METHODS)],
        ["solved, without what Ipopt refuses", *(f"{counts['share_of_the_others'][who]:.1%}" for who in METHODS)],
        *([cause, *(str(counts["causes"][who].get(cause, 0)) for who in METHODS)] for cause in causes),
        *([name, str(len(counts["told"][key])), *("" for _ in RIVALS)] for key, name in _CLAIMS.items()),
        ["processor time over ours, median of problems", "", *(_times(counts["time_ratio"][who]) for who in RIVALS)],
    ]  # fmt: skip
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]


def _times(ratio: dict[str, Any]) -> str:
    return "none" if ratio["median"] is None else f"{ratio['median']:.2f} of {ratio['problems']}"


def _pairs(outcome: Outcome) -> list[dict[str, Any]]:
    """Return a record per start: the answer of every method."""
    return [
        {"name": outcome["name"], "start": k, "seconds": outcome["seconds"]}
        | {who: _answer(outcome[who], k) for who in METHODS}
        for k in range(len(outcome["ours"]["answers"]))
    ]


def _answer(own: dict[str, Any], k: int) -> dict[str, Any]:
    return own["answers"][k] or {"status": "REFUSED" if "refused" in own else "GIVEN_UP"}


def _cause(answer: dict[str, Any]) -> str | None:
    """Say why an answer does not count as solved; None if it does."""
    if answer.get("solved"):
        return None
    if "relative" not in answer:
        return str(answer["status"])
    return f"{answer['status']}, {'feasible but not nearest' if answer['feasible'] else 'not feasible'}"


def _share(pairs: list[dict[str, Any]], methods: Iterable[str]) -> float:
    """Return the share of pairs that one of the methods solves."""
    methods = list(methods)
    return sum(any(pair[who].get("solved") for who in methods) for pair in pairs) / max(1, len(pairs))


def _against(pairs: list[dict[str, Any]], who: str) -> dict[str, int]:
    """Count who solves a pair, and who is nearer where both do."""
    found: Counter[str] = Counter()
    for pair in pairs:
        ours, theirs = pair["ours"], pair[who]
        one, two = bool(ours.get("solved")), bool(theirs.get("solved"))
        found["both" if one and two else "only_ours" if one else "only_ipopt" if two else "neither"] += 1
        if one and two:
            gap = (ours["distance"] - theirs["distance"]) / max(1e-12, ours["distance"], theirs["distance"])
            found["same" if abs(gap) <= SAME else "farther" if gap > 0 else "nearer"] += 1
    return dict(found)


def _lost(pairs: list[dict[str, Any]]) -> dict[str, dict[str, int]]:
    """Count by problem and cause the pairs that Ipopt solves, with either options, and ours does not."""
    lost: dict[str, Counter[str]] = {}
    for pair in pairs:
        cause = _cause(pair["ours"])
        if cause and any(pair[who].get("solved") for who in RIVALS):
            lost.setdefault(pair["name"], Counter())[cause] += 1
    return {name: dict(found) for name, found in lost.items()}


def _ratio(pairs: list[dict[str, Any]], who: str) -> dict[str, Any]:
    """Return the median over problems of Ipopt's processor time over ours, on the pairs that both solve."""
    spent: dict[str, list[float]] = {}
    for pair in pairs:
        if pair["ours"].get("solved") and pair[who].get("solved"):
            own = spent.setdefault(pair["name"], [0.0, 0.0])
            own[0] += pair["ours"]["cpu"]
            own[1] += pair[who]["cpu"]
    ratios = [two / max(1e-9, one) for one, two in spent.values()]
    return {"median": median(ratios) if ratios else None, "problems": len(ratios)}


def _false(pair: dict[str, Any]) -> bool:
    ours = pair["ours"]
    wrong = ours.get("violation", 0.0) > 2 * TOLERANCE or ours.get("stationarity", 0.0) > FALSE_STATIONARITY
    return bool(ours["status"] == "CONVERGED" and wrong)


def _wrongly_infeasible(pair: dict[str, Any]) -> bool:
    return pair["ours"]["status"] == "INFEASIBLE" and any(
        pair[who].get("violation", 1.0) <= TOLERANCE for who in RIVALS
    )


def _late(pair: dict[str, Any]) -> bool:
    return bool(pair["ours"]["status"] == "KILLED" or pair["ours"].get("seconds", 0.0) > pair["seconds"] + LATE)


def _where(pair: dict[str, Any]) -> str:
    return f"{pair['name']}:{pair['start']}"
