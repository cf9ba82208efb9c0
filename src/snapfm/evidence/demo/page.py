"""The page: one self-contained HTML file that says what the product does, shows it and lists the figures.

The text is in page.html, the code in snippet.txt; here their blanks are filled. Every number comes from the record.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from string import Template

from snapfm.evidence.demo.pictures import CAPTIONS, PAGE_FIELDS
from snapfm.evidence.demo.record import Record
from snapfm.evidence.page import html
from snapfm.evidence.page.document import Bar, Bars, Entry, Picture, Table, table
from snapfm.evidence.text import percent, scientific, seconds

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
    rows = [
        (Entry(law.name, f"{law.rows} equations"), what, *map(scientific, (found.largest, found.typical)))
        for law in record.laws
        for what, found in (
            ("without laws, float32", law.free), ("with laws, float32", law.lawful), ("with laws, float64", law.lawful64),
        )
    ]  # fmt: skip
    return table(("law", "fields", "largest", "typical"), rows)


def _cost(record: Record) -> Bars:
    spent = {"free": record.free_seconds, "lawful": record.lawful_seconds}
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
