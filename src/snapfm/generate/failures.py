"""What is said of samples that did not converge: by their numbers in the whole run, not in the block they rode in."""

from __future__ import annotations

import math

from snapfm.errors import ProjectionFailed, Status
from snapfm.project import Projection

_LISTED = 8  # failed samples named in a message; the rest are counted


def refuse_failed(certificate: Projection, start: int, stop: int) -> None:
    """Raise ProjectionFailed if any of the samples start .. stop − 1, the first of a block, did not converge."""
    failed = [place for place, ok in enumerate(certificate.converged[: stop - start].tolist()) if not ok]
    if not failed:
        return
    lines = [f"samples {start} to {stop - 1} are expected to converge; {len(failed)} of them failed:"]
    for place in failed[:_LISTED]:
        status = Status(int(certificate.status[place]))
        lines.append(f"  sample {start + place}: {status.name}, {_worst(certificate, place)}; {status.advice}.")
    if len(failed) > _LISTED:
        lines.append(f"  … and {len(failed) - _LISTED} more")
    lines.append(
        "Samples before these are kept. Go on with --keep-failed (on_failure='keep'), which writes failed samples too, marked."
    )
    raise ProjectionFailed("\n".join(lines))


def _worst(certificate: Projection, place: int) -> str:
    """Name the law that is broken most; what is not a number is worse than all that is."""
    sizes = {name: float(value[place]) for name, value in certificate.by_law.items()}
    law, size = max(sizes.items(), key=lambda item: math.inf if math.isnan(item[1]) else item[1])
    return f"law '{law}' is off by {size:.1e} (tolerance {certificate.tolerance:.0e})"
