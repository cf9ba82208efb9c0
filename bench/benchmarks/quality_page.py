"""`python -m benchmarks.quality_page`: write docs/quality.md from the records of the suites, ordinary models first.

The records are the records.jsonl of `snapfm quality` with `plain`, `plain-steps`, `paper` and `steps`, copied to
bench/records/ under the names below. A suite without a record is left out.
"""

from __future__ import annotations

import sys
from math import exp, log
from statistics import fmean

import torch

from benchmarks.page import DOCS, main, told_sources
from benchmarks.record import RECORDS
from snapfm.seeds import stream
from snapfm_bench.pages.document import Table, markdown, table
from snapfm_bench.problems import navier_stokes, problem
from snapfm_bench.record import read
from snapfm_bench.suites.quality.pages import about, sections, summary
from snapfm_bench.suites.quality.suite import Interval, QualityCell, QualitySuite

PLAIN, PLAIN_STEPS, PAPER, STEPS = "quality_plain", "quality_plain_steps", "quality", "quality_steps"
SCORES = {"mmse": "MMSE", "smse": "SMSE", "crps": "CRPS"}
_STATES = 64  # training states behind their typical size

Cells = dict[tuple[str, str], QualityCell]


def page() -> str:
    """Write the page; every figure in it comes from a record or from the problem itself."""
    suite, cells = _records(PAPER)
    few, by_steps = _records(STEPS)
    return "\n\n".join(
        [
            "# How good samples are",
            "Written by `python -m benchmarks.quality_page` from the records of these names in `bench/records`; not edited by "
            f"hand. {told_sources({case: next(iter(_records(case)[1].values())).machine for case in _cases()})} Times of "
            "samplers include compilation where it happened, and other load: do not compare them.",
            *_ordinary(),
            "# Models trained for laws",
            "These models were trained for constrained sampling: noise was paired with fields, slices were imposed, and the "
            "models were shown their own answers. That is not zero-shot, and Conditional does not apply: given a state, their "
            "fields vary differently.",
            about(suite, cells),
            *sections(suite, cells),
            "## Who comes first, and why",
            markdown(_orders(suite, cells)),
            *_reasons(suite, cells),
            "## How many steps",
            about(few, by_steps),
            "MMSE / SMSE of PCFM, in units of 1e-2; the lowest MMSE of a task is bold.",
            markdown(summary(few, by_steps)),
            _fewest(few, by_steps),
            _chosen(few, by_steps),
        ]
    ) + "\n"  # fmt: skip


def _cases() -> list[str]:
    return [case for case in (PLAIN, PLAIN_STEPS, PAPER, STEPS) if (RECORDS / f"{case}.jsonl").is_file()]


def _ordinary() -> list[str]:
    """Write what ordinary models give under every sampler; nothing without a record."""
    if not (RECORDS / f"{PLAIN}.jsonl").is_file():
        return []
    suite, cells = _records(PLAIN)
    told = [
        "# Ordinary models",
        "Trained on fields and independent noise only: training knew no laws.",
        about(suite, cells),
        "## First in which score",
        "The lowest score of each task, and the second lowest, with 95 % intervals; *apart* if the intervals do not overlap.",
        markdown(firsts(suite, cells)),
        *sections(suite, cells),
    ]
    if (RECORDS / f"{PLAIN_STEPS}.jsonl").is_file():
        few, by_steps = _records(PLAIN_STEPS)
        words = "MMSE / SMSE of Conditional, in units of 1e-2; the lowest MMSE of a task is bold."
        told += ["## Conditional against steps", about(few, by_steps), words, markdown(summary(few, by_steps))]
    return told


def firsts(suite: QualitySuite, cells: Cells) -> Table:
    """Tabulate for every task and score who is first and who second, and whether chance could have done it."""
    rows = []
    for task in suite.tasks:
        for name, title in SCORES.items():
            found = [(one.title, getattr(cells.get((task.name, one.name)), name, None)) for one in suite.samplers]
            scored = [(title, score) for title, score in found if score is not None and score.value is not None]
            order = sorted(scored, key=lambda one: one[1].value)[:2]
            if len(order) == 2:
                (_, first), (_, second) = order
                apart = None not in (first.high, second.low) and first.high < second.low
                rows.append((task.title, title, *(_named(*one) for one in order), "apart" if apart else "they overlap"))
    return table(("task", "score", "first", "second", "intervals"), rows)


def _named(title: str, score: Interval) -> str:
    return f"{title} {score.value:.3g} ({score.low:.3g} to {score.high:.3g})"


def _records(case: str) -> tuple[QualitySuite, Cells]:
    suite, cells = read(RECORDS / f"{case}.jsonl", QualitySuite, QualityCell)
    assert suite is not None  # committed records are never empty
    return suite, cells


def _ordered(suite: QualitySuite, cells: Cells, task: str, name: str) -> list[tuple[str, float]]:
    """Give titles and scores of a task's samplers, best first; those without a score are left out."""
    found = [(sampler.title, getattr(cells.get((task, sampler.name)), name, None)) for sampler in suite.samplers]
    scored = [(title, score.value) for title, score in found if score is not None and score.value is not None]
    return sorted(scored, key=lambda one: one[1])


def _orders(suite: QualitySuite, cells: Cells) -> Table:
    rows = []
    for task in suite.tasks:
        orders = [_ordered(suite, cells, task.name, name) for name in ("mmse", "smse")]
        rows.append((task.title, *(", ".join(title for title, _ in order) or "–" for order in orders)))
    return table(("task", "by MMSE, best first", "by SMSE, best first"), rows)


def _reasons(suite: QualitySuite, cells: Cells) -> list[str]:
    asked = float(problem("navier-stokes-ic-mass").params(1)["u0"].std())
    states = torch.stack([navier_stokes.random_state(stream(0, i), navier_stokes.RESOLUTION) for i in range(_STATES)])
    return [
        *_losses(suite, cells),
        *_close(suite, cells),
        "An earlier run of this suite had 128 samples, 1024 true fields and 8 samples of D-Flow. There PCFM was first in MMSE on "
        "one task, Navier–Stokes, and on the others its interval contained the best score. The numbers of samples and fields "
        "were raised after seeing that, because chance was as large as the differences; models, samplers, steps and seed are "
        "the same.",
        "**Navier–Stokes** asks every sample to start as sin(2πy), as the release does, with a standard deviation of "
        f"{asked:.2f}; the states that the model was trained on have {float(states.std()):.2f}. The model has never seen such "
        "a state, so what follows from it is a guess of the network, under every sampler.",
        "**Projected** imposes the laws on the noisy state itself, so the network sees an initial slice without noise from "
        "the first step on. PCFM shows it the slice mixed with the original noise, τ·u0 + (1 − τ)·noise, and shoots from that "
        "same noise at every step. The same noise counts as evidence again and again, so mean and spread drift as the number "
        "of steps grows (below).",
        "To improve the spread, noise was paired with fields within what a law fixes, and the network was shown its own "
        "answers in training. The models of reaction–diffusion and Burgers were trained this way; for heat it did not lower "
        "the MMSE at the best number of steps (a trial without a record), so its model was kept.",
    ]  # fmt: skip


def _losses(suite: QualitySuite, cells: Cells) -> list[str]:
    """Write for every task and score which samplers are better than PCFM and by how much."""
    told = []
    for task in suite.tasks:
        for name in ("mmse", "smse"):
            order = _ordered(suite, cells, task.name, name)
            own = dict(order).get("PCFM")
            if own is not None and order[0][0] != "PCFM":
                ahead = ", ".join(f"{title} {1e2 * score:.3g}" for title, score in order if score < own)
                cell = cells[task.name, "pcfm"]
                score = cell.mmse if name == "mmse" else cell.smse
                assert score is not None  # it was ordered by it
                within = score.low is not None and score.low <= order[0][1]
                note = (
                    "its interval contains the best score" if within else "its interval does not contain the best score"
                )
                told.append(f"- {task.title}, {name.upper()}: {ahead}; PCFM {1e2 * own:.3g} (1e-2); {note}.")
    return ["Ahead of PCFM:\n\n" + "\n".join(told)] if told else []


def _close(suite: QualitySuite, cells: Cells) -> list[str]:
    """Name the tasks where PCFM is first and might not be with other samples: its interval contains the second score."""
    told = []
    for task in suite.tasks:
        (first, _), (second, score), *_ = _ordered(suite, cells, task.name, "mmse")
        own = cells[task.name, "pcfm"].mmse
        if first == "PCFM" and own is not None and own.high is not None and own.high >= score:
            told.append(f"{task.title} ({second} {1e2 * score:.3g}, PCFM up to {1e2 * own.high:.3g})")
    return [f"First in MMSE, but by no more than chance could explain, in 1e-2: {', '.join(told)}."] if told else []


def _chosen(suite: QualitySuite, cells: Cells) -> str:
    """Write which number of steps is best over all tasks: the least mean logarithm of both scores."""
    means = {}
    for sampler in suite.samplers:
        found = [cells.get((task.name, sampler.name)) for task in suite.tasks]
        scores = [score.value for cell in found if cell for score in (cell.mmse, cell.smse) if score and score.value]
        if len(scores) == 2 * len(suite.tasks):
            means[sampler.title] = exp(fmean(log(score) for score in scores))
    told = ", ".join(f"{title} {1e2 * mean:.3g}" for title, mean in means.items())
    best = min(means, key=lambda title: means[title])
    return f"Geometric mean of both scores over all tasks, in 1e-2: {told}. The lowest is that of {best}, the default."


def _fewest(suite: QualitySuite, cells: Cells) -> str:
    told = []
    for task in suite.tasks:
        order = _ordered(suite, cells, task.name, "mmse")
        if order:
            told.append(f"{task.title} {order[0][0]}")
    return f"Lowest MMSE: {', '.join(told)}." if told else "No figures yet."


if __name__ == "__main__":
    sys.exit(main({DOCS / "quality.md": page()}))
