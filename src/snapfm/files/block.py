"""One block of samples: drawn in full, certified, and cut to those that the file holds; and the sampler as a file names it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, cast

import torch
from torch import Tensor

from snapfm.files.certificate import certificate_of, refuse_failed
from snapfm.files.engines import Report
from snapfm.files.layout import Drawn
from snapfm.project import Projector
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
    certificate = found.projection
    assert certificate is not None  # every sampler with a projector ends with a projection
    if on_failure == "raise":
        refuse_failed(certificate, start, stop)
    values = {
        "u": found.u,
        **{name: value.expand(block, *value.shape[1:]) for name, value in params.items()},
        **certificate_of(certificate),
    }
    return Drawn({name: value[: stop - start].cpu().numpy() for name, value in values.items()}, found.seconds)


def described(sampler: Sampler) -> dict[str, Any]:
    """Return name and settings of a sampler, in values that a file gives back as they are."""
    settings: dict[str, Any] = json.loads(json.dumps(asdict(cast(Any, sampler))))
    return {"name": type(sampler).__name__, **settings}
