"""The sample quality that the PCFM paper published: MMSE and SMSE, of its own models and data, for comparison of shapes only.

Figures are in units of 1e-2, as printed. Imports nothing of snapfm.
"""

from __future__ import annotations

UNIT = 1e-2

# Published name of a sampler: ours.
NAMES = {
    "FFM": "flow",
    "DiffusionPDE": "guidance",
    "PDM": "projected",
    "D-Flow": "dflow",
    "ECI": "eci",
    "PCFM": "pcfm",
}

# task: sampler: (MMSE, SMSE); "–" in the paper is None.
PUBLISHED: dict[str, dict[str, tuple[float, float] | None]] = {
    "heat": {
        "flow": (4.56, 3.51), "guidance": (4.49, 3.93), "projected": (0.45, 0.02), "dflow": (1.97, 1.14),
        "eci": (0.697, 0.973), "pcfm": (0.241, 0.937),
    },
    "navier-stokes": {
        "flow": (16.5, 7.90), "guidance": (17.4, 9.48), "projected": (12.2, 6.61), "dflow": None,
        "eci": (5.23, 7.28), "pcfm": (4.59, 4.17),
    },
    "reaction-diffusion": {
        "flow": (2.92, 2.54), "guidance": (3.16, 2.54), "projected": (1.74, 0.43), "dflow": (0.318, 6.86),
        "eci": (0.324, 0.060), "pcfm": (0.026, 0.583),
    },
    "burgers-bc": {
        "flow": (4.86, 1.38), "guidance": (5.42, 1.30), "projected": (11.8, 2.67), "dflow": (0.224, 0.948),
        "eci": (0.359, 0.089), "pcfm": (0.335, 0.123),
    },
    "burgers-ic": {
        "flow": (13.7, 7.90), "guidance": (14.3, 8.06), "projected": (153.0, 2.62), "dflow": (9.97, 7.91),
        "eci": (10.0, 6.65), "pcfm": (0.052, 0.272),
    },
}  # fmt: skip
