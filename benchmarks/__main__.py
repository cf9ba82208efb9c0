"""`python -m benchmarks [CASE …]`: run cases (all by default), print their figures and append a record for each."""

from __future__ import annotations

import argparse
import importlib
import json

from benchmarks.record import append

CASES = (
    "affine",
    "jacobian",
    "scale",
    "linear",
    "robustness",
    "steps",
    "audit",
    "ipopt",
    "random_problems",
    "certificates",
    "peers",
    "batch",
    "network",
    "cost",
    "threads",
)
LONG = ("cutest",)  # hours: run by name only


def main() -> None:
    parser = argparse.ArgumentParser(description="Run micro benchmarks and append records to benchmarks/records/.")
    parser.add_argument("case", nargs="*", help=f"which to run: {', '.join(CASES)} (default: all), {', '.join(LONG)}")
    parser.add_argument("--count", type=int, help="of certificates: how many projections")
    parser.add_argument("--only", metavar="KIND:NUMBER", help="of certificates: show one case, record nothing")
    asked = parser.parse_args()
    if asked.only:
        kind, _, number = asked.only.partition(":")
        figures = importlib.import_module("benchmarks.certificates").one(kind, int(number))
        print(json.dumps(figures, indent=2, ensure_ascii=False))
        return
    for case in asked.case or CASES:
        print(f"{case} …", flush=True)
        settings = {"count": asked.count} if case == "certificates" and asked.count else {}
        figures = importlib.import_module(f"benchmarks.{case}").run(**settings)
        print(json.dumps(figures, indent=2, ensure_ascii=False))
        print(f"recorded in {append(case, figures)}")


if __name__ == "__main__":  # a spawned process imports this file too
    main()
