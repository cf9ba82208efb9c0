"""quality.md: the tables of a run as Markdown, from records alone."""

from __future__ import annotations

from collections.abc import Mapping

from snapfm.quality.record import Cell
from snapfm.quality.suite import Suite, TaskEntry
from snapfm.quality.tables import Entry, Table, summary, task_table, verdicts

Cells = Mapping[tuple[str, str], Cell]

ABOUT = (
    "MMSE / SMSE: mean squared error of the per-point mean and of the per-point standard deviation against simulated truth under "
    "the same conditions, in units of 1e-2; lower is better, the lowest MMSE of a task is bold. Rows named *published* are those "
    "of the PCFM paper, of other models and other data: compare their order, not their size. *True fields* are as many fields "
    "drawn independently from the truth: what a perfect sampler would score."
)
COLUMNS = (
    "Scores have 95 % bootstrap intervals over samples. *error* is the mean over samples of ‖R‖₂ of a law, in float64; "
    "*largest violation* the worst single row of any sample. *certified*: samples whose last projection is proven lawful and "
    "nearest; – for samplers that certify nothing. *like true fields*: texture, neighbor by neighbor and scale by scale. "
    "*time* is of all samples together: network + projection."
)


def text(suite: Suite, cells: Cells) -> str:
    """Write the page of one run."""
    return "\n\n".join([f"# Sample quality: {suite.title}", about(suite, cells), *sections(suite, cells)]) + "\n"


def about(suite: Suite, cells: Cells) -> str:
    """Say what was run, on what."""
    counts = f"{suite.samples} samples, {suite.steps} flow steps unless a row says otherwise, {suite.truth} true fields"
    some = next(iter(cells.values()), None)
    where = ""
    if some is not None:
        versions = ", ".join(f"{name} {version}" for name, version in some.machine["versions"].items())
        where = f" On {some.machine['cores']} cores ({some.machine['processor']}), no GPU; {versions}."
    return (
        f"Suite `{suite.name}`: {counts}, seed {suite.seed}, fields in {suite.dtype}, projector's tolerance {suite.tolerance:g}."
        f"{where} Repeat it with `snapfm quality {suite.name} --out DIR`."
    )


def sections(suite: Suite, cells: Cells, level: int = 2) -> list[str]:
    """Write summary and one table per task, with heads of a level."""
    mark = "#" * level
    parts = [
        f"{mark} Summary",
        ABOUT,
        markdown(summary(suite, cells)),
        *verdicts(suite, cells),
        f"{mark} Tasks",
        COLUMNS,
    ]
    for task in suite.tasks:
        what = f"{named(task)}; model {task.model}; {task.truth or suite.truth} true fields."
        parts += [f"{mark}# {task.title}", what, markdown(task_table(suite, task, cells))]
    return parts


def named(task: TaskEntry) -> str:
    """Name the problem of a task with its settings."""
    settings = ", ".join(f"{key}={value}" for key, value in task.settings.items())
    return task.problem + (f" with {settings}" if settings else "")


def markdown(table: Table) -> str:
    """Write a table; entries that are first are bold."""
    lines = [list(table.heads), ["---"] + ["---:"] * (len(table.heads) - 1)]
    lines += [[_entry(one) for one in row] for row in table.rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _entry(one: Entry) -> str:
    words = f"**{_safe(one.words)}**" if one.first else _safe(one.words)
    return f"{words} ({_safe(one.detail)})" if one.detail else words


def _safe(words: str) -> str:
    return words.replace("|", "\\|").replace("\n", " ")
