"""Shared sets behave as written-out ones, and laws with whole transforms never write more than they need."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from snapfm import Equality
from snapfm.compile import compile_laws, program
from snapfm.compile.lower import regions
from snapfm.compile.sparsity import pattern
from snapfm.compile.sparsity.pattern import NONE, GrowingSets, Sets, SharedSets, TooDense, stacked, union
from snapfm.errors import LawError


def listed(sets):
    return [sets.indices[a:b].tolist() for a, b in zip(sets.indptr, sets.indptr[1:])]


def written(sets):
    return Sets(sets.indptr, sets.indices, sets.width)


@pytest.fixture
def shared():
    base = Sets(np.array([0, 2, 2, 5]), np.array([1, 4, 0, 1, 3]), 6)
    return base.shared(np.array([2, 0, NONE, 2, 1, 0]))


def test_what_is_shared_is_what_a_gather_writes_out(shared):
    assert isinstance(shared, SharedSets)
    assert listed(shared) == [[0, 1, 3], [1, 4], [], [0, 1, 3], [], [1, 4]]
    assert (shared.size, shared.nnz, shared.counts.tolist()) == (6, 10, [3, 2, 0, 3, 0, 2])


def test_moves_agree_with_those_of_written_out_sets(shared):
    plain, other = written(shared), Sets(np.arange(7), np.array([5, 5, 0, 1, 2, 3]), 6)
    source = np.array([5, NONE, 0, 0])
    label, picked = np.array([1, 0, 1, 1, 2]), np.array([0, 1, 3, 5, 2])
    present = np.array([True, False, True, True, False, True])
    assert listed(shared.gather(source)) == listed(plain.gather(source))
    assert listed(shared.group(label, picked, 4)) == listed(plain.group(label, picked, 4))
    assert listed(shared.keep(present)) == listed(plain.keep(present))
    assert listed(union([shared, other])) == listed(union([plain, other]))
    assert listed(union([shared, shared])) == listed(plain)
    assert listed(stacked([other, shared])) == listed(stacked([other, plain]))


def test_writing_out_too_much_is_refused_before_memory_is_taken():
    whole = Sets(np.array([0, 1000]), np.arange(1000), 1000).shared(np.zeros(10**6, np.int64))
    assert whole.nnz == 10**9
    with pytest.raises(TooDense, match="got 1,000,000,000"):
        _ = whole.indices


def test_growing_sets_keep_what_was_there():
    growing = GrowingSets(4)
    growing.append(Sets(np.array([0, 2, 3]), np.array([0, 1, 3]), 4))
    early = growing.sets()
    growing.reach(4)
    growing.append(Sets(np.array([0, 3]), np.array([0, 2, 3]), 4))
    assert listed(growing.sets()) == [[0, 1], [3], [], [], [0, 2, 3]]
    assert listed(early) == [[0, 1], [3]]
    growing.cut(1)
    growing.append(Sets(np.array([0, 1]), np.array([2]), 4))
    assert listed(growing.sets()) == [[0, 1], [2]]


def test_a_few_modes_of_a_large_plane_are_probed_row_by_row(monkeypatch):
    """Eight rows of a 128 × 128 transform, whose matrix would have 10⁸ entries: one product each, plus checks."""
    calls = []
    probe = regions.probe

    def counted(function, found, *settings):
        return probe(lambda x: (calls.append(1), function(x))[1], found, *settings)

    monkeypatch.setattr(regions, "probe", counted)

    def modes(u, p):
        return torch.view_as_real(torch.fft.rfft2(u)[1:3, 1:3]).flatten()

    laws = compile_laws([Equality("modes", modes)], (128, 128))
    # Cosine and sine of k·x vanish at two angles each: 256 points for k = (1, 1), (1, 2), (2, 1), and 512 for (2, 2).
    assert (laws.rows, laws.nnz, laws.affine) == (8, 8 * 128 * 128 - 2 * (3 * 256 + 512), True)
    assert len(calls) <= 4  # offset, start of the products, check
    u = torch.rand(1, 128, 128, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    slopes = laws.pattern.csr(laws.constants)
    assert np.allclose(slopes @ u.reshape(-1).numpy(), modes(u[0], {}).numpy(), atol=1e-9)


def test_a_law_that_no_pattern_can_hold_is_refused(monkeypatch):
    monkeypatch.setattr(pattern, "ENTRY_LIMIT", 1000)
    monkeypatch.setattr(regions, "ENTRY_LIMIT", 1000)
    plane = Equality("plane", lambda u, p: torch.fft.ifft2(torch.fft.fft2(u) * torch.arange(64.0).reshape(8, 8)).real)
    with pytest.raises(
        LawError, match=r"law 'plane' expects rows with at most 1,000 entries in all; got 4,096.*Keep fewer"
    ):
        compile_laws([plane], (8, 8))


def test_slopes_of_too_many_terms_go_to_torch(monkeypatch):
    def transport(u, p):
        wave = torch.fft.fftfreq(16, 1 / 16, dtype=torch.float64)
        slope = torch.fft.ifft(1j * wave * torch.fft.fft(u)).real
        return torch.fft.ifft(torch.fft.fft(u * slope) * (wave.abs() < 5)).real

    laws = compile_laws([Equality("transport", transport)], (3, 16))
    assert not laws.opaque
    monkeypatch.setattr(program, "TERM_LIMIT", 1000)
    monkeypatch.setattr(program, "_TERMS_AN_ENTRY", 1)
    by_torch = compile_laws([Equality("transport", transport)], (3, 16))
    assert by_torch.opaque[0].reason.startswith("slopes of ")
    assert by_torch.opaque[0].reason.endswith(" terms (limit 1,000)")
    u = torch.rand(2, 3, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    one = laws.pattern.csr(laws.jacobian(u, {})[0].numpy()).toarray()
    other = by_torch.pattern.csr(by_torch.jacobian(u, {})[0].numpy()).toarray()
    assert np.allclose(one, other, atol=1e-12)
