from __future__ import annotations

import json
from dataclasses import replace

from snapfm_bench.demo.record import Record, Seconds
from snapfm_bench.record import load


def test_evidence_json_comes_back_as_it_was_written(record: Record):
    heat = replace(record.cases[0], stationarity=0.1 + 0.2, free_seconds=Seconds(1 / 3, 1e-300, 0.0))
    awkward = replace(record, cases=(heat, record.cases[1]))
    assert load(Record, json.loads(awkward.to_json())) == awkward


def test_json_is_plain_and_names_what_it_holds(record: Record):
    raw = json.loads(record.to_json())
    heat = raw["cases"][0]
    assert heat["laws"][1]["name"] == "mass"
    assert heat["laws"][1]["lawful64"]["largest"] == record.cases[0].laws[1].lawful64.largest
    assert raw["seed"] == record.seed


def test_converged_counts_samples(record: Record):
    assert record.cases[0].converged == 3
    assert replace(record.cases[0], statuses=("CONVERGED", "STALLED", "NONFINITE")).converged == 1


def test_share_of_projection():
    assert Seconds(7.0, 2.5, 0.5).projection_share == 0.25
    assert Seconds(0.0, 0.0, 0.0).projection_share == 0.0
