"""The PTX of what surrounds Newton's iterations, executed on the CPU, against the kernels for the CPU: to 1e-10."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from tests.device.descriptors import Descriptor
from tests.device.emulated.machine import Order
from tests.device.launches import Device

import snapfm
from snapfm.kernels import batches
from snapfm.kernels.coordinates import condense, expand, rotate
from snapfm.kernels.run_length import Runs, add_batch, join, products
from snapfm.solve.newton import Newton

COUNT, CLOSE = 2, 1e-10


def launch(entry: str, spec: Descriptor, arguments: list[int | float | np.ndarray]) -> None:
    """Launch a team a sample in all orders of threads: the same bits, no races, no stray access. Written: the arrays."""
    arrays = [one for one in arguments if isinstance(one, np.ndarray)]
    before, found = [one.copy() for one in arrays], []
    for order in Order:
        for one, old in zip(arrays, before):
            one[:] = old
        device = Device(order)
        device.launch(entry, spec, COUNT, *arguments)
        assert not device.faults
        found.append([one.copy() for one in arrays])
    assert all(np.array_equal(a, b, equal_nan=True) for other in found[1:] for a, b in zip(found[0], other))


@dataclass(frozen=True)
class Reduced:
    """A prepared method with fields in the unknowns of its reduction, and the cells of params."""

    method: Newton
    fields: np.ndarray
    externals: np.ndarray


@pytest.fixture(scope="module")
def reduced() -> Reduced:
    """Explicit steps after an initial state, energies and totals: substitutions and aggregates."""

    def step(u, p):
        return u[1:-1, 1:3] - u[1:-1, :2] - p["rate"] * torch.sin(u[2:, :2] * u[:-2, :2])

    laws = [
        snapfm.Equality("initial", lambda u, p: u[:, 0] - p["u0"]),
        snapfm.Equality("step", step),
        snapfm.Equality("square", lambda u, p: u[0, 3:] ** 2 + u[-1, 3:] - 1.0),
        snapfm.Equality("energy", lambda u, p: (u[2:-2, 3:] ** 2).sum(0) - 2.0),
        snapfm.Equality("mass", lambda u, p: u[2:-2, 3:].sum(0) - 0.5),
    ]
    generator = torch.Generator().manual_seed(0)
    u = torch.randn(COUNT, 16, 6, generator=generator, dtype=torch.float64)
    params = {"u0": u[:, :, 0].clone(), "rate": 0.1 + torch.rand(COUNT, generator=generator, dtype=torch.float64)}
    method = snapfm.Projector(laws, (16, 6), {name: value[:1] for name, value in params.items()}).method
    assert isinstance(method, Newton)
    fields = np.zeros((COUNT, method.tape.unknowns))
    fields[:, : method.laws.unknowns] = u.reshape(COUNT, -1).numpy()
    return Reduced(method, fields, method._from_params(params, COUNT).externals)


def test_rotations():
    angles = np.random.default_rng(3).uniform(0.0, 2.0 * np.pi, 40)
    first, second, cos, sin = np.arange(40), 99 - np.arange(40), np.cos(angles), np.sin(angles)
    fields = np.random.default_rng(4).normal(size=(COUNT, 100))
    for back in (1.0, -1.0):
        wanted, found = fields.copy(), fields.copy()
        rotate(first, second, cos, back * sin, wanted)
        launch("rotate", Descriptor(first, second, cos, sin), [100, found, back])
        assert np.allclose(found, wanted, rtol=CLOSE, atol=CLOSE)


def test_aggregates(reduced):
    method, groups = reduced.method, reduced.method.reduction.aggregates
    assert len(groups)
    runs, memory = method.coordinates.runs, np.zeros((COUNT, 3 * len(groups)))
    wanted, found = reduced.fields.copy(), reduced.fields.copy()
    condense(runs, groups.ptr, groups.first, wanted)
    launch("condense", Descriptor(runs, groups.ptr, groups.first), [found.shape[1], found, memory])
    assert np.allclose(found, wanted, rtol=CLOSE, atol=CLOSE)
    start, flat = wanted, slice(groups.first + 1, groups.first + 2)
    start[0, flat] = 0.0  # a flat group is scattered
    wanted, found = 1.1 * start, 1.1 * start
    expand(runs, groups.ptr, groups.members, groups.first, start, wanted)
    spec = Descriptor(runs, groups.ptr, groups.members, groups.first)
    launch("expand", spec, [found.shape[1], start, found, memory])
    assert np.allclose(found, wanted, rtol=CLOSE, atol=CLOSE)


@pytest.mark.parametrize("step", [1, 0, 2, -1])
def test_products_with_runs(step):
    generator = np.random.default_rng(1)
    length, first = 37, 40 if step < 0 else 1
    entries = np.arange(length)
    runs = join(entries + 3, first + step * entries, np.full(length, 0.7))
    assert isinstance(runs, Runs)
    fields, totals = generator.normal(size=(COUNT, 50)), generator.normal(size=(COUNT, 80))
    wanted, found = totals.copy(), totals.copy()
    products(runs, fields, wanted)
    launch("products", Descriptor(runs), [50, fields, 80, found])
    assert np.allclose(found, wanted, rtol=CLOSE, atol=CLOSE)
    wanted, found = fields.copy(), fields.copy()
    add_batch(runs, totals, wanted)
    launch("transposed", Descriptor(runs), [50, found, 80, totals])
    assert np.allclose(found, wanted, rtol=CLOSE, atol=CLOSE)  # the CPU fuses whole packs, not what is left of a run


def test_substitutions(reduced):
    assert len(reduced.method.substitutions) > 1
    for level, rows in reduced.method.substitutions:
        program, wanted, found = rows.program, reduced.fields.copy(), reduced.fields.copy()
        rows.substitute(level, wanted, reduced.externals)
        spec = Descriptor(program.code, rows.inputs, rows.outside, level.unknowns, level.weights)
        memory = np.zeros((COUNT, program.cells + len(level.unknowns)))
        shape = [found.shape[1], found, reduced.externals.shape[1], reduced.externals, program.cells, memory]
        launch("substitute", spec, shape)
        assert np.allclose(found, wanted, rtol=CLOSE, atol=CLOSE)


def test_rows_and_their_slopes(reduced):
    for part in reduced.method.parts:
        rows, program, index = part.rows, part.rows.program, part.system.rows
        width, known = reduced.fields.shape[1], reduced.externals.shape[1]
        fields, lam = reduced.fields.copy(), np.random.default_rng(2).normal(size=(COUNT, reduced.method.laws.rows))
        wanted, found = np.zeros_like(fields), np.zeros_like(fields)
        rows.pull(index, fields, reduced.externals, lam, wanted)
        spec = Descriptor(program.code, rows.inputs, rows.outside, index)
        memory = np.zeros((COUNT, 7 * program.cells + 2 * index.shape[1]))
        launch(
            "pull", spec, [width, fields, known, reduced.externals, program.cells, memory, lam.shape[1], lam, found]
        )  # fmt: skip
        assert np.abs(wanted).max() > 0.0
        assert np.allclose(found, wanted, rtol=CLOSE, atol=CLOSE)
        if part.system.parts == 1:
            wanted, found = np.zeros((COUNT, program.pattern.rows)), np.zeros((COUNT, program.pattern.rows))
            batches.evaluate(
                program.code, program.cells, rows.inputs, rows.outside, reduced.externals, reduced.fields, wanted
            )
            memory = np.zeros((COUNT, program.cells + program.pattern.rows))
            shape = [width, fields, known, reduced.externals, program.cells, memory, program.pattern.rows, found]
            launch("evaluate", spec, shape)
            assert np.allclose(found, wanted, rtol=CLOSE, atol=CLOSE)
