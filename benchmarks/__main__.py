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
    "peers",
    "batch",
    "network",
    "cost",
    "threads",
)


def main() -> None:
    parser = argparse.ArgumentParser(description="Run micro benchmarks and append records to benchmarks/records/.")
    parser.add_argument("case", nargs="*", help=f"which to run: {', '.join(CASES)} (default: all)")
    for case in parser.parse_args().case or CASES:
        print(f"{case} …", flush=True)
        figures = importlib.import_module(f"benchmarks.{case}").run()
        print(json.dumps(figures, indent=2, ensure_ascii=False))
        print(f"recorded in {append(case, figures)}")


if __name__ == "__main__":  # a spawned process imports this file too
    main()
