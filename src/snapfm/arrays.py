"""Names for the numpy arrays that every package passes around."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Values: TypeAlias = npt.NDArray[np.float64]
Index: TypeAlias = npt.NDArray[np.int64]
Table: TypeAlias = npt.NDArray[np.int32]  # long lists of places: half the memory, and the time to read them
Mask: TypeAlias = npt.NDArray[np.bool_]
