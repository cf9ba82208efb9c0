"""Whole projections, launch by launch on the emulated device, against the CPU: problems, laws of many kinds, random laws."""

from __future__ import annotations

import pytest
from tests.device.compared import Given
from tests.device.emulated.machine import Order
from tests.device.launches import Device
from tests.device.law_sets import GALLERY, MADE, PROBLEMS, gallery, implicit, problem, random_law

import snapfm

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


@pytest.mark.parametrize("name", MADE)
def test_laws_made_for_the_device_are_projected_as_on_the_cpu(name):
    agrees(MADE[name](), certify=True)


@pytest.mark.parametrize("number", RANDOM)
def test_random_laws_are_projected_as_on_the_cpu(number):
    agrees(random_law(number), certify=True)


def test_stages_are_marched_through_on_the_device():
    given = gallery("reaction_diffusion")
    assert given is not None
    assert {"march", "march_back"} <= given.compared(certify=True).entries


def test_a_march_that_fails_ends_there_without_faults():
    given = implicit(dt=0.15)  # the CPU goes on with factors of its own, and pivoting
    assert given is not None
    for order in Order:
        device = Device(order)
        found = given.on_device(True, device)
        assert (found.status == snapfm.Status.STALLED).all()
        assert not device.faults
