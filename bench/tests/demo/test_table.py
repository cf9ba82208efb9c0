from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console
from rich.table import Table

from snapfm.text import scientific
from snapfm_bench.demo.record import Record
from snapfm_bench.demo.run import time_split, violations


def _printed(table: Table) -> str:
    stream = io.StringIO()
    Console(file=stream, width=80).print(table)
    return stream.getvalue()


def test_violations_fit_a_terminal_and_show_before_and_after(record: Record):
    printed = _printed(violations(record))
    assert max(map(len, printed.splitlines())) <= 80
    for equation, case in zip(("heat", "Burgers"), record.cases):
        for law in case.laws:
            line = next(line for line in printed.splitlines() if law.name in line and equation in line)
            figures = [scientific(judged.largest) for judged in (law.free, law.lawful, law.lawful64)]
            assert [cell.strip() for cell in line.strip("│").split("│")] == [
                equation,
                law.name,
                str(law.rows),
                *figures,
            ]


def test_law_names_are_not_read_as_markup(record: Record):
    heat, burgers = record.cases
    odd = replace(heat, laws=(replace(heat.laws[0], name="[red]x[/red]"),))
    assert "[red]x[/red]" in _printed(violations(replace(record, cases=(odd, burgers))))


def test_time_split(record: Record):
    lines = _printed(time_split(record)).splitlines()
    assert max(map(len, lines)) <= 80
    lawful = next(line for line in lines if "heat, with laws" in line)
    assert [cell.strip() for cell in lawful.strip("│").split("│")] == [
        "heat, with laws",
        "7.0 s",
        "2.5 s",
        "0.5 s",
        "25.0 %",
    ]
