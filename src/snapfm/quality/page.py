"""index.html of a run: summary, pictures and tables on one self-contained page, in the looks of the demonstration.

Words are in page.html, looks in the demonstration's page.css and in page.css beside it. Nothing is loaded and no script
runs; every figure comes from records, and whatever is filled in is escaped here.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from html import escape
from importlib import resources
from string import Template

from snapfm.quality.record import Cell
from snapfm.quality.suite import Suite, TaskEntry
from snapfm.quality.tables import PUBLISHED, Entry, Table, summary, task_table, verdicts
from snapfm.quality.text import ABOUT, COLUMNS, named

_CURVE = "Scores against flow steps <span>· bars: 95 % intervals; dashed: as many true fields</span>"

Cells = Mapping[tuple[str, str], Cell]


def page(suite: Suite, cells: Cells, pictures: Mapping[str, bytes], curve: bytes | None = None) -> str:
    """Fill the page; `pictures` are PNG bytes by task, `curve` those of scores against steps."""
    return Template(_resource("snapfm.quality", "page.html")).substitute(
        style=_resource("snapfm.demo", "page.css") + _resource("snapfm.quality", "page.css"),
        title=escape(suite.title),
        verdicts="\n".join(f'<p class="lead">{escape(words)}</p>' for words in verdicts(suite, cells)),
        about=_words(ABOUT),
        summary=_table(summary(suite, cells)),
        curve="" if curve is None else _image(curve, "Scores against flow steps", _CURVE),
        columns=_words(COLUMNS),
        tasks="\n".join(_task(suite, task, cells, pictures.get(task.name)) for task in suite.tasks),
        made=_made(suite, cells),
        command=escape(f"snapfm quality {suite.name} --out DIR"),
    )


def _task(suite: Suite, task: TaskEntry, cells: Cells, picture: bytes | None) -> str:
    problem = task.build()
    what = f"{named(task)}; model {task.model}"
    return "\n".join(
        [
            f"<section>\n<h2>{escape(task.title)}</h2>",
            f'<p>{escape(problem.summary.capitalize())} <span class="note">({escape(what)})</span></p>',
            "" if picture is None else _strip(task.title, picture, late=len(problem.grid.shape) > 2),
            _table(task_table(suite, task, cells)),
            "</section>",
        ]
    )


def _strip(title: str, picture: bytes, late: bool) -> str:
    when = " at the last time" if late else ""
    caption = f"Mean and spread of the fields{when} <span>· each row on one color scale, set by the truth</span>"
    return _image(picture, f"{title}: mean and spread of truth and samplers", caption)


def _image(picture: bytes, description: str, caption: str) -> str:
    source = "data:image/png;base64," + base64.b64encode(picture).decode("ascii")
    image = f'<img src="{source}" alt="{escape(description)}">'
    return f'<div class="scroll"><figure class="strip"><figcaption>{caption}</figcaption>{image}</figure></div>'


def _table(table: Table) -> str:
    heads = "".join(f'<th scope="col"{_side(place)}>{escape(head)}</th>' for place, head in enumerate(table.heads))
    lines = ['<div class="scroll"><table class="figures">', f"<thead><tr>{heads}</tr></thead>", "<tbody>"]
    for row in table.rows:
        quiet = ' class="quiet"' if row[0].words.endswith(PUBLISHED) else ""
        entries = [f"<td{_side(place)}>{_entry(one)}</td>" for place, one in enumerate(row)]
        lines.append(f"<tr{quiet}>{''.join(entries)}</tr>")
    return "\n".join([*lines, "</tbody></table></div>"])


def _entry(one: Entry) -> str:
    words = f"<b>{escape(one.words)}</b>" if one.first else escape(one.words)
    return f"{words}<small>{escape(one.detail)}</small>" if one.detail else words


def _side(place: int) -> str:
    return "" if place == 0 else ' class="right"'


def _made(suite: Suite, cells: Cells) -> str:
    made = {
        "suite": suite.name,
        "samples": f"{suite.samples} unless a row says otherwise, {suite.steps} flow steps, seed {suite.seed}, {suite.dtype}",
        "truth": ", ".join(f"{task.title} {task.truth or suite.truth}" for task in suite.tasks) + " simulated fields",
        "laws": f"projector's tolerance {suite.tolerance:g}; judged in float64",
        "samplers": "; ".join(_sampler(sampler.title, sampler.kind, sampler.settings) for sampler in suite.samplers),
        "budget": f"{suite.budget:g} s a cell; past it DNF",
    }
    some = next(iter(cells.values()), None)
    if some is not None:
        made["machine"] = (
            f"CPU ({some.machine['processor']}), {some.machine['cores']} cores, {some.machine['threads']} threads"
        )
        made["versions"] = ", ".join(f"{name} {version}" for name, version in some.machine["versions"].items())
    return "\n".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in made.items())


def _sampler(title: str, kind: str, settings: Mapping[str, object]) -> str:
    return f"{title}: {kind}({', '.join(f'{key}={value}' for key, value in settings.items())})"


def _words(words: str) -> str:
    """Escape a sentence and turn its *emphasis* into tags."""
    parts = escape(words).split("*")
    return "".join(f"<em>{part}</em>" if place % 2 else part for place, part in enumerate(parts))


def _resource(package: str, name: str) -> str:
    return resources.files(package).joinpath(name).read_text(encoding="utf-8")
