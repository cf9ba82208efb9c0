"""The hook of hatchling that puts compiled kernels into a wheel (`make wheel`), which is then one for this system and Python.

Without SNAPFM_OBJECTS, a folder that `snapfm kernels --ship` wrote, the wheel is one for all, and compiles at first use.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class MachineCode(BuildHookInterface):
    """Add the folder, and say what the wheel is for."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Change what is built; hatchling calls this."""
        folder = os.environ.get("SNAPFM_OBJECTS")
        if not folder or version != "standard":
            return
        python = f"cp{sys.version_info.major}{sys.version_info.minor}"
        build_data["pure_python"] = False
        build_data["tag"] = f"{python}-{python}-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
        build_data["force_include"][os.path.abspath(folder)] = "snapfm/kernels/objects"
