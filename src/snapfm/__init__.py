"""Flow models that obey physical laws: exact, certified, batched projection for PyTorch.

Public names and subpackages are imported when they are first used, so that `snapfm --help` and completion do not wait for torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

__all__ = [
    "Bounds", "Equality", "Inequality", "Law", "Metric", "Oracle", "Projection", "Projector", "Samples", "Spread", "Status",
    "plot", "problem", "sample",
]  # fmt: skip


def problem(name: str, **settings: Any) -> Any:
    """Build a benchmark problem of the package snapfm_bench by name: see snapfm_bench.problem."""
    from snapfm.errors import bench

    return bench("snapfm.problem").problem(name, **settings)


if TYPE_CHECKING:
    from snapfm import plot
    from snapfm.errors import Status
    from snapfm.laws import Bounds, Equality, Inequality, Law, Oracle
    from snapfm.project import Metric, Projection, Projector
    from snapfm.sampling import Samples, Spread
    from snapfm.sampling.sample import sample
else:
    _HOMES = {
        "errors": ("Status",),
        "laws": ("Bounds", "Equality", "Inequality", "Law", "Oracle"),
        "project": ("Metric", "Projection", "Projector"),
        "sampling": ("Samples", "Spread", "sample"),
    }

    def __getattr__(name: str) -> object:
        """Import a public name from its home, or a subpackage such as `snapfm.adapters`."""
        for home, names in _HOMES.items():
            if name in names:
                return globals().setdefault(name, getattr(import_module(f"snapfm.{home}"), name))
        if not name.startswith("_"):
            try:
                return import_module(f"snapfm.{name}")
            except ModuleNotFoundError as missing:
                if missing.name != f"snapfm.{name}":
                    raise
        raise AttributeError(f"module 'snapfm' has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
