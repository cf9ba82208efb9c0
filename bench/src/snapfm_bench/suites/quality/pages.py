"""quality.md and index.html: summary, pictures and tables of a run, from records alone.

Tables and sentences are the same in Markdown, HTML and the terminal. Scores of mean and spread are in units of 1e-2, as
published ones are; constraint errors are in the units of their laws.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from snapfm.text import scientific, seconds
from snapfm_bench import published
from snapfm_bench.pages import document as doc
from snapfm_bench.pages import html
from snapfm_bench.pages.document import NOT_YET, PUBLISHED, Entry, Table, Words, markdown, table
from snapfm_bench.record import CellState
from snapfm_bench.suites.quality.score_tables import SCORES, score_table, step_table
from snapfm_bench.suites.quality.suite import (
    REFERENCES,
    TRUE_FIELDS,
    Cells,
    Interval,
    QualityCell,
    QualitySuite,
    QualityTask,
    stored_rows,
)
from snapfm_bench.text import NOTHING, settings_text, size

ABOUT = (
    "MMSE / SMSE: mean squared error of the per-point mean and of the per-point standard deviation, compared with simulated "
    "truth under the same conditions, in units of 1e-2. Lower is better; the lowest MMSE of a task is bold. Rows named "
    "*published* are those of the PCFM paper, with other models and other data: compare their order, not their size. *True "
    "fields* are as many fields drawn independently from the truth: the score of a perfect sampler."
)
COLUMNS = (
    "Scores have 95 % bootstrap intervals over samples. *error*: the mean over samples of ‖R‖₂ of a law, in float64. "
    "*largest violation*: the worst single row of any sample. *certified*: samples whose last projection is lawful and "
    "stationary; – for samplers that certify nothing. *like true fields*: whether neighboring points correlate, and scales have "
    "power, as in true fields. *time*: all samples together, network + projection."
)
_NOTE = """\
Every figure is taken from <code>records.jsonl</code>, written next to this page by the same run. Repeat it with
<code>snapfm quality {name} --out DIR</code>."""

PCFM = "pcfm"
_NOT_FINITE = "not finite"
_LARGE = 1e2  # values from here on are written with an exponent
_ROUNDING = 1e-24  # of squares of float64 numbers: the mean against itself

Row = tuple[str | Entry, ...]


def summary(suite: QualitySuite, cells: Cells) -> Table:
    """Tabulate MMSE / SMSE of all samplers and tasks in the form of the published table, with its figures."""
    rows: list[Row] = []
    for task in suite.tasks:
        ours, given = _row_of(suite, task, cells), published.QUALITY.get(task.name, {})
        best = _best(ours)
        entries = [Entry(_pair(cell), first=cell is not None and cell is best) for cell in ours]
        rows.append((f"{task.title}, here", *entries, _pair(cells.get((task.name, TRUE_FIELDS)))))
        if any(sampler.name in given for sampler in suite.samplers):
            pairs = (given.get(sampler.name) for sampler in suite.samplers)
            figures = (NOTHING if pair is None else f"{pair[0]:g} / {pair[1]:g}" for pair in pairs)
            rows.append((f"{task.title}{PUBLISHED}", *figures))
    return table(("task", *(sampler.title for sampler in suite.samplers), REFERENCES[TRUE_FIELDS]), rows)


def task_table(suite: QualitySuite, task: QualityTask, cells: Cells) -> Table:
    """Tabulate all that was measured on one task."""
    judged = next((cell.laws for (name, _), cell in cells.items() if name == task.name and cell.laws), ())
    laws = [law.law for law in judged] or [law.name for law in task.build().laws]
    heads = (
        "sampler", "samples", "steps", "MMSE, 1e-2", "SMSE, 1e-2", *(f"error: {law}" for law in laws), "largest violation",
        "certified", "like true fields", "values", "network calls", "time",
    )  # fmt: skip
    best = _best(_row_of(suite, task, cells))
    shown = suite.references | {sampler.name: sampler.title for sampler in suite.samplers}
    shown |= {name: title for name, title in stored_rows(cells).items() if (task.name, name) in cells}
    return table(heads, [_row(title, cells.get((task.name, name)), laws, best) for name, title in shown.items()])


def verdicts(suite: QualitySuite, cells: Cells) -> list[str]:
    """Write in sentences how PCFM compares; empty for a suite without it."""
    if PCFM not in {sampler.name for sampler in suite.samplers}:
        return []
    done = {
        task.title: (cell, _best(_row_of(suite, task, cells)) is cell)
        for task in suite.tasks
        if (cell := cells.get((task.name, PCFM))) is not None and cell.status is CellState.DONE
    }
    first = [title for title, (_, best) in done.items() if best]
    second = [title for title, (_, best) in done.items() if not best]
    absent = [task.title for task in suite.tasks if task.title not in done]
    sentences = []
    if done:
        found = [cell for cell, _ in done.values()]
        worst = max((law.worst_row or 0.0) for cell in found for law in cell.laws)
        sentences.append(
            f"PCFM is first in MMSE on {len(first)} of {len(done)} tasks{': ' if first else ''}{', '.join(first)}."
        )
        sentences.append(
            f"Its largest violation, over all rows, laws and samples, is {scientific(worst)}; "
            f"{sum(cell.converged or 0 for cell in found)} of {sum(cell.samples for cell in found)} samples are certified."
        )
    if second:
        sentences.append(f"It is not first on {', '.join(second)}.")
    if absent:
        sentences.append(f"Without a figure for it: {', '.join(absent)}.")
    return sentences


def _row(title: str, cell: QualityCell | None, laws: list[str], best: QualityCell | None) -> Row:
    if cell is None:
        return title, NOTHING, NOTHING, NOT_YET
    start = title, str(cell.samples), NOTHING if cell.steps is None else str(cell.steps)
    if cell.status is CellState.DNF:
        detail = f"after {seconds(cell.seconds['total'])}, step {cell.steps_done} of {cell.steps}"
        return *start, Entry("DNF", detail)
    if cell.status is not CellState.DONE:
        return *start, Entry(str(cell.status), cell.error or "")
    errors = {law.law: size(law.error.value, _NOT_FINITE) for law in cell.laws}
    worst = [law.worst_row for law in cell.laws]
    largest = None if None in worst else max((value or 0.0) for value in worst)
    return (
        *start,
        _score(cell.mmse, cell is best),
        _score(cell.smse),
        *(errors.get(law, NOTHING) for law in laws),
        size(largest, _NOT_FINITE),
        NOTHING if cell.converged is None else f"{cell.converged} of {cell.samples}",
        _texture(cell),
        f"{cell.finite} of {cell.samples} finite"
        if cell.smallest is None or cell.largest is None
        else f"{_value(cell.smallest)} to {_value(cell.largest)}",
        NOTHING if cell.calls is None else str(cell.calls),
        _time(cell),
    )


def _row_of(suite: QualitySuite, task: QualityTask, cells: Cells) -> list[QualityCell | None]:
    return [cells.get((task.name, sampler.name)) for sampler in suite.samplers]


def _best(ours: Sequence[QualityCell | None]) -> QualityCell | None:
    scored = [cell for cell in ours if cell is not None and cell.mmse is not None and cell.mmse.value is not None]
    return min(scored, key=lambda cell: cell.mmse.value, default=None)  # type: ignore[union-attr, arg-type, return-value]


def _score(found: Interval | None, first: bool = False) -> Entry:
    """Write a score in units of 1e-2 with its interval."""
    if found is None or found.value is None or found.low is None or found.high is None:
        return Entry(_NOT_FINITE)
    return Entry(_figure(found.value), f"{_figure(found.low)} to {_figure(found.high)}", first)


def _pair(cell: QualityCell | None) -> str:
    if cell is None or cell.status is not CellState.DONE:
        return NOT_YET if cell is None else str(cell.status)
    if cell.mmse is None or cell.smse is None or cell.mmse.value is None or cell.smse.value is None:
        return _NOT_FINITE
    return f"{_figure(cell.mmse.value)} / {_figure(cell.smse.value)}"


def _figure(value: float) -> str:
    """Write three digits, in units of 1e-2."""
    return "0" if value <= _ROUNDING else f"{value / published.UNIT:.3g}"


def _texture(cell: QualityCell) -> Entry:
    if cell.texture is None:
        return Entry(NOTHING)
    if cell.texture.noise:
        return Entry("no", f"{cell.texture.noise} are noise")
    if cell.texture.oversized:
        return Entry("no", f"{cell.texture.oversized} of another size")
    return Entry("yes") if cell.texture.alike else Entry("no", "other scales")


def _value(value: float) -> str:
    return f"{value:.2f}" if abs(value) < _LARGE else scientific(value)


def _time(cell: QualityCell) -> Entry:
    if not cell.seconds:
        return Entry(NOTHING)
    parts = f"{cell.seconds['velocity']:.1f} + {cell.seconds['projection']:.1f} s"
    return Entry(seconds(cell.seconds["total"]), parts)


def text(suite: QualitySuite, cells: Cells) -> str:
    """Write the Markdown page of one run."""
    return "\n\n".join([f"# Sample quality: {suite.title}", about(suite, cells), *sections(suite, cells)]) + "\n"


def about(suite: QualitySuite, cells: Cells) -> str:
    """Write what was run, and on what machine."""
    counts = f"{suite.samples} samples, {suite.steps} flow steps unless a row says otherwise, {suite.truth} true fields"
    some = next(iter(cells.values()), None)
    where = ""
    if some is not None:
        where = f" On {some.machine['cores']} cores ({some.machine['processor']}), no GPU; {_versions(some.machine)}."
    return (
        f"QualitySuite `{suite.name}`: {counts}, seed {suite.seed}, fields in {suite.dtype}, tolerance {suite.tolerance:g}."
        f"{where} Repeat it with `snapfm quality {suite.name} --out DIR`."
    )


def sections(suite: QualitySuite, cells: Cells) -> list[str]:
    """Write summary and one table per task as Markdown."""
    parts = ["## Summary", ABOUT, markdown(summary(suite, cells)), *verdicts(suite, cells), "## Tasks", COLUMNS, SCORES]
    for task in suite.tasks:
        what = f"{_problem(task)}; model {task.model}; {task.truth or suite.truth} true fields."
        tables = (task_table(suite, task, cells), score_table(suite, task, cells), step_table(suite, task, cells))
        parts += [f"### {task.title}", what, *(markdown(one) for one in tables if one is not None)]
    return parts


def page(suite: QualitySuite, cells: Cells, pictures: Mapping[str, bytes], curve: bytes | None = None) -> str:
    """Write the HTML page; `pictures` are PNG bytes by task, `curve` those of scores against steps."""
    first: list[doc.Block] = [Words(ABOUT), summary(suite, cells)]
    if curve is not None:
        first.append(
            _strip(curve, "Scores against flow steps", "", "bars: 95 % intervals; dashed: as many true fields")
        )
    tasks = [doc.Section(task.title, tuple(_task(suite, task, cells, pictures.get(task.name)))) for task in suite.tasks]
    found = [
        doc.Section("Summary", tuple(first)),
        *tasks,
        doc.Section("What the columns say", (Words(COLUMNS), Words(SCORES))),
    ]
    head = "\n".join(html.paragraph(Words(words, lead=True)) for words in verdicts(suite, cells))
    name, note = f"sample quality, {suite.title}", _NOTE.format(name=escape(suite.name))
    return html.page(name, "sample quality", suite.title, head, found, _made(suite, cells), note, ("figures.css",))


def _task(suite: QualitySuite, task: QualityTask, cells: Cells, picture: bytes | None) -> list[doc.Block]:
    problem = task.build()
    blocks: list[doc.Block] = [
        Words(problem.summary.capitalize()),
        Words(f"{_problem(task)}; model {task.model}", note=True),
    ]
    if picture is not None:
        when = " at the last time" if len(problem.grid.shape) > 2 else ""
        caption, aside = f"Mean and spread of the fields{when}", "each row on one color scale, set by the truth"
        blocks.append(_strip(picture, caption, f"{task.title}: mean and spread of truth and samplers", aside))
    chosen = step_table(suite, task, cells)
    tables = (task_table(suite, task, cells), score_table(suite, task, cells), chosen)
    return [*blocks, *(one for one in tables if one is not None)]


def _strip(png: bytes, caption: str, description: str, aside: str) -> doc.Picture:
    return doc.Picture(html.image(png, description or caption), caption, aside, wide=True, look="strip")


def _made(suite: QualitySuite, cells: Cells) -> list[tuple[str, str]]:
    samplers = (f"{one.title}: {one.kind}({settings_text(one.settings)})" for one in suite.samplers)
    made = [
        ("suite", suite.name),
        (
            "samples",
            f"{suite.samples} unless a row says otherwise, {suite.steps} flow steps, seed {suite.seed}, {suite.dtype}",
        ),
        ("truth", ", ".join(f"{one.title} {one.truth or suite.truth}" for one in suite.tasks) + " simulated fields"),
        ("laws", f"tolerance {suite.tolerance:g}; judged in float64"),
        ("samplers", "; ".join(samplers)),
        ("budget", f"{suite.budget:g} s per cell; past it DNF"),
    ]
    for some in list(cells.values())[:1]:
        machine = some.machine
        words = f"CPU ({machine['processor']}), {machine['cores']} cores, {machine['threads']} threads"
        made += [("machine", words), ("versions", _versions(machine))]
    return made


def _problem(task: QualityTask) -> str:
    """Return the name of a task's problem with its settings."""
    settings = settings_text(task.settings)
    return task.problem + (f" with {settings}" if settings else "")


def _versions(machine: Mapping[str, Mapping[str, str]]) -> str:
    return ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
