"""`python -m benchmarks.cutest`: run a part of the battery, which resumes where it ended, and print the table."""

from __future__ import annotations

import argparse
import json
from math import inf
from pathlib import Path

from benchmarks.cutest import OUTCOMES, SECONDS, run
from benchmarks.cutest.table import lines
from benchmarks.record import append


def main() -> None:
    parser = argparse.ArgumentParser(description="Run a part of the CUTEst battery.")
    parser.add_argument("--every", type=int, default=1, help="run every so many problems")
    parser.add_argument(
        "--share", default="1/1", metavar="K/N", help="run the K-th of N shares; all may write to one file"
    )
    parser.add_argument("--seconds", type=float, default=SECONDS, help="budget of one call")
    parser.add_argument(
        "--within", type=float, default=inf, metavar="SECONDS", help="begin no problem later; the next run goes on"
    )
    parser.add_argument("--file", type=Path, default=OUTCOMES, help="outcomes, a line per problem")
    parser.add_argument("--record", action="store_true", help="append the counts to bench/records, with what was run")
    asked = parser.parse_args()
    share, _, shares = asked.share.partition("/")
    counts = run(asked.every, asked.seconds, asked.file, int(share) - 1, int(shares), asked.within)
    print(json.dumps(counts, indent=2))
    print("\n".join(lines(counts)))
    if asked.record:
        ran = {"every": asked.every, "share": asked.share, "budget": asked.seconds}
        print(f"recorded in {append('cutest', {'ran': ran, **counts})}")


if __name__ == "__main__":
    main()
