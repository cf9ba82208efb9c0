"""`python -m benchmarks [CASE …]`: run cases (all by default), print their figures and append a record for each."""

from __future__ import annotations

import argparse
import importlib
import json
import os

from benchmarks.record import append

CASES = (
    "affine",
    "jacobian",
    "gradients",
    "scale",
    "preparing",
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
    "sampler_cost",
    "threads",
    "noise_flow",
    "godunov",
    "inequalities",
    "first_call",
)
HOURS = (
    "any_law",
    "cutest",
    "cluster",
    "projecting",
    "coordinator",
    "ray_overhead",
    "ipopt_options",
)  # run only where they are named


def main() -> None:
    parser = argparse.ArgumentParser(description="Run micro benchmarks and append records to bench/records/.")
    parser.add_argument(
        "case",
        nargs="*",
        help=f"which: {', '.join(CASES)} (default: all), cutest, cluster, projecting, coordinator, ray_overhead, "
        "ipopt_options, any_law [LAW …]",
    )
    parser.add_argument("--count", type=int, help="of certificates: how many projections")
    parser.add_argument("--only", metavar="KIND:NUMBER", help="of certificates: show one case, record nothing")
    parser.add_argument("--timeout", type=float, help="of any_law: seconds of a method on one level of a case")
    asked = parser.parse_args()
    if asked.only:
        kind, _, number = asked.only.partition(":")
        figures = importlib.import_module("benchmarks.certificates").one(kind, int(number))
        print(json.dumps(figures, indent=2, ensure_ascii=False))
        return
    laws = [name for name in asked.case if name not in CASES + HOURS]
    if laws and "any_law" not in asked.case:
        parser.error(f"expected benchmarks, of {', '.join(CASES + HOURS)}; got {', '.join(laws)}")
    if "any_law" in asked.case:
        limit = {"timeout": asked.timeout} if asked.timeout else {}
        figures = importlib.import_module("benchmarks.any_law").run(laws, **limit)  # records each law as it is done
        print(json.dumps(figures, indent=2, ensure_ascii=False))
    for case in asked.case or CASES:
        if case == "any_law" or case in laws:
            continue
        print(f"{case} …", flush=True)
        load = os.getloadavg()[0]
        settings = {"count": asked.count} if case == "certificates" and asked.count else {}
        figures = importlib.import_module(f"benchmarks.{case}").run(**settings)
        print(json.dumps(figures, indent=2, ensure_ascii=False))
        print(f"recorded in {append(case, figures, load)}")


if __name__ == "__main__":  # a spawned process imports this file too
    main()
