"""quality.md and index.html: summary, pictures and tables of a run, from records alone."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from snapfm.evidence.page import html
from snapfm.evidence.page.document import Block, Picture, Section, Words
from snapfm.evidence.page.markdown import markdown
from snapfm.evidence.quality.record import Cells
from snapfm.evidence.quality.suite import Suite, Task
from snapfm.evidence.quality.tables import summary, task_table, verdicts
from snapfm.evidence.text import settings_text

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
_NOTE = """\
Every figure is taken from <code>records.jsonl</code>, written next to this page by the same run. Repeat it with
<code>snapfm quality {name} --out DIR</code>."""


def text(suite: Suite, cells: Cells) -> str:
    """Write the Markdown page of one run."""
    return "\n\n".join([f"# Sample quality: {suite.title}", about(suite, cells), *sections(suite, cells)]) + "\n"


def about(suite: Suite, cells: Cells) -> str:
    """Say what was run, on what."""
    counts = f"{suite.samples} samples, {suite.steps} flow steps unless a row says otherwise, {suite.truth} true fields"
    some = next(iter(cells.values()), None)
    where = ""
    if some is not None:
        where = f" On {some.machine['cores']} cores ({some.machine['processor']}), no GPU; {_versions(some.machine)}."
    return (
        f"Suite `{suite.name}`: {counts}, seed {suite.seed}, fields in {suite.dtype}, projector's tolerance {suite.tolerance:g}."
        f"{where} Repeat it with `snapfm quality {suite.name} --out DIR`."
    )


def sections(suite: Suite, cells: Cells) -> list[str]:
    """Write summary and one table per task as Markdown."""
    parts = ["## Summary", ABOUT, markdown(summary(suite, cells)), *verdicts(suite, cells), "## Tasks", COLUMNS]
    for task in suite.tasks:
        what = f"{_problem(task)}; model {task.model}; {task.truth or suite.truth} true fields."
        parts += [f"### {task.title}", what, markdown(task_table(suite, task, cells))]
    return parts


def page(suite: Suite, cells: Cells, pictures: Mapping[str, bytes], curve: bytes | None = None) -> str:
    """Write the HTML page; `pictures` are PNG bytes by task, `curve` those of scores against steps."""
    first: list[Block] = [Words(ABOUT), summary(suite, cells)]
    if curve is not None:
        first.append(
            _strip(curve, "Scores against flow steps", "", "bars: 95 % intervals; dashed: as many true fields")
        )
    tasks = [Section(task.title, tuple(_task(suite, task, cells, pictures.get(task.name)))) for task in suite.tasks]
    found = [Section("Summary", tuple(first)), *tasks, Section("What the columns say", (Words(COLUMNS),))]
    head = "\n".join(html.paragraph(Words(words, lead=True)) for words in verdicts(suite, cells))
    name, note = f"sample quality, {suite.title}", _NOTE.format(name=escape(suite.name))
    return html.page(name, "sample quality", suite.title, head, found, _made(suite, cells), note, ("figures.css",))


def _task(suite: Suite, task: Task, cells: Cells, picture: bytes | None) -> list[Block]:
    problem = task.build()
    blocks: list[Block] = [
        Words(problem.summary.capitalize()),
        Words(f"{_problem(task)}; model {task.model}", note=True),
    ]
    if picture is not None:
        when = " at the last time" if len(problem.grid.shape) > 2 else ""
        caption, aside = f"Mean and spread of the fields{when}", "each row on one color scale, set by the truth"
        blocks.append(_strip(picture, caption, f"{task.title}: mean and spread of truth and samplers", aside))
    return [*blocks, task_table(suite, task, cells)]


def _strip(png: bytes, caption: str, description: str, aside: str) -> Picture:
    return Picture(html.image(png, description or caption), caption, aside, wide=True, look="strip")


def _made(suite: Suite, cells: Cells) -> list[tuple[str, str]]:
    samplers = (f"{one.title}: {one.kind}({settings_text(one.settings)})" for one in suite.samplers)
    made = [
        ("suite", suite.name),
        (
            "samples",
            f"{suite.samples} unless a row says otherwise, {suite.steps} flow steps, seed {suite.seed}, {suite.dtype}",
        ),
        ("truth", ", ".join(f"{one.title} {one.truth or suite.truth}" for one in suite.tasks) + " simulated fields"),
        ("laws", f"projector's tolerance {suite.tolerance:g}; judged in float64"),
        ("samplers", "; ".join(samplers)),
        ("budget", f"{suite.budget:g} s a cell; past it DNF"),
    ]
    for some in list(cells.values())[:1]:
        machine = some.machine
        words = f"CPU ({machine['processor']}), {machine['cores']} cores, {machine['threads']} threads"
        made += [("machine", words), ("versions", _versions(machine))]
    return made


def _problem(task: Task) -> str:
    """Name the problem of a task with its settings."""
    settings = settings_text(task.settings)
    return task.problem + (f" with {settings}" if settings else "")


def _versions(machine: Mapping[str, Mapping[str, str]]) -> str:
    return ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
