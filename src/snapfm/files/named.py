"""Objects of a user's module, named on the command line as module:name, and what identifies them in a file."""

from __future__ import annotations

import hashlib
import importlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from snapfm.errors import SnapfmError, UnknownName
from snapfm.laws import Law
from snapfm.project import checks
from snapfm.text import meant


@dataclass(frozen=True)
class Named:
    """An object named module:name; `folder` is searched too, so that other processes find what this one finds."""

    option: str  # as the caller wrote it, for messages
    text: str
    folder: str

    def load(self) -> Any:
        """Import the module and return the object."""
        module, colon, name = self.text.partition(":")
        if not (module and colon and name):
            raise UnknownName(
                f"{self.option} expects module:name; got {self.text!r}. Write it as in {self.option} mine:laws."
            )
        if module.endswith(".py"):
            raise UnknownName(
                f"{self.option} expects a module, not a file; got {module!r}. Write {self.option} "
                f"{Path(module).stem}:{name}, in the folder of the file."
            )
        if self.folder not in sys.path:
            sys.path.insert(0, self.folder)
        try:
            found = importlib.import_module(module)
        except SnapfmError:
            raise
        except Exception as cause:
            raise UnknownName(
                f"{self.option} expects a module that can be imported; {module!r} raised {type(cause).__name__}: {cause}. "
                "Start in the folder it is in, or set PYTHONPATH."
            ) from cause
        for part in name.split("."):
            if not hasattr(found, part):
                raise UnknownName(
                    f"{self.option} expects '{name}' in module {module}; it has none. {meant(part, dir(found))}Check the name."
                )
            found = getattr(found, part)
        return found

    def laws(self) -> Sequence[Law]:
        """Return the list of laws: the object itself, or what it returns as a function without arguments."""
        found = self.load()
        return checks.check_laws(found() if callable(found) else found)

    def identity(self) -> dict[str, str]:
        """Return the name and the checksum of the module's file; files it imports are not included."""
        self.load()
        file = getattr(sys.modules[self.text.partition(":")[0]], "__file__", None)
        content = Path(file).read_bytes() if file is not None else b""
        return {"name": self.text, "sha256": hashlib.sha256(content).hexdigest()}


def named(option: str, text: str) -> Named:
    """Name an object as module:name; the current folder is searched too, as for `python -m`."""
    return Named(option, text, str(Path.cwd()))
