"""`python -m benchmarks.published`: run everything that the pages show, in one go on one commit, and write the pages.

Steps run one after the other; each resumes where it was stopped, so the same command goes on after a stop. Suites are run into
a folder of the present sources, build/published/COMMIT, and only when all are done do their records replace the committed ones.
With other sources everything begins anew. `--list` shows the steps with their minutes.

MINUTES are estimates for two idle cores, from the seconds of earlier records; a run writes what it took to OUT/steps.jsonl.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.page import ROOT
from snapfm.evidence.machine import machine, source
from snapfm.evidence.record import append

LIMIT = 75  # minutes of all steps together
BENCH = ("paper", "scaling-constraints", "scaling-samples", "scaling-grid")
QUALITY = {"plain": "quality_plain", "plain-steps": "quality_plain_steps", "paper": "quality", "steps": "quality_steps"}
MICRO = ("robustness", "ipopt", "random_problems", "peers", "batch", "audit", "inequalities")
# Laws that couple thousands of unknowns, those that ours loses on among them; the small ones of the suite have no page.
LAWS = (
    "darcy_64", "joint_poisson_64", "helmholtz_medium_32", "shallow_water_64", "spectral_vorticity_16", "divergence_free_32",
    "reaction_diffusion_32", "p_laplacian_32", "euler_64",
)  # fmt: skip
PAGES = (
    "audit_page", "exact_page", "inequalities_page", "projection_page", "quality_page", "tables_page", "laws_page", "cutest_page",
)  # fmt: skip
_RUNS, _RECORDS = ROOT / "benchmarks" / "runs", ROOT / "benchmarks" / "records"
_EVERY = 64  # of CUTEst's problems, every so many
_DONE = "steps.jsonl"


@dataclass(frozen=True)
class Step:
    """One command, where its records go when all steps are done, and its minutes on two idle cores."""

    name: str
    words: tuple[str, ...]  # after `python`
    minutes: float
    made: str = ""  # folder or file that it writes, within --out
    kept: Path | None = None  # its place among the committed records
    may_fail: bool = False  # an exit code of 1 says that ours failed somewhere: the record holds it


def steps(out: Path) -> list[Step]:
    """List all steps in order."""
    minutes = {"paper": 33, "scaling-constraints": 11, "scaling-samples": 6, "scaling-grid": 9}
    found = [
        Step(
            f"bench {name}", ("-m", "snapfm", "bench", name, "--out", str(out / name)), minutes[name], name, _RUNS / name,
            may_fail=True,
        )
        for name in BENCH
    ]  # fmt: skip
    found.append(Step("laws", ("-m", "benchmarks", "any_law", *LAWS, "--timeout", "15"), 8))
    outcomes = "cutest/outcomes.jsonl"
    found.append(
        Step(
            "cutest", ("-m", "benchmarks.cutest", "--every", str(_EVERY), "--file", str(out / outcomes), "--record"), 3,
            outcomes, _RUNS / outcomes,
        )
    )  # fmt: skip
    return found


def beside(out: Path) -> list[Step]:
    """List the steps of the pages that time nothing: samples and their quality, robustness, audits."""
    found = [
        Step(
            f"quality {name}", ("-m", "snapfm", "quality", name, "--out", str(out / f"quality-{name}")), 0,
            f"quality-{name}/records.jsonl", _RECORDS / f"{record}.jsonl", may_fail=True,
        )
        for name, record in QUALITY.items()
    ]  # fmt: skip
    exact = ("-m", "snapfm", "quality", "exact", "--out", str(out / "exact"))
    found.append(Step("exact", exact, 0, "exact/records.jsonl", _RECORDS / "exact.jsonl", may_fail=True))
    return [*found, *(Step(case, ("-m", "benchmarks", case), 0) for case in MICRO)]


def finished(out: Path) -> set[str]:
    """Return the names of the steps that these sources have done."""
    file, now = out / _DONE, source()
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    return {one["step"] for one in map(json.loads, lines) if one["source"] == now}


def run(out: Path, todo: list[Step]) -> None:
    """Run the steps that these sources have not done; stop at one that fails."""
    done = finished(out)
    for step in todo:
        if step.name in done:
            continue
        sys.stdout.write(f"{step.name} …\n")
        sys.stdout.flush()
        began = time.monotonic()
        code = subprocess.run([sys.executable, *step.words], cwd=ROOT).returncode
        if code not in ((0, 1) if step.may_fail else (0,)):
            raise SystemExit(
                f"published expects every step to end well; '{step.name}' ended with code {code}. Run it again."
            )
        took = time.monotonic() - began
        append(
            out / _DONE, {"step": step.name, "seconds": took, "code": code, "source": source(), "machine": machine()}
        )


def keep(out: Path, done: list[Step]) -> None:
    """Let the records of this run replace the committed ones."""
    for step in done:
        if step.kept is None:
            continue
        made = out / step.made
        if made.is_dir():
            for name in ("records.jsonl", "fields"):
                _replace(made / name, step.kept / name)
        else:
            _replace(made, step.kept)


def _replace(made: Path, kept: Path) -> None:
    kept.parent.mkdir(parents=True, exist_ok=True)
    if made.is_dir():
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(made, kept)
    elif made.is_file():
        shutil.copyfile(made, kept)


def write_pages() -> None:
    """Write every page from the records."""
    for page in PAGES:
        subprocess.run([sys.executable, "-m", f"benchmarks.{page}"], cwd=ROOT, check=True)


def _folder() -> Path:
    """Return the folder of a run with the present sources."""
    now = source()
    name = f"{now['commit']}-{now['changes']}" if now["dirty"] else now["commit"] or now["changes"]
    return ROOT / "build" / "published" / str(name)


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Run everything that the pages show, on one commit, and write the pages."
    )
    parser.add_argument("--out", type=Path, default=_folder(), help="folder of the run")
    parser.add_argument(
        "--all", action="store_true", help="with the steps that time nothing: quality, robustness, audits"
    )
    parser.add_argument("--dirty", action="store_true", help="run although sources differ from their commit: a trial")
    parser.add_argument("--list", action="store_true", help="show the steps, run nothing")
    asked = parser.parse_args()
    todo = [*steps(asked.out), *(beside(asked.out) if asked.all else [])]
    if asked.list:
        done = finished(asked.out)
        for step in todo:
            minutes = f"{step.minutes:g} min" if step.minutes else ""
            sys.stdout.write(f"{step.name:24} {minutes:8} {'done' if step.name in done else ''}\n")
        return
    if source()["dirty"] and not asked.dirty:
        raise SystemExit(
            "published expects sources as they are committed, so that every figure can be traced; got changes in src/snapfm. "
            "Commit them, or add --dirty for a trial, which replaces no record."
        )
    run(asked.out, todo)
    if not source()["dirty"]:
        keep(asked.out, todo)
        write_pages()


if __name__ == "__main__":
    main()
