"""Random streams per sample: what sample i draws depends on (seed, i) alone, never on its batch.

Simulators and samplers share this rule. Imports nothing of snapfm.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

_SEED_BITS = 63  # torch.Generator takes seeds up to 2**64 - 1; 63 bits stay positive as int64 everywhere


def base_seed(generator: torch.Generator | None) -> int:
    """Draw the seed of a run, advancing the generator, so that two calls with one generator differ."""
    return int(torch.randint(2**_SEED_BITS - 1, (), generator=generator, dtype=torch.int64, device=_device(generator)))


def stream(seed: int, index: int) -> torch.Generator:
    """Return the generator of sample `index` of the run `seed`, on the CPU."""
    word = np.random.SeedSequence(entropy=seed, spawn_key=(index,)).generate_state(1, np.uint64)[0]
    return torch.Generator().manual_seed(int(word) >> 1)


def draw(seed: int, start: int, count: int, one: Callable[[torch.Generator], Tensor]) -> Tensor:
    """Stack `one(stream)` for samples start .. start + count - 1."""
    return torch.stack([one(stream(seed, index)) for index in range(start, start + count)])


def _device(generator: torch.Generator | None) -> torch.device:
    return torch.device("cpu") if generator is None else generator.device
