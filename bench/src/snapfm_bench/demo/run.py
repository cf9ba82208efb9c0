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

from snapfm.errors import require_all
from snapfm.text import counted, plural, scientific, seconds
from snapfm_bench.demo.pictures import CAPTIONS, PAGE_FIELDS, hero, pictures
from snapfm_bench.demo.record import CHOSEN, RUNS, DemoCase, Evidence, Record, Run, Seconds, collect
from snapfm_bench.flow.storage import write_file
from snapfm_bench.pages import html
from snapfm_bench.pages.document import Bar, Bars, Entry, Picture, Table, table, terminal
from snapfm_bench.text import percent

_HERE = "snapfm_bench.demo"
_TILE = '<div class="tile"><dt>{}</dt><dd class="figure">{}</dd><dd class="note">{}</dd></div>'
_CAPTIONS = {
    "fields": ("Fields u(x, t)", "one color scale"),
    "initial": ("Initial slices", "dashed: asked for"),
    "mass": ("Mass over time", "dashed: asked for"),
    "drift": ("Distance from the target mass, logarithmic", "line: largest of all samples; band: down to the median"),
    "shocks": ("Fields u(x, t) of Burgers' equation", "one color scale"),
    "violations": (
        "Violation of each law by each sample, logarithmic",
        "before: without laws; after: with laws, float32",
    ),
}
_EQUATIONS = ("heat", "Burgers")  # of the cases, in their order


def page(record: Record, pictures: Mapping[str, bytes]) -> str:
    """Fill the page with a record and its pictures, PNG bytes by name."""
    drawn = {
        name: html.block(Picture(html.image(png, _CAPTIONS[name][0]), *_CAPTIONS[name], wide=True, look="strip"))
        for name, png in pictures.items()
    }
    heat, burgers = record.cases
    return Template(html.resource("page.html", _HERE)).substitute(
        drawn,
        style=html.resource("page.css") + html.resource("figures.css"),
        tiles=_tiles(record),
        shown=min(PAGE_FIELDS, record.count),
        count=plural(record.count, "sample"),
        all_samples="the sample lies" if record.count == 1 else f"all {record.count} samples lie",
        steps=plural(record.steps, "flow step"),
        table=html.block(_table(heat)),
        certificate=_certificate(heat),
        hard_table=html.block(_table(burgers)),
        hard_certificate=_certificate(burgers),
        hard_rows=counted(sum(law.rows for law in burgers.laws)),
        cost=html.block(_cost(record)),
        snippet=escape(snippet(record)),
        made=html.definitions(_made(record)),
        command=escape(f"snapfm demo --count {record.count} --steps {record.steps} --seed {record.seed}"),
    )


def snippet(record: Record) -> str:
    """Write the lawful run of heat as a user would: the laws as plain functions of one field, then one call."""
    heat = record.cases[0]
    given = {
        "shape": heat.shape,
        "model": heat.model,
        "seed": record.seed,
        "count": record.count,
        "steps": record.steps,
    }
    code = Template(html.resource("snippet.txt", _HERE))
    return code.substitute(given, nx=heat.shape[0], tolerance=f"{heat.tolerance:g}")


def _tiles(record: Record) -> str:
    tiles = []
    for equation, case in zip(_EQUATIONS, record.cases):
        law = case.laws[-1]  # the hardest of them
        before, after = (scientific(one.largest) for one in (law.free, law.lawful))
        figure = f'<span class="free">{before}</span><span class="arrow"> → </span><span class="lawful">{after}</span>'
        tiles.append(
            _TILE.format(f"{equation}, law: {escape(law.name)}", figure, "largest violation, without and with laws")
        )
    shares = " and ".join(percent(case.lawful_seconds.projection_share) for case in record.cases)
    return "\n".join([*tiles, _TILE.format("cost of the laws", shares, f"of the time, {' and '.join(_EQUATIONS)}")])


def _table(case: DemoCase) -> Table:
    rows = []
    for law in case.laws:
        found = {
            "without laws, float32": law.free,
            "with laws, float32": law.lawful,
            "with laws, float64": law.lawful64,
        }
        name = Entry(law.name, plural(law.rows, "equation"))
        rows += [(name, what, scientific(one.largest), scientific(one.typical)) for what, one in found.items()]
    return table(("law", "fields", "largest", "typical"), rows)


def _certificate(case: DemoCase) -> str:
    """Write the certificate of all samples of a case as HTML."""
    each = "reports" if len(case.statuses) == 1 else "report"
    return (
        f"{case.converged} of {plural(len(case.statuses), 'sample')} {each} <code>CONVERGED</code>, which says two things about "
        f"each: it obeys its laws to the tolerance ({scientific(case.tolerance)}, in float64), and no nearer field does "
        f"(stationarity at most {scientific(case.stationarity)})."
    )


def _cost(record: Record) -> Bars:
    bars = []
    for equation, case in zip(_EQUATIONS, record.cases):
        spent: dict[Run, Seconds] = {"free": case.free_seconds, "lawful": case.lawful_seconds}
        for run, one in spent.items():
            parts = (("network", one.velocity), ("projection", one.projection), ("other", one.other))
            bars.append(Bar(f"{equation}, {CAPTIONS[run].lower()}", seconds(one.total), parts))
    return Bars(tuple(bars), quiet="network")


def _made(record: Record) -> list[tuple[str, str]]:
    cases = [
        (
            f"{equation} equation",
            f"{case.problem}, fields of {' × '.join(map(str, case.shape))}; model {case.model}, {case.weights:,} weights, "
            "shipped with snapfm",
        )
        for equation, case in zip(("heat", "Burgers'"), record.cases)
    ]
    return [
        *cases,
        ("sampling", f"{plural(record.count, 'sample')}, {plural(record.steps, 'flow step')}, seed {record.seed}"),
        ("machine", f"CPU, {plural(record.threads, 'thread')}"),
        ("versions", ", ".join(f"{name} {version}" for name, version in record.versions.items())),
    ]


def run(out: Path, count: int, steps: int, seed: int, console: Console) -> Path:
    """Run the demonstration and return the path of its page.

    Raises ProjectionFailed, and writes nothing, if any sample does not obey its laws.
    """
    # Checked now, not after a minute of sampling.
    require_all("snapfm demo", dict.fromkeys(("neuralop", "safetensors", "matplotlib"), ""), of="snapfm-bench")
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
    heads = ("equation", "law", "equations", "before\nno laws", "after\nfloat32", "after\nfloat64")
    rows = [
        (name, law.name, str(law.rows), *(scientific(one.largest) for one in (law.free, law.lawful, law.lawful64)))
        for name, case in zip(_EQUATIONS, record.cases)
        for law in case.laws
    ]
    table = terminal(f"Largest violation over {plural(record.count, 'sample')}", heads, rows, box=True)
    table.columns[1].justify = "left"
    for column, style in zip(table.columns[3:], ("dark_orange", "cyan", "cyan")):
        column.style = style
    return table


def time_split(record: Record) -> TerminalTable:
    """Tabulate where the time of each run went."""
    heads = ("run", "velocity", "projection", "other", "share of projection")
    rows = [
        (f"{name}, {what}", *map(seconds, (one.velocity, one.projection, one.other)), percent(one.projection_share))
        for name, case in zip(_EQUATIONS, record.cases)
        for what, one in (("without laws", case.free_seconds), ("with laws", case.lawful_seconds))
    ]
    return terminal("Time split", heads, rows, box=True)


def _collect(count: int, steps: int, seed: int, console: Console) -> Evidence:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("steps"))
    bars = Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console)
    tasks = {
        (chosen.problem, run): bars.add_task(f"{name}, {CAPTIONS[run].lower()}".ljust(21), total=steps, start=False)
        for name, chosen in zip(_EQUATIONS, CHOSEN)
        for run in RUNS
    }

    def progress(problem: str, run: Run, done: int, total: int) -> None:
        bars.start()  # not before the first step: until then compiling has a line of its own
        bars.start_task(tasks[problem, run])  # its clock starts with its first step
        bars.update(tasks[problem, run], completed=done, total=total)

    console.print("loading models, tracing laws, rehearsing both runs without the clock …")
    try:
        return collect(count, steps, seed, progress)
    finally:
        bars.stop()
