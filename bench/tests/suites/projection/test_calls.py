"""What a projection cell keeps for pictures: all of a small field, few points of a large one, the ends always."""

from __future__ import annotations

import numpy as np
import pytest

from snapfm_bench.suites.projection.cell import thinned


@pytest.mark.parametrize("shape", [(2, 101, 101), (1, 16, 16, 50), (2, 3)])
def test_small_fields_are_kept_whole(shape: tuple[int, ...]):
    fields = np.random.default_rng(0).random(shape, dtype=np.float32)
    assert np.array_equal(thinned(fields), fields)


@pytest.mark.parametrize("shape", [(2, 1001, 1001), (1, 64, 64, 245), (1, 30_000, 2)])
def test_large_fields_lose_points_evenly_and_keep_both_ends(shape: tuple[int, ...]):
    across = [np.linspace(0, 1, size, dtype=np.float32) for size in shape[1:]]
    fields = np.broadcast_to(sum(np.meshgrid(*across, indexing="ij")), shape)
    found = thinned(fields)
    assert found.ndim == fields.ndim
    assert 5_000 < found[0].size <= 42_500  # an axis of two points cannot give its share
    corners = (slice(None), *(slice(None, None, extent - 1) for extent in found.shape[1:]))
    assert np.array_equal(found[corners], fields[(slice(None), *(slice(None, None, size - 1) for size in shape[1:]))])
    steps = np.diff(found[0], axis=0)
    assert steps.max() <= 2.1 * steps.min()
