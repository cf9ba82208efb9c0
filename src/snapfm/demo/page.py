"""The page: one self-contained HTML file that says what the product does, shows it and gives the figures.

Words are in page.html, looks in page.css; here their blanks are filled. Everything is inline (pictures as data URIs),
nothing is loaded and no script runs. Every number comes from the record; whatever is filled in is escaped here.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from html import escape
from importlib import resources
from string import Template

from snapfm.demo.canvas import RUNS, Run
from snapfm.demo.numerals import percent, scientific, seconds
from snapfm.demo.picture import PANEL_FIELDS, Panels
from snapfm.demo.record import LawFigures, Record, Seconds, Violation
from snapfm.demo.snippet import snippet

_CAPTIONS: dict[Run, str] = {"free": "Without laws", "lawful": "With laws"}
_DRIFT_CAPTION = "Distance from the target mass <span>· line: largest of all samples; band: down to the median</span>"


def page(record: Record, panels: Panels) -> str:
    """Fill the page with a record and its pictures."""
    return Template(_resource("page.html")).substitute(
        style=_resource("page.css"),
        tiles=_tiles(record),
        shown=min(PANEL_FIELDS, record.count),
        count=record.count,
        steps=record.steps,
        fields=_pair(panels.fields, "fields u(x, t)"),
        initial=_pair(panels.initial, "initial slices"),
        mass=_pair(panels.mass, "mass over time"),
        drift=_figure(panels.drift, "Distance from the target mass, logarithmic, both runs", _DRIFT_CAPTION),
        table=_table(record.laws),
        converged=record.converged,
        tolerance=scientific(record.tolerance),
        stationarity=scientific(record.stationarity),
        cost=_cost(record),
        snippet=escape(snippet(record)),
        made=_made(record),
        command=escape(command(record)),
    )


def command(record: Record) -> str:
    """Write the command line that repeats the run."""
    return f"snapfm demo --count {record.count} --steps {record.steps} --seed {record.seed}"


def _resource(name: str) -> str:
    return resources.files("snapfm.demo").joinpath(name).read_text(encoding="utf-8")


def _tiles(record: Record) -> str:
    tiles = [_law_tile(law) for law in record.laws]
    tiles.append(
        '<div class="tile"><dt>cost of the laws</dt>'
        f'<dd class="figure">{percent(record.lawful_seconds.projection_share)}</dd>'
        '<dd class="note">of the sampling time; the rest is the network</dd></div>'
    )
    return "\n".join(tiles)


def _law_tile(law: LawFigures) -> str:
    before, after = scientific(law.free.largest), scientific(law.lawful.largest)
    return (
        f'<div class="tile"><dt>law: {escape(law.name)}</dt>'
        f'<dd class="figure"><span class="free">{before}</span><span class="arrow"> → </span>'
        f'<span class="lawful">{after}</span></dd>'
        '<dd class="note">largest violation, without and with laws</dd></div>'
    )


def _pair(pictures: Mapping[Run, bytes], subject: str) -> str:
    figures = [
        _figure(pictures[run], f"{_CAPTIONS[run]}: {subject}", f'<b class="{run}">{_CAPTIONS[run]}</b>') for run in RUNS
    ]
    return "\n".join(['<div class="pair">', *figures, "</div>"])


def _figure(picture: bytes, description: str, caption: str) -> str:
    source = "data:image/png;base64," + base64.b64encode(picture).decode("ascii")
    return f'<figure><figcaption>{caption}</figcaption><img src="{source}" alt="{escape(description)}"></figure>'


def _table(laws: Iterable[LawFigures]) -> str:
    head = '<th scope="col">law</th><th scope="col">fields</th>'
    head += '<th scope="col" class="right">largest</th><th scope="col" class="right">typical</th>'
    return "\n".join([f"<table>\n<thead><tr>{head}</tr></thead>", *map(_table_rows, laws), "</table>"])


def _table_rows(law: LawFigures) -> str:
    name = f'<th scope="rowgroup" rowspan="3">{escape(law.name)}<small>{law.rows} equations</small></th>'
    return "\n".join(
        [
            f"<tbody>\n<tr>{name}{_cells('free', 'float32', law.free)}</tr>",
            f"<tr>{_cells('lawful', 'float32', law.lawful)}</tr>",
            f"<tr>{_cells('lawful', 'float64', law.lawful64)}</tr>\n</tbody>",
        ]
    )


def _cells(run: Run, precision: str, violation: Violation) -> str:
    figures = (scientific(violation.largest), scientific(violation.typical))
    numbers = "".join(f'<td class="right {run}">{figure}</td>' for figure in figures)
    return f"<td>{_CAPTIONS[run].lower()}, {precision}</td>{numbers}"


def _cost(record: Record) -> str:
    longest = max(record.free_seconds.total, record.lawful_seconds.total)
    rows = [_cost_row("free", record.free_seconds, longest), _cost_row("lawful", record.lawful_seconds, longest)]
    key = '<p class="note"><i class="key velocity"></i>network &nbsp; <i class="key projection"></i>projection</p>'
    return "\n".join(['<div class="cost">', *rows, key, "</div>"])


def _cost_row(run: Run, spent: Seconds, longest: float) -> str:
    split = f"network {seconds(spent.velocity)}"
    if spent.projection > 0:
        split += f", projection {seconds(spent.projection)} ({percent(spent.projection_share)})"
    bars = "".join(
        f'<i class="{part}" style="width:{100 * value / longest if longest > 0 else 0:.2f}%"></i>'
        for part, value in (("velocity", spent.velocity), ("projection", spent.projection))
    )
    words = f'<b class="{run}">{_CAPTIONS[run]}</b><span class="number">{split}</span>'
    return f'<div class="row"><div class="what">{words}</div><div class="bar">{bars}</div></div>'


def _made(record: Record) -> str:
    made = {
        "problem": f"{record.problem}, fields of {' × '.join(map(str, record.shape))}",
        "model": f"{record.model}, {record.weights:,} weights, shipped with snapfm",
        "sampling": f"{record.count} samples, {record.steps} flow steps, seed {record.seed}",
        "machine": f"CPU, {record.threads} threads",
        "versions": ", ".join(f"{name} {version}" for name, version in record.versions.items()),
    }
    return "\n".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in made.items())
