"""Teams on the CPU: one thread, which does everything."""

from __future__ import annotations

import numpy as np
from numba import njit

from snapfm.kernels.numba.packs import WIDTH, add, load, store
from snapfm.kernels.teams import added, greatest, join, leads, team, team_between


def test_a_team_of_one_thread_does_all_passes_in_order():
    @njit
    def passes(first, last):
        seen = list(team(last))
        join()
        return seen, list(team_between(first, last)), leads()

    assert passes(2, 5) == ([0, 1, 2, 3, 4], [2, 3, 4], True)


def test_sums_and_maxima_of_one_thread_are_its_own_numbers():
    @njit
    def reduced(packs, number, count):
        store(packs, 0, added(add(load(packs, 0), greatest(load(packs, 1)))))
        return added(number), greatest(number), added(count), greatest(count)

    packs = np.arange(2.0 * WIDTH)
    found = reduced(packs, np.nan, 3)
    assert np.isnan(found[:2]).all()
    assert found[2:] == (3, 3)
    assert np.array_equal(packs[:WIDTH], 2.0 * np.arange(WIDTH) + WIDTH)
