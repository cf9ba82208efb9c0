"""`snapfm doctor`: what it says, and that it notices."""

from __future__ import annotations

import json

import pytest
import torch
from typer.testing import CliRunner

from snapfm.cli import doctor as module
from snapfm.cli.app import app


def test_it_tests_every_device():
    answer = CliRunner().invoke(app, ["doctor", "--json"], catch_exceptions=False)
    assert answer.exit_code == 0
    found = json.loads(answer.stdout)
    assert [test["device"] for test in found["self-test"]] == ["cpu"] + [
        f"cuda:{k}" for k in range(torch.cuda.device_count())
    ]
    test = found["self-test"][0]
    assert test["converged"] == test["of"] == 10
    assert test["violation"] < 1e-8
    assert test["from_cpu"] == 0.0
    assert found["devices"][0] == "cpu: projections run here"


def test_it_prints_a_line_for_each_thing():
    answer = CliRunner().invoke(app, ["doctor"], catch_exceptions=False)
    assert answer.exit_code == 0
    assert [line.split()[0] for line in answer.stdout.splitlines()][:4] == ["snapfm", "threads", "cache", "devices"]
    assert "cpu: 10 of 10 converged" in answer.stdout
    assert "passed" in answer.stdout


def test_a_projection_that_is_wrong_is_told(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "_AGREE", -1.0)
    answer = CliRunner().invoke(app, ["doctor"])
    assert answer.exit_code == 1
    assert "FAILED" in answer.stdout


def test_extras_are_those_whose_packages_are_all_there(monkeypatch: pytest.MonkeyPatch):
    required = [
        "torch>=2.6",
        'one>=1; extra == "ray"',
        'two; extra == "ray"',
        'one; extra == "plot"',
        'zip; extra == "dev"',
    ]
    monkeypatch.setattr(module.metadata, "requires", lambda name: required)
    monkeypatch.setattr(module, "_installed", lambda package: package != "two")
    monkeypatch.setattr(module, "_EXTRAS", ("ray", "plot"))
    assert module._extras() == ["plot: installed", "ray: not installed; for example pip install 'snapfm[ray]'"]


def test_a_package_that_is_not_installed_is_noticed():
    assert module._installed("torch")
    assert not module._installed("no-such-package-of-anybody")
