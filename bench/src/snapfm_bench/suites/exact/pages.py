"""Tables of a run of exact cases, from records alone: for the terminal and as Markdown."""

from __future__ import annotations

from snapfm.text import seconds
from snapfm_bench.pages.document import Entry, Table, markdown, table
from snapfm_bench.suites.exact.case import Scores
from snapfm_bench.suites.exact.scores import RATIO
from snapfm_bench.suites.exact.suite import SAMPLERS, Cells, ExactCell, ExactSuite, cases
from snapfm_bench.text import NOTHING, size

FAIR = 2.0  # a sampler within this multiple of chance is taken as right
ABOUT = (
    "Velocities are exact, so every error is the sampler's. Shown is the largest score of each case in units of chance, which "
    f"is the mean score of as many exact draws. Up to {FAIR:g}× is bold."
)
COLUMNS = (
    "mean: error of the mean in units of the true spread. spread: relative error of the spread. ratio: ratio of the spreads, 1 "
    "is right. modes: total variation distance of the mode weights. variation: total variation distance of a histogram along "
    "the curve. × chance: the largest score in units of chance. worth: the number of equally weighted samples. Errors of mean "
    "and spread are root mean squares over the points that the laws leave free."
)


def summary(suite: ExactSuite, cells: Cells, curved: bool | None = None) -> Table:
    """Tabulate the largest score in units of chance: samplers and steps downwards, cases across.

    `curved` chooses the cases with nonlinear laws, or those without: all are too wide for a terminal.
    """
    shown = [case for case in cases().values() if curved in (None, case.curved)]
    shown = [case for case in shown if any(key[0] == case.name for key in cells)]
    rows = [
        (f"{sampler}, {steps}", *(_excess(cells.get((case.name, sampler, str(steps)))) for case in shown))
        for sampler in SAMPLERS
        for steps in suite.steps
        if any(key[1:] == (sampler, str(steps)) for key in cells)
    ]
    return table(("sampler, steps", *(case.title for case in shown)), rows)


def case_table(name: str, cells: Cells) -> Table:
    """Tabulate all scores of one case."""
    found = [cell for cell in cells.values() if cell.case == name]
    chance = found[0].chance
    heads = ("sampler", "steps", *chance, "× chance", "certified", "worth", "calls", "time")
    rows: list[tuple[str | Entry, ...]] = [
        (
            cell.sampler, str(cell.steps), *_figures(cell.scores, chance), _excess(cell), f"{cell.certified}/{cell.count}",
            f"{cell.effective:.0f}", str(cell.calls), seconds(cell.seconds),
        )
        for cell in found
    ]  # fmt: skip
    rows.insert(0, ("Chance", NOTHING, *_figures(chance, chance)))
    return table(heads, rows)


def text(suite: ExactSuite, cells: Cells) -> str:
    """Write the Markdown page of one run."""
    parts = ["# Samplers on exact cases", _about(suite, cells), "## Summary", ABOUT, markdown(summary(suite, cells))]
    parts += ["## Cases", COLUMNS]
    for case in cases().values():
        if any(key[0] == case.name for key in cells):
            parts += [f"### {case.title}", markdown(case_table(case.name, cells))]
    return "\n\n".join(parts) + "\n"


def _about(suite: ExactSuite, cells: Cells) -> str:
    where = ""
    for cell in list(cells.values())[:1]:
        where = f" On {cell.machine['cores']} cores ({cell.machine['processor']}); time is processor time."
    steps = ",".join(map(str, suite.steps))
    return (
        f"{suite.count} samples, seed {suite.seed}; Conditional estimates how fields vary from {suite.fields} fields.{where} "
        f"Repeat it with `snapfm quality exact --count {suite.count} --steps {steps} --out DIR`."
    )


def _excess(cell: ExactCell | None) -> str | Entry:
    return NOTHING if cell is None else Entry(f"{cell.excess:.1f}×", first=cell.excess <= FAIR)


def _figures(scores: Scores, like: Scores) -> list[str]:
    return [f"{scores[name]:.2f}" if name == RATIO else size(scores[name]) for name in like]
