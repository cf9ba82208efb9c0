"""The lines of Python that repeat the demonstration, written from its record; a test runs them.

Imports nothing of snapfm but the record.
"""

from __future__ import annotations

from snapfm.demo.record import Record


def snippet(record: Record) -> str:
    """Write the lawful run as a user would: the laws as plain functions of one field, then one call."""
    nx = record.shape[0]
    return f"""\
import math, torch, snapfm
from snapfm.flow import shipped

x = torch.linspace(0, 2 * math.pi, {nx}, dtype=torch.float64)
params = {{"u0": torch.sin(x + math.pi / 4)[None]}}  # what the laws ask for
laws = [
    snapfm.Equality("initial", lambda u, p: u[:, 0] - p["u0"]),
    snapfm.Equality("mass", lambda u, p: u[:-1, 1:].sum(0) - p["u0"][:-1].sum()),
]
project = snapfm.Projector(laws, shape={record.shape}, params=params, tolerance={record.tolerance:g})
velocity = shipped("{record.model}")  # or your own: velocity(u, tau)
generator = torch.Generator().manual_seed({record.seed})
out = snapfm.sample(velocity, project, params=params, count={record.count}, steps={record.steps}, generator=generator)
"""
