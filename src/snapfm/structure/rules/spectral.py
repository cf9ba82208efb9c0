"""Rules for Fourier transforms: linear, and dense along the transformed axes."""

from __future__ import annotations

from snapfm.structure.rules.reduction import labels
from snapfm.structure.rules.registry import Call, Found, flat, positions, rule


@rule("_fft_r2c", "_fft_c2r", "_fft_c2c")
def transform(call: Call) -> Found:
    """Let every coefficient read its whole line (plane, block) and nothing else."""
    operand, axes = call.args[0], list(call.args[1])
    shape = operand.value.shape
    label, size = labels(shape, axes)
    merged = call.reads(operand).group(label, flat(positions(shape)), size)
    reduced = {axis % len(shape) for axis in axes}
    kept = tuple(1 if i in reduced else extent for i, extent in enumerate(shape))
    return merged.gather(flat(positions(kept).expand(call.value.shape)))
