"""Velocity networks shipped inside the package, by name."""

from __future__ import annotations

from importlib.resources import as_file, files

from snapfm.errors import UnknownName
from snapfm.flow.checkpoint import MODEL, load_checkpoint
from snapfm.flow.presets import VelocityNetwork

_FOLDER = files("snapfm") / "models"


def shipped_names() -> list[str]:
    """List the names `shipped` accepts."""
    return sorted(entry.name for entry in _FOLDER.iterdir() if (entry / MODEL).is_file()) if _FOLDER.is_dir() else []


def shipped(name: str) -> VelocityNetwork:
    """Load a shipped velocity network; its record.json says how it was trained and how good its samples are."""
    if name not in shipped_names():
        raise UnknownName(
            f"shipped(name) expects one of {shipped_names()}; got {name!r}. Train another with `snapfm train`, and "
            "load it with load_checkpoint(folder)."
        )
    with as_file(_FOLDER / name) as folder:
        return load_checkpoint(folder).network
