"""One block of samples: drawn in full, certified, and cut to those that the file holds; and the sampler as a file names it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, cast

import torch
from torch import Tensor

from snapfm.errors import ProjectionFailed, Status
from snapfm.files.engines import Report
from snapfm.files.layout import Drawn, Variable
from snapfm.project import Projection, Projector
from snapfm.sampling import Sampler, sample
from snapfm.sampling.task import Velocity
from snapfm.solve.base import OnFailure


def drawn_block(
    velocity: Velocity, projector: Projector, params: Mapping[str, Tensor], generator: torch.Generator, *, start: int,
    stop: int, block: int, steps: int, dtype: str, sampler: Sampler, on_failure: OnFailure, report: Report,
) -> Drawn:  # fmt: skip
    """Draw `block` samples from `start` on and keep those before `stop`.

    Rounding in networks depends on the batch size, so a last block is drawn in full too.
    """
    found = sample(
        velocity, projector, params, block, steps, generator, sampler=sampler, dtype=getattr(torch, dtype), first=start,
        on_failure="keep", progress=lambda step, steps: report(step / steps),
    )  # fmt: skip
    assert found.projection is not None  # every sampler with a projector ends with a projection
    kept = slice(stop - start)
    certificate = found.projection.select(kept)
    if on_failure == "raise":
        refuse_failed(certificate, start)
    values = {
        "u": found.u[kept],
        **{name: value.expand(block, *value.shape[1:])[kept] for name, value in params.items()},
        **certificate_of(certificate),
    }
    return Drawn({name: value.cpu().numpy() for name, value in values.items()}, found.seconds)


def described(sampler: Sampler) -> dict[str, Any]:
    """Return name and settings of a sampler, in values that a file gives back as they are."""
    settings: dict[str, Any] = json.loads(json.dumps(asdict(cast(Any, sampler))))
    return {"name": type(sampler).__name__, **settings}


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


def refuse_failed(certificate: Projection, start: int) -> None:
    """Raise ProjectionFailed if any sample did not converge; `start` is the number of the first one in the whole run."""
    failed, count = torch.nonzero(~certificate.converged).flatten().tolist(), len(certificate.status)
    if not failed:
        return
    which = f"sample {start} is" if count == 1 else f"samples {start} to {start + count - 1} are"
    lines = [f"{which} expected to converge; {len(failed)} of {count} failed:"]
    lines += certificate.failures(failed, start)
    lines.append(
        "Samples before these are kept. Go on with --keep-failed (on_failure='keep'), which writes failed samples too, marked."
    )
    raise ProjectionFailed("\n".join(lines))
