"""Which laws simulated fields obey: every law of every problem, as `snapfm audit all` judges it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import torch

from snapfm_bench.audit import audit

SAMPLES = 8
SEED = 0


def run() -> dict[str, Any]:
    torch.set_num_threads(1)  # the fields are judged one by one, too small to share among threads
    return {"samples": SAMPLES, "seed": SEED, "rows": [asdict(one) for one in audit("all", SAMPLES, SEED)]}
