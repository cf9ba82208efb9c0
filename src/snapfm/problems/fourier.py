"""Fields on a periodic square as sums of waves: wave numbers, and the same field on more or fewer points."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import scipy.fft

Array = npt.NDArray[np.float64]
Waves = npt.NDArray[np.complex128]


def wavenumbers(size: int) -> tuple[Array, Array]:
    """Give 2πk along both axes, shaped to broadcast with the half spectrum (size, size // 2 + 1)."""
    return (
        2 * np.pi * size * scipy.fft.fftfreq(size)[:, None],
        2 * np.pi * size * scipy.fft.rfftfreq(size)[None, :],
    )


def regrid(spectrum: Waves, points: int, size: int) -> Array:
    """Evaluate a half spectrum (..., points, points // 2 + 1) on size × size points, both x_j = j/size.

    Waves that the coarser of the two grids cannot tell apart are left out, so the mean over points stays the mean. Any
    size is meant, odd ones too.
    """
    kept = (min(points, size) - 1) // 2  # highest wave number that both resolve, without the Nyquist wave
    wide = np.zeros((*spectrum.shape[:-2], size, size // 2 + 1), dtype=np.complex128)
    wide[..., : kept + 1, : kept + 1] = spectrum[..., : kept + 1, : kept + 1]
    if kept:
        wide[..., -kept:, : kept + 1] = spectrum[..., -kept:, : kept + 1]
    return np.asarray(scipy.fft.irfft2(wide * (size / points) ** 2, s=(size, size)))
