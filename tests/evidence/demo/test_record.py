from __future__ import annotations

import json
from dataclasses import replace

from snapfm.evidence.demo.record import Record, Seconds
from snapfm.evidence.record import load


def test_evidence_json_comes_back_as_it_was_written(record: Record):
    awkward = replace(record, stationarity=0.1 + 0.2, free_seconds=Seconds(1 / 3, 1e-300))
    assert load(Record, json.loads(awkward.to_json())) == awkward


def test_json_is_plain_and_names_what_it_holds(record: Record):
    raw = json.loads(record.to_json())
    assert raw["laws"][1]["name"] == "mass"
    assert raw["laws"][1]["lawful64"]["largest"] == record.laws[1].lawful64.largest
    assert raw["seed"] == record.seed


def test_converged_counts_samples(record: Record):
    assert record.converged == 3
    assert replace(record, statuses=("CONVERGED", "STALLED", "NONFINITE")).converged == 1


def test_share_of_projection():
    assert Seconds(7.5, 2.5).projection_share == 0.25
    assert Seconds(0.0, 0.0).projection_share == 0.0
