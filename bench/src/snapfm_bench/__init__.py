"""The benchmark of snapfm: the paper's problems with data and trained models, rivals, suites, an independent judge, and pages.

`problem` builds a problem by name; `snapfm_bench.flow.shipped` loads a trained model; `snapfm_bench.peers.catalog.METHODS` lists
the rivals. Commands join the command line of snapfm through the entry points `snapfm.commands`.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__all__ = ["problem"]

if TYPE_CHECKING:
    from snapfm_bench.problems import problem
else:

    def __getattr__(name: str) -> object:
        """Import `problem`, or a subpackage such as `snapfm_bench.flow`, when it is first used."""
        if name == "problem":
            return globals().setdefault(name, import_module("snapfm_bench.problems").problem)
        if not name.startswith("_"):
            try:
                return import_module(f"snapfm_bench.{name}")
            except ModuleNotFoundError as missing:
                if missing.name != f"snapfm_bench.{name}":
                    raise
        raise AttributeError(f"module 'snapfm_bench' has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
