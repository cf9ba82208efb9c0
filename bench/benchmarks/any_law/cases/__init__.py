"""All cases, a file per kind; importing this package fills `case.CASES`, those of the issue's table first."""

from benchmarks.any_law.cases import (
    elliptic,
    evolution,
    flows,
    graphs,
    hyperbolic,
    kinks,
    learned,
    matrices,
    profiles,
    vector_fields,
)

__all__ = [
    "elliptic", "evolution", "flows", "graphs", "hyperbolic", "kinks", "learned", "matrices", "profiles", "vector_fields",
]  # fmt: skip
