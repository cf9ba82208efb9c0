"""`snapfm audit`: its table and its JSON."""

from __future__ import annotations

import json

import pytest
import torch
from typer.testing import CliRunner

from snapfm.cli.app import app

RUN = CliRunner()


def test_the_table_fits_a_narrow_terminal():
    answer = RUN.invoke(app, ["audit", "burgers", "--count", "2"], env={"COLUMNS": "80"}, catch_exceptions=False)
    assert answer.exit_code == 0
    lines = answer.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    rows = [line.split() for line in lines]
    assert ["mass", "mass=constant"] in [row[:2] for row in rows]
    assert next(row for row in rows if row[:2] == ["mass", "mass=constant"])[-1] == "contradicted"
    assert "…" not in answer.stdout


def test_json_for_scripts():
    answer = RUN.invoke(app, ["audit", "heat-ic-mass", "--count", "2", "--json"], catch_exceptions=False)
    initial, mass = json.loads(answer.stdout)
    assert (initial["law"], initial["error"], initial["verdict"]) == ("initial", 0.0, "obeyed")
    assert (mass["law"], mass["order"], mass["verdict"]) == ("mass", None, "obeyed")


def test_the_number_of_threads_of_the_process_stays_as_it_is(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch, "set_num_threads", lambda number: pytest.fail("changes the whole process"))
    assert RUN.invoke(app, ["audit", "heat-ic-mass", "--count", "2"], catch_exceptions=False).exit_code == 0
