"""Programs on whole batches (b, n): substitute determined unknowns, evaluate rows, multiply by Jᵀ. Each call runs on one thread.

Tiles are filled, run and emptied one after the other, so that their cells stay in the nearest cache. Lane L holds part
L % parts of sample L // parts; an incomplete last tile repeats its last lane, so that no lane ever holds garbage.
Imports kernels only.
"""

from __future__ import annotations

import numpy as np

from snapfm.kernels.numba.compiling import compiled
from snapfm.kernels.numba.packs import full, store
from snapfm.kernels.operations import LANES
from snapfm.kernels.program import (
    tile_gradient,
    tile_hessian,
    tile_linear_gradient,
    tile_partials,
    tile_slopes,
    tile_values,
)


@compiled(nogil=True, error_model="numpy")
def substitute(code, size, inputs, outside, params, unknowns, weights, field):
    """field[:, unknowns] −= row / weight. Read: inputs, outside (1, …), params (b, …), weights; written: field (b, n)."""
    cells, rows = np.empty(size * LANES), np.empty(len(unknowns) * LANES)
    for first in range(0, len(field), LANES):
        fill_cells(inputs, outside, field, params, first, cells)
        tile_values(code, cells, rows)
        for lane in range(min(LANES, len(field) - first)):
            for k in range(len(unknowns)):
                field[first + lane, unknowns[k]] -= rows[k * LANES + lane] / weights[k]


@compiled(nogil=True, error_model="numpy")
def evaluate(code, size, inputs, outside, params, field, out):
    """out (b, rows) = the rows of a program of one part. Read: the rest; written: out."""
    cells, rows = np.empty(size * LANES), np.empty(out.shape[1] * LANES)
    for first in range(0, len(field), LANES):
        fill_cells(inputs, outside, field, params, first, cells)
        tile_values(code, cells, rows)
        for lane in range(min(LANES, len(field) - first)):
            for k in range(out.shape[1]):
                out[first + lane, k] = rows[k * LANES + lane]


@compiled(nogil=True, error_model="numpy")
def pull(code, size, inputs, outside, params, index, multipliers, field, rest):
    """rest += Jᵀλ, λ = multipliers[:, index[part]]. Read: field, multipliers (b, m); written: rest (b, n)."""
    (parts, width), known = index.shape, 1 + outside.shape[1]
    cells, rows, weight = np.empty(size * LANES), np.empty(width * LANES), np.empty(width * LANES)
    adjoint, partial = np.empty(size * LANES), np.empty(5 * LANES * max(size - code.first, 0))
    lanes = len(field) * parts
    for first in range(0, lanes, LANES):
        fill_cells(inputs, outside, field, params, first, cells)
        tile_values(code, cells, rows)
        for lane in range(LANES):
            which = min(first + lane, lanes - 1)
            for k in range(width):
                weight[k * LANES + lane] = multipliers[which // parts, index[which % parts, k]]
        tile_gradient(code, cells, weight, partial, adjoint)
        for lane in range(min(LANES, lanes - first)):
            sample, part = (first + lane) // parts, (first + lane) % parts
            for k in range(inputs.shape[1]):
                rest[sample, inputs[part, k]] += adjoint[(known + k) * LANES + lane]


@compiled(nogil=True, error_model="numpy")
def pull_linear(
    code, size, inputs, outside, params, index, multipliers, nu, field, w, rest, by_params
):  # written: rest, by_params
    """rest += Jᵀν + Σλ∇²row·w, and by_params += the same derivatives by the cells of params; λ, ν = …[:, index[part]].

    Read: field, w (b, n), multipliers, nu (b, m); written: rest (b, n), by_params (b, …), numbered as `params`.
    """
    (parts, width), known = index.shape, 1 + outside.shape[1]
    cells, rows, along = np.empty(size * LANES), np.empty(width * LANES), np.zeros(size * LANES)
    lam, weight = np.empty(width * LANES), np.empty(width * LANES)
    adjoint, out = np.empty(size * LANES), np.empty(size * LANES)
    ops = max(size - code.first, 0)
    partial, turned = np.empty(5 * LANES * ops), np.empty(2 * LANES * ops)
    own, lanes = inputs.shape[1], len(field) * parts
    for first in range(0, lanes, LANES):
        fill_cells(inputs, outside, field, params, first, cells)
        tile_values(code, cells, rows)
        for lane in range(LANES):
            which = min(first + lane, lanes - 1)
            sample, part = which // parts, which % parts
            for k in range(width):
                lam[k * LANES + lane] = multipliers[sample, index[part, k]]
                weight[k * LANES + lane] = nu[sample, index[part, k]]
            for k in range(own):
                along[(known + k) * LANES + lane] = w[sample, inputs[part, k]]
        tile_linear_gradient(code, cells, lam, weight, along, partial, turned, adjoint, out)
        for lane in range(min(LANES, lanes - first)):
            sample, part = (first + lane) // parts, (first + lane) % parts
            for k in range(own):
                rest[sample, inputs[part, k]] += out[(known + k) * LANES + lane]
            for k in range(outside.shape[1]):
                by_params[sample, outside[part, k]] += out[(1 + k) * LANES + lane]


@compiled(nogil=True, error_model="numpy")
def determine(rest, unknowns, weights, rows, multipliers):
    """multipliers[:, rows] = −rest[:, unknowns] / weight: the values that make determined unknowns stationary."""
    for sample in range(len(rest)):
        for k in range(len(unknowns)):
            multipliers[sample, rows[k]] = -rest[sample, unknowns[k]] / weights[k]


@compiled(nogil=True, error_model="numpy")
def fill_cells(inputs, outside, field, params, first, cells):
    """Write the constant, the params and the unknowns of lanes first .. first + LANES − 1. Written: cells."""
    parts, count = outside.shape
    lanes = len(field) * parts
    store(cells, 0, full(1.0))
    for lane in range(LANES):
        which = min(first + lane, lanes - 1)
        line, known = field[which // parts], params[which // parts]
        part = which % parts
        for k in range(count):
            cells[(1 + k) * LANES + lane] = known[outside[part, k]]
        for k in range(inputs.shape[1]):
            cells[(1 + count + k) * LANES + lane] = line[inputs[part, k]]


@compiled(nogil=True, error_model="numpy")
def derivatives(code, size, slots, inputs, outside, params, field, multipliers, entries, curvature):
    """Differentiate the rows of a program of one part; Hessian values only where `curvature` has columns.

    Read: field (b, n), multipliers (b, m); written: entries (b, nnz), where they vary, and curvature (b, …).
    """
    height, width = multipliers.shape[1], curvature.shape[1]
    cells, rows = np.empty(size * LANES), np.empty(max(height, len(code.row_ptr) - 1) * LANES)
    weight, adjoint = np.empty(height * LANES), np.empty(max(size - code.first, 0) * LANES)
    partial = np.empty(5 * LANES * max(size - code.first, 0))
    slope, left, right = np.empty((slots + 1) * LANES), np.empty(slots * LANES), np.empty(slots * LANES)
    found, hessian = np.zeros(entries.shape[1] * LANES), np.empty(width * LANES)
    for first in range(0, len(field), LANES):
        fill_cells(inputs, outside, field, params, first, cells)
        tile_values(code, cells, rows)
        tile_partials(code, cells, width > 0, partial)
        tile_slopes(code, partial, slope, left, right, found)
        if width > 0:
            for lane in range(LANES):
                which = min(first + lane, len(field) - 1)
                for k in range(height):
                    weight[k * LANES + lane] = multipliers[which, k]
            tile_hessian(code, weight, left, right, partial, adjoint, hessian)
        varying = code.varying
        for lane in range(min(LANES, len(field) - first)):
            for p in varying:
                entries[first + lane, p] = found[p * LANES + lane]
            for p in range(width):
                curvature[first + lane, p] = hessian[p * LANES + lane]
