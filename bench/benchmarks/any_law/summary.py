"""Two methods' figures side by side, and the summary of all cases: who is faster, nearer, certified, and within memory."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from benchmarks.any_law.methods import DEFAULT, OURS, TUNED

EQUAL = 1e-8  # relative difference of objectives that counts as none
MEMORY_MULTIPLE, MEMORY_FREE = 40, 2 * 2**30  # peak memory: at most so many batches, or so many bytes if that is more
DONE = "DONE"
_NOTHING = 1e-16  # a squared distance that rounding explains: fields are of order one

_LISTS = (
    "slower_than_ipopt", "only_ipopt", "farther", "uncertified", "false_claims", "unfinished", "too_much_memory",
)  # fmt: skip

Figures = dict[str, Any]


def compared(found: dict[str, Figures]) -> Figures:
    """Compare ours with the better of both configurations of Ipopt, on one case and level.

    The ratio is one of processor time, each on one thread, because that is what other work on the machine does not change.
    """
    ours, name = found[OURS], better(found)
    peer = found[name] if name else None
    shares = {"ipopt": name, "ratio": None, "nearer": 0, "same": 0, "farther": 0, "only_ours": 0, "only_ipopt": 0}
    if ours["state"] != DONE:
        return {**shares, "only_ipopt": peer["certified"] if peer else 0, "differences": []}
    mine = ours["distances"]
    theirs = peer["distances"] if peer else []
    differences: list[float | None] = []
    for own, other in zip(mine, [*theirs, *[None] * (len(mine) - len(theirs))]):
        difference = None if own is None or other is None else relative(own, other)
        differences.append(difference)
        if difference is None:
            shares["only_ours"] += own is not None
            shares["only_ipopt"] += other is not None
        else:
            shares["same" if abs(difference) <= EQUAL else "farther" if difference > 0 else "nearer"] += 1
    if peer and peer["certified"] and ours["certified"]:
        shares["ratio"] = peer["cpu_seconds"] / ours["cpu_seconds"]
    return {**shares, "differences": differences}


def better(found: dict[str, Figures]) -> str | None:
    """Choose the configuration of Ipopt that certifies more samples, of equal ones the faster; None if none ended."""
    ended = [name for name in (TUNED, DEFAULT) if found[name]["state"] == DONE]
    return min(ended, key=lambda name: (-found[name]["certified"], found[name]["cpu_seconds"]), default=None)


def relative(ours: float, other: float) -> float:
    """Return (ours − other)/other of the objectives ½‖u − û‖², from distances."""
    return (ours**2 - other**2) / max(other**2, _NOTHING)


def allowed_bytes(batch: int) -> int:
    """Return the peak memory that a batch of so many bytes may take."""
    return max(MEMORY_MULTIPLE * batch, MEMORY_FREE)


def summary(rows: Sequence[Figures]) -> Figures:
    """Sum up the rows of cases, newest of each."""
    table: dict[str, Figures] = {}
    ratios, samples, certified = [], 0, 0
    lists: dict[str, list[str]] = {kind: [] for kind in _LISTS}
    for row in rows:
        for level, found in row["levels"].items():
            name, ours, pair = f"{row['name']} {level}", found[OURS], found["comparison"]
            samples += row["samples"]
            table[name] = _line(found)
            for kind in ("farther", "only_ipopt"):
                if pair[kind]:
                    lists[kind].append(f"{name}: {pair[kind]}")
            if ours["state"] != DONE:
                lists["unfinished"].append(f"{name}: {ours['state']}")
                continue
            certified += ours["certified"]
            if ours["certified"] < ours["asked"]:
                lists["uncertified"].append(f"{name}: {ours['asked'] - ours['certified']} of {ours['asked']}")
            if ours["claimed"] > ours["certified"]:
                lists["false_claims"].append(f"{name}: {ours['claimed'] - ours['certified']}")
            if ours["peak_bytes"] > allowed_bytes(row["batch_bytes"]):
                lists["too_much_memory"].append(name)
            if pair["ratio"] is not None:
                ratios.append(pair["ratio"])
                if pair["ratio"] < 1.0:
                    lists["slower_than_ipopt"].append(name)
    return {
        "cases": len(rows),
        "samples": samples,
        "certified": certified,
        "ratio_median": median(ratios) if ratios else None,
        "ratio_worst": min(ratios, default=None),
        **lists,
        "table": table,
    }


def _line(found: dict[str, Figures]) -> Figures:
    ours, pair = found[OURS], found["comparison"]
    peer = found[pair["ipopt"]] if pair["ipopt"] else None
    return {
        "ours": ours.get("seconds", ours["state"]),
        "ipopt": peer["seconds"] if peer else found[TUNED]["state"],
        "ratio": pair["ratio"],
        "certified": ours.get("certified", 0),
        "ipopt_certified": peer["certified"] if peer else 0,
    }
