"""What a file holds of each sample's last projection, and what becomes of samples that do not converge."""

from __future__ import annotations

from torch import Tensor

from snapfm.errors import ProjectionFailed, Status
from snapfm.files.layout import Variable
from snapfm.project import Projection

NEVER, NEVER_COMPUTED = -1, "NEVER_COMPUTED"  # status of samples whose block was given up: the fill value of a file

# Variables of the last projection of each sample, stored with the laws' params.
CERTIFICATE = {
    "status": Variable(
        "int8",
        {
            "long_name": "what became of the sample",
            "flag_values": [*(int(status) for status in Status), NEVER],
            "flag_meanings": " ".join([*(status.name.lower() for status in Status), NEVER_COMPUTED.lower()]),
        },
    ),
    "violation": Variable("float64", {"long_name": "largest violation of a law, in its own units, in float64"}),
    "stationarity": Variable("float64", {"long_name": "what is left of u - û + Jᵀλ in the last projection"}),
    "iterations": Variable("int64", {"long_name": "iterations of the last projection"}),
    "distance": Variable("float64", {"long_name": "length of the last projection, ‖u - û‖₂"}),
}


def certificate_of(projection: Projection) -> dict[str, Tensor]:
    """Return the variables of a certificate, by name."""
    return {name: getattr(projection, name) for name in CERTIFICATE}


def refuse_failed(certificate: Projection, start: int, stop: int) -> None:
    """Raise ProjectionFailed if any of the samples start .. stop − 1, the first of a block, did not converge.

    The message names samples by their numbers in the whole run, not in the block.
    """
    failed = [place for place, ok in enumerate(certificate.converged[: stop - start].tolist()) if not ok]
    if not failed:
        return
    which = f"sample {start} is" if stop - start == 1 else f"samples {start} to {stop - 1} are"
    lines = [f"{which} expected to converge; {len(failed)} of {stop - start} failed:"]
    lines += certificate.failures(failed, start)
    lines.append(
        "Samples before these are kept. Go on with --keep-failed (on_failure='keep'), which writes failed samples too, marked."
    )
    raise ProjectionFailed("\n".join(lines))
