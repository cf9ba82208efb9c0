"""Inputs of a case: fields to project and the params of its laws, made once, the same bytes for every method.

Recorded inputs are what our projector receives in constrained sampling at given flow times; noisy ones are projected truth with
noise. Kept as DIR/inputs/CASE.npz with a fingerprint of what they were made from and a digest of their bytes.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from snapfm.errors import DataError
from snapfm.laws import Params
from snapfm.project import Moved, Projection, Projector
from snapfm.sampling import sample
from snapfm_bench.flow import shipped, shipped_names
from snapfm_bench.machine import digest
from snapfm_bench.record import npz
from snapfm_bench.suites.projection.suite import Case, ProjectionSuite

FOLDER = "inputs"

_PARAMS_SEED, _NOISE_SEED = 1, 2  # added to the suite's: conditions, flow noise and input noise share no random number
_PARAM = "param:"  # before the names of arrays that are params


@dataclass(frozen=True)
class Inputs:
    """Batches (b, *shape) by label, in order, with the params of their laws; float64."""

    fields: Mapping[str, Tensor]
    params: dict[str, Tensor]
    rows: int  # of the laws

    def digest(self) -> str:
        """Identify them by their bytes."""
        found = hashlib.sha256()
        for name, values in [*self.fields.items(), *sorted(self.params.items())]:
            found.update(f"{name} {values.dtype} {tuple(values.shape)}\n".encode())
            found.update(np.ascontiguousarray(values.numpy()).data)
        return found.hexdigest()[:16]

    def middle(self) -> tuple[str, Tensor]:
        """Return the input that is shown where there is room for one."""
        labels = list(self.fields)
        label = labels[len(labels) // 2]
        return label, self.fields[label]


@dataclass(frozen=True)
class Kept:
    """The header of a file of inputs."""

    fingerprint: str
    digest: str
    rows: int


def fingerprint(suite: ProjectionSuite, case: Case) -> str | None:
    """Identify what inputs are made from; None if their network is not shipped."""
    weights = None
    if case.needs_model:
        if case.model not in shipped_names():
            return None
        weights = _weights(case.model)
    made_from = {
        "problem": case.problem, "settings": dict(case.settings), "samples": case.samples, "taus": list(case.taus),
        "noisy": case.noisy, "steps": case.steps, "seed": suite.seed, "tolerance": suite.tolerance, "weights": weights,
    }  # fmt: skip
    return hashlib.sha256(json.dumps(made_from, sort_keys=True).encode()).hexdigest()[:16]


def make(suite: ProjectionSuite, case: Case) -> Inputs:
    """Make the inputs of a case."""
    problem = case.build()
    drawn = (suite.seed + _PARAMS_SEED, 0, case.samples)
    truth, params = (None, problem.draw_params(*drawn)) if case.noisy is None else problem.draw_truth(*drawn)
    # Methods take a row for every sample; a params row that all share is repeated here, once for all of them.
    params = {name: value.expand(case.samples, *value.shape[1:]).contiguous() for name, value in params.items()}
    projector = Projector(problem.laws, problem.grid.shape, params, suite.tolerance)
    fields: dict[str, Tensor] = {}
    if truth is not None and case.noisy is not None:
        noise = torch.Generator().manual_seed(suite.seed + _NOISE_SEED)
        lawful = projector(truth, params).u
        fields["truth + noise"] = lawful + case.noisy * torch.randn(lawful.shape, generator=noise, dtype=torch.float64)
    elif case.taus:
        fields = _recorded(suite, case, projector, params)
    _compile(projector, params, next(iter(fields.values()), None))
    return Inputs(fields, params, projector.structure.rows)


def pack(inputs: Inputs, made_from: str) -> bytes:
    """Encode inputs as the content of a file."""
    about = {"fingerprint": made_from, "digest": inputs.digest(), "rows": inputs.rows, "labels": list(inputs.fields)}
    arrays = {f"field:{place}": values.numpy() for place, values in enumerate(inputs.fields.values())}
    arrays |= {f"{_PARAM}{name}": values.numpy() for name, values in inputs.params.items()}
    return npz(np.savez, about=np.array(json.dumps(about)), **arrays)


def kept(file: Path) -> Kept | None:
    """Read the header of a file of inputs; None without one, or if it is damaged."""
    try:
        # Opened here: numpy leaves damaged files open.
        with file.open("rb") as opened, np.load(opened, allow_pickle=False) as packed:
            about = json.loads(str(packed["about"]))
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile):
        return None
    return Kept(about["fingerprint"], about["digest"], about["rows"])


def load(file: Path, digest: str) -> Inputs:
    """Read inputs and verify their digest."""
    with np.load(file, allow_pickle=False) as packed:
        about = json.loads(str(packed["about"]))
        fields = {label: torch.from_numpy(packed[f"field:{place}"]) for place, label in enumerate(about["labels"])}
        params = {
            name.removeprefix(_PARAM): torch.from_numpy(packed[name])
            for name in packed.files
            if name.startswith(_PARAM)
        }
    found = Inputs(fields, params, about["rows"])
    if found.digest() != digest:
        raise DataError(
            f"{file} is expected to hold inputs {digest}; got {found.digest()}. Remove it: it will be made again."
        )
    return found


def _recorded(suite: ProjectionSuite, case: Case, projector: Projector, params: dict[str, Tensor]) -> dict[str, Tensor]:
    """Sample with our projector and keep its inputs at the steps nearest to the requested flow times."""
    assert case.model is not None  # the suite was checked
    places = {round(tau * case.steps): tau for tau in case.taus}
    recorder = _Recorder(projector, set(places))
    with suppress(_Enough):
        sample(
            shipped(case.model), recorder, params, count=case.samples, steps=case.steps,  # type: ignore[arg-type]  # acts as one
            generator=torch.Generator().manual_seed(suite.seed), dtype=torch.float64, on_failure="keep",
        )  # fmt: skip
    return {f"tau {place / case.steps:.2f}": recorder.fed[place] for place in sorted(places)}


def _compile(projector: Projector, params: dict[str, Tensor], field: Tensor | None) -> None:
    """Call our kernels once: on a fresh installation they compile for minutes, too long for the budget of a cell."""
    noise = torch.randn(1, *projector.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    one = noise if field is None else field[:1]  # the most difficult laws take minutes from noise
    own = {name: value[:1] for name, value in params.items()}
    projector(one, own)
    projector.move(one, own)


class _Enough(Exception):
    """Ends a walk once all inputs are recorded."""


class _Recorder:
    """A projector that keeps copies of some of its inputs and ends the walk when it has them.

    The last call of a walk, at τ = 1, is one more than its steps.
    """

    def __init__(self, projector: Projector, places: set[int]) -> None:
        self._projector, self._places, self._calls = projector, places, 0
        self.shape = projector.shape
        self.fed: dict[int, Tensor] = {}

    def __call__(self, u_hat: Tensor, params: Params | None = None, **asked: Any) -> Projection:
        self._note(u_hat)
        return self._projector(u_hat, params, **asked)

    def move(self, u_hat: Tensor, params: Params | None = None, **asked: Any) -> Moved:
        """Project without a certificate."""
        self._note(u_hat)
        return self._projector.move(u_hat, params, **asked)

    def _note(self, u_hat: Tensor) -> None:
        if self._calls in self._places:
            self.fed[self._calls] = u_hat.detach().double().clone()
            if len(self.fed) == len(self._places):
                raise _Enough
        self._calls += 1


@lru_cache
def _weights(model: str) -> str:
    return digest(shipped(model))
