"""All cases, a file per kind; importing this package fills `case.CASES`."""

from benchmarks.any_law.cases import (
    balances,
    elliptic,
    evolution,
    flows,
    graphs,
    hyperbolic,
    kinks,
    learned,
    matrices,
    meshes,
    motion,
    networks,
    orbits,
    profiles,
    spectra,
    totals,
    vector_fields,
)

__all__ = [
    "balances", "elliptic", "evolution", "flows", "graphs", "hyperbolic", "kinks", "learned", "matrices", "meshes", "motion",
    "networks", "orbits", "profiles", "spectra", "totals", "vector_fields",
]  # fmt: skip
