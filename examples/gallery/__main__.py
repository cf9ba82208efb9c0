"""`python examples/gallery [FOLDER]`: run every script of the gallery; the pictures go to FOLDER, by default build/gallery."""

from __future__ import annotations

import runpy
from pathlib import Path

from show import SCRIPTS

for script in SCRIPTS:
    print(f"{Path(script).stem}: ", end="", flush=True)
    runpy.run_path(str(script), run_name="__main__")
