"""The demonstration from start to end: sample with progress bars, print the tables, write picture, page and record.

The page is one self-contained HTML file. Its text is in page.html, its code in snippet.txt; here their blanks are filled. Every
number comes from the record.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from pathlib import Path
from string import Template

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table as TerminalTable

from snapfm.errors import require
from snapfm.evidence.demo.pictures import CAPTIONS, PAGE_FIELDS, hero, pictures
from snapfm.evidence.demo.record import RUNS, Evidence, Record, Run, Seconds, collect
from snapfm.evidence.page import html
from snapfm.evidence.page.document import Bar, Bars, Entry, Picture, Table, table, terminal
from snapfm.evidence.text import percent, scientific, seconds
from snapfm.flow.storage import write_file

_HERE = "snapfm.evidence.demo"
_TILE = '<div class="tile"><dt>{}</dt><dd class="figure">{}</dd><dd class="note">{}</dd></div>'
_CAPTIONS = {
    "fields": ("Fields u(x, t)", "one color scale"),
    "initial": ("Initial slices", "dashed: asked for"),
    "mass": ("Mass over time", "dashed: asked for"),
    "drift": ("Distance from the target mass, logarithmic", "line: largest of all samples; band: down to the median"),
}


def page(record: Record, pictures: Mapping[str, bytes]) -> str:
    """Fill the page with a record and its pictures, PNG bytes by name."""
    drawn = {
        name: html.block(Picture(html.image(png, _CAPTIONS[name][0]), *_CAPTIONS[name], wide=True, look="strip"))
        for name, png in pictures.items()
    }
    return Template(html.resource("page.html", _HERE)).substitute(
        drawn,
        style=html.resource("page.css") + html.resource("figures.css"),
        tiles=_tiles(record),
        shown=min(PAGE_FIELDS, record.count),
        count=record.count,
        steps=record.steps,
        table=html.block(_table(record)),
        converged=record.converged,
        tolerance=scientific(record.tolerance),
        stationarity=scientific(record.stationarity),
        cost=html.block(_cost(record)),
        snippet=escape(snippet(record)),
        made=html.definitions(_made(record)),
        command=escape(f"snapfm demo --count {record.count} --steps {record.steps} --seed {record.seed}"),
    )


def snippet(record: Record) -> str:
    """Write the lawful run as a user would: the laws as plain functions of one field, then one call."""
    given = {name: getattr(record, name) for name in ("shape", "model", "seed", "count", "steps")}
    code = Template(html.resource("snippet.txt", _HERE))
    return code.substitute(given, nx=record.shape[0], tolerance=f"{record.tolerance:g}")


def _tiles(record: Record) -> str:
    tiles = []
    for law in record.laws:
        before, after = (scientific(one.largest) for one in (law.free, law.lawful))
        figure = f'<span class="free">{before}</span><span class="arrow"> → </span><span class="lawful">{after}</span>'
        tiles.append(_TILE.format(f"law: {escape(law.name)}", figure, "largest violation, without and with laws"))
    share = percent(record.lawful_seconds.projection_share)
    return "\n".join([*tiles, _TILE.format("cost of the laws", share, "of the sampling time; the rest is the network")])


def _table(record: Record) -> Table:
    rows = []
    for law in record.laws:
        found = {
            "without laws, float32": law.free,
            "with laws, float32": law.lawful,
            "with laws, float64": law.lawful64,
        }
        name = Entry(law.name, f"{law.rows} equations")
        rows += [(name, what, scientific(one.largest), scientific(one.typical)) for what, one in found.items()]
    return table(("law", "fields", "largest", "typical"), rows)


def _cost(record: Record) -> Bars:
    spent: dict[Run, Seconds] = {"free": record.free_seconds, "lawful": record.lawful_seconds}
    bars = [
        Bar(CAPTIONS[run], seconds(one.total), (("network", one.velocity), ("projection", one.projection)))
        for run, one in spent.items()
    ]
    return Bars(tuple(bars), quiet="network")


def _made(record: Record) -> list[tuple[str, str]]:
    return [
        ("problem", f"{record.problem}, fields of {' × '.join(map(str, record.shape))}"),
        ("model", f"{record.model}, {record.weights:,} weights, shipped with snapfm"),
        ("sampling", f"{record.count} samples, {record.steps} flow steps, seed {record.seed}"),
        ("machine", f"CPU, {record.threads} threads"),
        ("versions", ", ".join(f"{name} {version}" for name, version in record.versions.items())),
    ]


def run(out: Path, count: int, steps: int, seed: int, console: Console) -> Path:
    """Run the demonstration and return the path of its page.

    Raises ProjectionFailed, and writes nothing, if any sample does not obey its laws.
    """
    require("matplotlib", "the demo's pictures", "report")  # checked now, not after a minute of sampling
    evidence = _collect(count, steps, seed, console)
    console.print(violations(evidence.record))
    console.print(time_split(evidence.record))
    return write(out, evidence)


def write(out: Path, evidence: Evidence) -> Path:
    """Write hero.png, evidence.json and index.html into a folder, each whole or not at all; return the page's path."""
    drawn = {
        "hero.png": hero(evidence),
        "evidence.json": evidence.record.to_json().encode(),
        "index.html": page(evidence.record, pictures(evidence)).encode(),
    }
    for name, content in drawn.items():
        write_file(out / name, content)
    return out / "index.html"


def violations(record: Record) -> TerminalTable:
    """Tabulate the largest violation of each law over all samples, before and after, and after in float64."""
    heads = ("law", "equations", "before\nno laws", "after\nfloat32", "after\nfloat64")
    judged = {law: (law.free, law.lawful, law.lawful64) for law in record.laws}
    rows = [(law.name, str(law.rows), *(scientific(one.largest) for one in found)) for law, found in judged.items()]
    table = terminal(f"Largest violation over {record.count} samples", heads, rows, box=True)
    for column, style in zip(table.columns[2:], ("dark_orange", "cyan", "cyan")):
        column.style = style
    return table


def time_split(record: Record) -> TerminalTable:
    """Tabulate where the time of each run went."""
    heads = ("run", "velocity", "projection", "share of projection")
    spent = {"without laws": record.free_seconds, "with laws": record.lawful_seconds}
    rows = [
        (name, seconds(one.velocity), seconds(one.projection), percent(one.projection_share))
        for name, one in spent.items()
    ]
    return terminal("Time split", heads, rows, box=True)


def _collect(count: int, steps: int, seed: int, console: Console) -> Evidence:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("steps"))
    with Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console) as bars:
        names = ("sampling without laws", "sampling with laws   ")
        tasks = {run: bars.add_task(name, total=steps, start=run == "free") for run, name in zip(RUNS, names)}

        def progress(run: Run, done: int, total: int) -> None:
            bars.start_task(tasks[run])  # its clock starts with its first step
            bars.update(tasks[run], completed=done, total=total)

        return collect(count, steps, seed, progress)
