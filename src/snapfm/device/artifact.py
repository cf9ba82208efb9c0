"""The PTX that is shipped, and a hash of the sources it was made from. Imports nothing of snapfm."""

from __future__ import annotations

import gzip
import hashlib
import json
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

_HERE = Path(__file__).parent
PATH = _HERE / "kernels.json.gz"
# Modules of snapfm.kernels that entries call, directly or not, and that device.target does not replace.
_KERNELS = (
    "batches", "coordinates", "copies", "coupled", "direction", "filter", "interior", "lanes", "layout", "ldl", "lu", "march",
    "newton", "operations", "operators", "panels", "point", "program", "restoration", "runs", "soft_rows",
)  # fmt: skip


@dataclass(frozen=True)
class Artifact:
    """PTX per entry of device.entries, what compiled it, and the hash of its sources."""

    sources: str
    compiler: str
    ptx: dict[str, str]

    def packed(self) -> bytes:
        """Write as compressed JSON: the same bytes for the same content."""
        return gzip.compress(json.dumps(asdict(self), sort_keys=True).encode(), mtime=0)

    @classmethod
    def unpacked(cls, data: bytes) -> Artifact:
        """Read what `packed` wrote."""
        return cls(**json.loads(gzip.decompress(data)))


@cache
def shipped() -> Artifact:
    """Read the PTX of this installation."""
    return Artifact.unpacked(PATH.read_bytes())


def sources() -> str:
    """Hash the files that the PTX is made from."""
    kernels = [_HERE.parent / "kernels" / f"{name}.py" for name in _KERNELS]
    here = [_HERE / f"{name}.py" for name in ("reading", "systems", "entries", "build")]
    digest = hashlib.sha256()
    for file in [*kernels, *sorted((_HERE / "target").glob("*.py")), *here]:
        digest.update(file.name.encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()
