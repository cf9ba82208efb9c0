"""`python -m benchmarks.published`: run every published timing in one go on one commit, and write the pages.

Steps run one after the other. The same command continues after a stop: finished steps are left out, and a suite continues after
its last finished cell. Suites run into a folder of the present sources, build/published/COMMIT; at the end their records replace
the committed ones, all or none, so that no page mixes commits. With other sources everything begins anew. A suite that fails is
missing on the pages, and the command ends with code 1. `--list` shows the steps with their minutes.

`--trial` shows in minutes that the whole chain works: the first case of every suite, one repeat, short budgets. Its records and
pages stay in its folder.
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
from benchmarks.tables_page import RUNS, SUITES, wanted
from snapfm_bench.machine import machine, source
from snapfm_bench.record import RECORDS, append
from snapfm_bench.suites.projection import load_suite

LIMIT = 75  # minutes of all timed steps together
# Estimates for two idle cores from the seconds of earlier records: of a cell that has none, those of the method most like it, or
# its whole budget. A run writes what it took to steps.jsonl.
MINUTES = {"paper": 40, "scaling-constraints": 9, "scaling-samples": 7, "scaling-grid": 8}
TRIAL = {"repeats": 1, "walk_repeats": 1, "warmup": 1, "budget": 30, "walk_budget": 60}
QUALITY = {"plain": "quality_plain", "plain-steps": "quality_plain_steps", "paper": "quality", "steps": "quality_steps"}
MICRO = ("audit", "inequalities", "any_law")
PAGES = (
    "tables_page", "laws_page", "cutest_page", "quality_page", "exact_page", "inequalities_page", "audit_page",
    "many_machines_page",
)  # fmt: skip
_MICRO_RECORDS = ROOT / "bench" / "records"
_DONE = "steps.jsonl"


@dataclass(frozen=True)
class Step:
    """One command, the folder or file that it writes, and its place among the committed records."""

    name: str
    words: tuple[str, ...]  # after `python`
    made: Path | None = None
    kept: Path | None = None


def steps(out: Path, trial: bool = False) -> list[Step]:
    """List the timed suites in order."""
    found = []
    for name in SUITES:
        words: tuple[str, ...] = ("-m", "snapfm", "bench", name, "--out", str(out / name))
        if trial:
            changes = [word for key, value in TRIAL.items() for word in ("--set", f"{key}={value}")]
            words = (*words, "--only", load_suite(name).cases[0].name, *changes)
        found.append(Step(f"bench {name}", words, out / name, RUNS / name))
    return found


def beside(out: Path) -> list[Step]:
    """List the steps of the pages that are no part of the timed tables: quality, audits, any law."""
    found = [
        Step(
            f"quality {name}", ("-m", "snapfm", "quality", name, "--out", str(out / f"quality-{name}")),
            out / f"quality-{name}" / "records.jsonl", _MICRO_RECORDS / f"{record}.jsonl",
        )
        for name, record in QUALITY.items()
    ]  # fmt: skip
    exact = ("-m", "snapfm", "quality", "exact", "--out", str(out / "exact"))
    found.append(Step("exact", exact, out / "exact" / "records.jsonl", _MICRO_RECORDS / "exact.jsonl"))
    return [*found, *(Step(case, ("-m", "benchmarks", case)) for case in MICRO)]


def finished(out: Path) -> set[str]:
    """Return the names of the steps that these sources have done."""
    file, now = out / _DONE, source()
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    return {one["step"] for one in map(json.loads, lines) if one["source"] == now}


def run(out: Path, todo: list[Step]) -> list[str]:
    """Run the steps that these sources have not done; return the names of those that failed.

    Code 1 of a suite is no failure of the step: it says that our own method failed on a case, which the records hold.
    """
    done, failed = finished(out), []
    for step in todo:
        if step.name in done:
            continue
        sys.stdout.write(f"{step.name} …\n")
        sys.stdout.flush()
        began = time.monotonic()
        code = subprocess.run([sys.executable, *step.words], cwd=ROOT).returncode
        if code not in ((0,) if step.made is None else (0, 1)):
            failed.append(step.name)
            continue
        took = time.monotonic() - began
        append(
            out / _DONE, {"step": step.name, "seconds": took, "code": code, "source": source(), "machine": machine()}
        )
    return failed


def sources(done: list[Step]) -> set[str]:
    """Return the sources that the records of the timed suites name: those of one commit, unless one was made meanwhile."""
    files = [step.made / RECORDS for step in done if step.made is not None and step.kept == RUNS / step.made.name]
    heads = (file.read_text(encoding="utf-8").partition("\n")[0] for file in files if file.is_file())
    return {json.dumps(json.loads(head)["source"]) for head in heads}


def keep(done: list[Step]) -> None:
    """Let the records of this run replace the committed ones; a suite without any is removed there, too."""
    if len(found := sources(done)) > 1:
        raise SystemExit(
            f"published expects all suites to be of one commit; got records of {', '.join(sorted(found))}. Nothing was replaced. "
            "Remove the folder of the run and begin again, without a commit in between."
        )
    for step in done:
        if step.made is None or step.kept is None:
            continue
        if step.kept.parent == RUNS:
            shutil.rmtree(step.kept, ignore_errors=True)
            for name in (RECORDS, "fields"):
                _copy(step.made / name, step.kept / name)
        else:
            _copy(step.made, step.kept)


def _copy(made: Path, kept: Path) -> None:
    if made.is_dir():
        shutil.copytree(made, kept)
    elif made.is_file():
        kept.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(made, kept)


def write_pages() -> list[str]:
    """Write every page from the committed records; return the names of those that could not be written."""
    return [
        page for page in PAGES if subprocess.run([sys.executable, "-m", f"benchmarks.{page}"], cwd=ROOT).returncode != 0
    ]


def write_trial(out: Path) -> list[str]:
    """Write the pages of the timed tables from a trial's records into its own folder."""
    for file, words in wanted(out).items():
        (out / "pages").mkdir(exist_ok=True)
        (out / "pages" / file.name).write_text(words, encoding="utf-8")
        sys.stdout.write(f"wrote {out / 'pages' / file.name}\n")
    return []


def folder(trial: bool) -> Path:
    """Return the folder of a run with the present sources."""
    now = source()
    name = f"{now['commit']}-{now['changes']}" if now["dirty"] else now["commit"] or now["changes"]
    return ROOT / "build" / ("trial" if trial else "published") / str(name)


def main() -> None:
    parser = argparse.ArgumentParser(description="Run every published timing on one commit, and write the pages.")
    parser.add_argument("--out", type=Path, help="folder of the run (default: build/published/COMMIT)")
    parser.add_argument(
        "--trial", action="store_true", help="try the whole chain in minutes; replaces no record and no page"
    )
    parser.add_argument("--all", action="store_true", help="also the pages apart: quality, audits, any law")
    parser.add_argument("--list", action="store_true", help="show the steps, run nothing")
    asked = parser.parse_args()
    out = (asked.out or folder(asked.trial)).absolute()
    todo = [*steps(out, asked.trial), *(beside(out) if asked.all else [])]
    if asked.list:
        done = finished(out)
        for step in todo:
            minutes = MINUTES.get(step.name.removeprefix("bench "))
            sys.stdout.write(
                f"{step.name:26} {f'{minutes} min' if minutes else '':8} {'done' if step.name in done else ''}\n"
            )
        return
    if source()["dirty"] and not asked.trial:
        raise SystemExit(
            "published expects sources as they are committed, so that every figure can be traced; got changes in src/snapfm. "
            "Commit them, or add --trial, which replaces no record."
        )
    failed = run(out, todo)
    if asked.trial:
        failed += write_trial(out)
    else:
        keep(todo)
        failed += write_pages()
    if failed:
        raise SystemExit(
            f"published expects every step and page to end well; got failures of {', '.join(failed)}. What there is has been "
            "written; the same command runs only what is missing."
        )


if __name__ == "__main__":
    main()
