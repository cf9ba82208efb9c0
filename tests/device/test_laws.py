"""Whole projections, launch by launch on the emulated device, against the CPU: problems, laws of many kinds, random laws."""

from __future__ import annotations

import pytest
from tests.device.compared import Given
from tests.device.law_sets import GALLERY, PROBLEMS, gallery, problem, random_law

RANDOM = range(0, 200, 10)  # benchmarks.emulated takes all of them


def agrees(given: Given | None, certify: bool) -> None:
    assert given is not None
    found = given.compared(certify)
    assert found.agrees, found


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_problem_is_projected_as_on_the_cpu(name):
    given = problem(name)
    agrees(given, certify=False)
    agrees(given, certify=True)


@pytest.mark.parametrize("stem", GALLERY)
def test_laws_of_many_kinds_are_projected_as_on_the_cpu(stem):
    agrees(gallery(stem), certify=True)


@pytest.mark.parametrize("number", RANDOM)
def test_random_laws_are_projected_as_on_the_cpu(number):
    agrees(random_law(number), certify=True)


def test_stages_are_marched_through_on_the_device():
    given = gallery("reaction_diffusion")
    assert given is not None
    assert {"march", "march_back"} <= given.compared(certify=True).entries
