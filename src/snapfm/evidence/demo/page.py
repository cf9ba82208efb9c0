"""The page: one self-contained HTML file that says what the product does, shows it and gives the figures.

Words are in page.html, the code in snippet.txt; here their blanks are filled. Every number comes from the record; whatever is
filled in is escaped here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from string import Template

from snapfm.evidence.demo.pictures import PANEL_FIELDS, Panels
from snapfm.evidence.demo.record import RUNS, LawFigures, Record, Run, Violation
from snapfm.evidence.page.html import definitions, image, resource
from snapfm.evidence.text import percent, scientific, seconds

_CAPTIONS: dict[Run, str] = {"free": "Without laws", "lawful": "With laws"}
_DRIFT_CAPTION = "Distance from the target mass <span>· line: largest of all samples; band: down to the median</span>"


def page(record: Record, panels: Panels) -> str:
    """Fill the page with a record and its pictures."""
    return Template(resource("page.html", "snapfm.evidence.demo")).substitute(
        style=resource("page.css"),
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
        command=escape(f"snapfm demo --count {record.count} --steps {record.steps} --seed {record.seed}"),
    )


def snippet(record: Record) -> str:
    """Write the lawful run as a user would: the laws as plain functions of one field, then one call."""
    given = {name: getattr(record, name) for name in ("shape", "model", "seed", "count", "steps")}
    code = Template(resource("snippet.txt", "snapfm.evidence.demo"))
    return code.substitute(given, nx=record.shape[0], tolerance=f"{record.tolerance:g}")


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
    return f"<figure><figcaption>{caption}</figcaption>{image(picture, description)}</figure>"


def _table(laws: Iterable[LawFigures]) -> str:
    head = '<th scope="col">law</th><th scope="col">fields</th>'
    head += '<th scope="col" class="right">largest</th><th scope="col" class="right">typical</th>'
    return "\n".join([f"<table>\n<thead><tr>{head}</tr></thead>", *map(_table_rows, laws), "</table>"])


def _table_rows(law: LawFigures) -> str:
    name = f'<th scope="rowgroup" rowspan="3">{escape(law.name)}<small>{law.rows} equations</small></th>'
    free, lawful = _cells("free", "float32", law.free), _cells("lawful", "float32", law.lawful)
    lawful64 = _cells("lawful", "float64", law.lawful64)
    return f"<tbody>\n<tr>{name}{free}</tr>\n<tr>{lawful}</tr>\n<tr>{lawful64}</tr>\n</tbody>"


def _cells(run: Run, precision: str, violation: Violation) -> str:
    figures = (scientific(violation.largest), scientific(violation.typical))
    numbers = "".join(f'<td class="right {run}">{figure}</td>' for figure in figures)
    return f"<td>{_CAPTIONS[run].lower()}, {precision}</td>{numbers}"


def _cost(record: Record) -> str:
    longest = max(record.seconds(run).total for run in RUNS)
    rows = [_cost_row(run, record, longest) for run in RUNS]
    key = '<p class="note"><i class="key velocity"></i>network &nbsp; <i class="key projection"></i>projection</p>'
    return "\n".join(['<div class="cost">', *rows, key, "</div>"])


def _cost_row(run: Run, record: Record, longest: float) -> str:
    spent = record.seconds(run)
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
    return definitions(
        [
            ("problem", f"{record.problem}, fields of {' × '.join(map(str, record.shape))}"),
            ("model", f"{record.model}, {record.weights:,} weights, shipped with snapfm"),
            ("sampling", f"{record.count} samples, {record.steps} flow steps, seed {record.seed}"),
            ("machine", f"CPU, {record.threads} threads"),
            ("versions", ", ".join(f"{name} {version}" for name, version in record.versions.items())),
        ]
    )
