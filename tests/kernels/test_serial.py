"""Kernels work on the thread that calls them: numba's own threads would share OpenMP with torch, and hang forked children."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import snapfm.kernels


def test_no_kernel_asks_for_threads_of_numba():
    for file in Path(snapfm.kernels.__file__).parent.rglob("*.py"):
        text = file.read_text()
        assert "prange" not in text, file
        assert "parallel=" not in text, file


def test_projections_and_gradients_start_no_threads_of_numba():
    script = textwrap.dedent(
        """
        import torch
        from numba.np.ufunc import parallel
        from snapfm import Equality, Projector
        laws = [
            lambda u, p: u.sum(0) - 1.0,
            lambda u, p: u.square().sum(0) - 1.0,
            lambda u, p: torch.logsumexp(u, 0) - 1.0,
        ]
        before = torch.get_num_threads()
        for law in laws:
            u_hat = torch.rand(40, 4, 3, dtype=torch.float64, requires_grad=True)
            Projector([Equality("law", law)], (4, 3))(u_hat).raise_for_status().u.sum().backward()
        print(parallel._is_initialized, torch.get_num_threads() == before)
        """
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=600)
    assert done.stdout.split() == ["False", "True"]
