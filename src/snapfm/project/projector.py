"""Projector: the public class and stop 3 of the walk. Compiles the laws once, then projects whole batches onto them.

Checks arguments, converts to float64, calls the method, asks the judge, attaches the gradient. Must not know any PDE.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Self, TypeVar

import numpy as np
import torch
from torch import Tensor

from snapfm.compile import CompiledLaws, MatrixFreeLaws, TooDense, compile_laws, matrix_free
from snapfm.errors import DeviceWarning, SettingError, UnsupportedLaw
from snapfm.kernels.threads import Clock
from snapfm.laws import Law, Oracle, Params
from snapfm.linear import Solver
from snapfm.progress import Report, preparing
from snapfm.project import checks
from snapfm.project.judge import Judgement, judge, verdict
from snapfm.project.metric import Metric
from snapfm.project.metric_projection import SCALE, check_metric, project_in_metric, scaled_laws
from snapfm.project.pickling import packed, sharing, unpacked
from snapfm.project.transforms import project_transformed, refuse_transformed, transformed
from snapfm.solve.base import Method, Warm, limits_of
from snapfm.solve.budget import LIMIT, SECONDS, Budget
from snapfm.solve.gradient import attach_gradient
from snapfm.solve.matrix_free.method import MatrixFree
from snapfm.solve.memory import LARGEST, described, levels_to_caller
from snapfm.solve.newton import Newton
from snapfm.solve.projection import Moved, Projection
from snapfm.solve.single_thread import one_thread
from snapfm.solve.tangent import Tangents
from snapfm.text import extents

Result = TypeVar("Result", Projection, Moved)
Call = Callable[[Tensor, Params, Warm | None], Result]  # of a batch on the CPU
_warned: set[torch.device] = set()  # devices whose copies a warning has named


class Projector:
    """Project batches of fields of one shape onto a list of laws: min ½‖u − û‖² subject to the laws.

    `shape` is the shape of ONE field, without the batch axis. `params` is an example of what laws read, (b, …) or (1, …) by name:
    it fixes names, shapes and dtypes. `tolerance` is the largest violation, in the laws' own units, that counts as obeyed. Every
    call ends: a sample that has used up `limit` iterations, over all attempts, or that has not converged when the batch has
    taken `seconds`, is returned as ITERATION_LIMIT. `linear` replaces the linear solver behind KKT systems, closed forms,
    marches and gradients (snapfm.linear); the default chooses the fastest. `progress=True` shows what is being prepared, on
    stderr, if that takes longer than two seconds; by default it is shown only on a terminal. `metric` replaces ‖u − û‖² by
    (u − û)ᵀΣ⁻¹(u − û): see snapfm.Metric.

    A projector may be called by several threads at once and after a fork. It pickles as its arguments, and is prepared again on
    the other side, once per process; copies in this process share what is prepared.
    """

    def __init__(
        self, laws: Sequence[Law], shape: Sequence[int], params: Params | None = None, tolerance: float = 1e-8, *,
        limit: int = LIMIT, seconds: float = SECONDS, linear: Solver | None = None, progress: bool | None = None,
        metric: Metric | None = None,
    ) -> None:  # fmt: skip
        self.laws = checks.check_laws(laws)
        self.shape = checks.check_shape(shape)
        self.example = checks.check_example(params)
        self.tolerance = checks.check_tolerance(tolerance)
        self.limit, self.seconds = checks.check_budget(limit, seconds)
        self.limits = limits_of(self.laws, self.shape)
        check_metric(metric, self.shape)
        self.metric, self.linear = metric, linear
        with preparing(checks.check_progress(progress)) as report:
            self.structure, self.method = self._prepared(linear, report)
        # Batch size, params as given, params converted: one tuple, replaced whole and read once, as threads share it.
        self._last: tuple[int, dict[str, Tensor], dict[str, Tensor]] | None = None
        self._linearized: Tangents | None = None
        self._units: Projector | None = None

    def __repr__(self) -> str:
        names = ", ".join(law.name for law in self.laws) or "no laws"
        return f"{type(self).__name__}({names}; fields of {extents(self.shape)}, tolerance {self.tolerance:g})"

    def __reduce__(self) -> tuple[Callable[[bytes], Any], tuple[bytes]]:
        return unpacked, (packed(type(self), *self._recipe()),)

    def __copy__(self) -> Self:
        return sharing(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return sharing(self)

    def _recipe(self) -> tuple[Sequence[Law], dict[str, Any]]:
        """Return the laws and the other arguments that build this projector."""
        return self.laws, {
            "shape": self.shape, "params": self._first(), "tolerance": self.tolerance, "limit": self.limit,
            "seconds": self.seconds, "linear": self.linear, "progress": False, "metric": self.metric,
        }  # fmt: skip

    def _first(self) -> dict[str, Tensor]:
        """Return the example's first sample, which is all that laws are compiled from."""
        return {name: value[:1].detach().cpu().clone() for name, value in self.example.items()}

    def _prepared(self, linear: Solver | None, report: Report) -> tuple[CompiledLaws | MatrixFreeLaws, Method]:
        """Compile the laws, and prepare the method for them: as products with their Jacobian where its entries are too many."""
        traced = not any(isinstance(law, Oracle) for law in self.laws)  # torch can multiply by all derivatives
        largest = LARGEST if linear is None and traced else math.inf
        try:
            laws = compile_laws(self.laws, self.shape, self.example, report)
            report("comparing slopes with torch's")
            laws.check()
            report("presolve")
            laws.presolve  # noqa: B018  found at first use: here
            report("reducing, ordering, symbolic factorization")
            newton = Newton(laws, self.limits, linear, most=largest)
            if newton.bytes(1) <= largest or newton.kinked:
                laws.remarks.extend([*newton.plan.describe(), described(newton.bytes)])
                return laws, newton
            reason = f"factors of {newton.bytes(1) / 1e9:.0f} GB are not computed"
        except TooDense as refusal:
            if not traced:
                raise
            reason = refusal.reason
        free = matrix_free(self.laws, self.shape, self.example, reason, report)
        return free, MatrixFree(free, self.limits)

    def __call__(
        self, u_hat: Tensor, params: Params | None = None, *, warm: Projection | Moved | None = None,
        tolerance: float | None = None, limit: int | None = None, seconds: float | None = None,
        metric: Metric | None = None, starts: int = 1,
    ) -> Projection:  # fmt: skip
        """Project a batch u_hat (b, *shape); results keep its dtype and device, the work is done in float64.

        `params` has the names of the example, (b, …) each or (1, …) if shared. `warm`, a projection of nearby fields of the same
        batch, is a warm start: fewer iterations if laws are nonlinear. `tolerance`, `limit`, `seconds` and `metric` replace the
        projector's own for this call. In a metric, `stationarity` and `multipliers` are those of its distance, and there are no
        gradients. `starts` beyond one are further points to iterate from, in the ball around û that a nearer answer would lie in:
        where laws have several nearest fields, the nearest of those found is returned.
        """
        if transformed(u_hat, params):
            return self._transformed(
                u_hat, params, warm, tolerance=tolerance, limit=limit, seconds=seconds, metric=metric, starts=starts
            )
        if metric is not None:
            check_metric(metric, self.shape)
        if (chosen := metric or self.metric) is not None:
            if checks.check_starts(starts) > 1:
                raise SettingError(
                    f"starts=… expects 1 beside a metric; got {starts}. Leave starts out, or project without a metric."
                )
            return self._in_metric(u_hat, params, chosen, tolerance, limit, seconds)
        return self.plain(u_hat, params, warm=warm, tolerance=tolerance, limit=limit, seconds=seconds, starts=starts)

    def _transformed(
        self, u_hat: Tensor, params: Params | None, warm: Projection | Moved | None, **settings: Any
    ) -> Projection:
        """Project tensors inside torch.func, or with forward derivatives: see project.transforms."""
        checks.check_field(u_hat, self.shape)
        params = checks.check_params(params, self.example, len(u_hat))
        if warm is not None:
            raise UnsupportedLaw(
                "a projection inside torch.func expects no warm start; got one. Leave warm out, or call it outside."
            )
        plain = self.metric is None and settings.get("metric") is None
        return project_transformed(partial(self, **settings), u_hat, params, differentiable=plain)

    def plain(
        self, u_hat: Tensor, params: Params | None = None, *, warm: Projection | Moved | None = None,
        tolerance: float | None = None, limit: int | None = None, seconds: float | None = None, starts: int = 1,
    ) -> Projection:  # fmt: skip
        """Project a batch (b, *shape) in the plain metric, ‖u − û‖², whatever the projector's own."""
        params, asked, budget = self._parse_call(u_hat, params, warm, tolerance, limit, seconds, starts)
        if starts > 1:
            self.require_sparse("starts=…")
        return _by_cpu(partial(self._certified, asked, budget), u_hat, params, self._recall(warm), budget.clock)

    def _certified(self, asked: float, budget: Budget, u_hat: Tensor, params: Params, known: Warm | None) -> Projection:
        """Project a batch (b, *shape) on the CPU, judge it, and attach gradients if they are wanted."""
        gradient = torch.is_grad_enabled() and any(t.requires_grad for t in (u_hat, *params.values()))
        with torch.no_grad(), one_thread(), np.errstate(all="ignore"):
            u_hat64, params64 = _float64(u_hat), self.params_float64(params, len(u_hat))
            solved = self.method.solve(u_hat64, params64, asked, known, budget)
            judged = judge(self.structure, solved.residual, self.limits, solved.u)
            status = verdict(self.structure, self.method.implied, solved, judged, asked, u_hat64, params64)
            answer = solved.u.reshape(u_hat64.shape).to(u_hat.dtype)
            returned, rounding = judged, judged.violation.new_zeros(len(u_hat64))
            if answer.dtype != torch.float64 or self.structure.float32_laws:
                returned, rounding = (
                    self.check(answer, params),
                    self.row_differences(solved.u.view_as(u_hat64), answer, params),
                )
        if gradient:
            kept = solved.apart()
            answer = attach_gradient(
                u_hat, answer, self.structure, params64, params, kept.u.reshape(u_hat64.shape), kept.multipliers,
                partial(self.method.adjoint, kept, params64),
            )  # fmt: skip
        count, second, generalized = len(u_hat), solved.second_order, solved.generalized
        return Projection(
            u=answer,
            status=status,
            violation=returned.violation,
            stationarity=solved.stationarity,
            iterations=solved.iterations,
            distance=solved.distance,
            multipliers={name: solved.multipliers[:, part] for name, part in self.structure.slices().items()},
            by_law=returned.by_law,
            tolerance=asked,
            rounding=rounding,
            second_order=torch.ones(count, dtype=torch.int8) if second is None else second,  # affine: the Hessian is 1
            generalized=torch.zeros(count, dtype=torch.bool) if generalized is None else generalized,
            warm=solved.warm,
        )

    def move(
        self, u_hat: Tensor, params: Params | None = None, *, warm: Projection | Moved | None = None,
        tolerance: float | None = None, limit: int | None = None, seconds: float | None = None,
    ) -> Moved:  # fmt: skip
        """Project a batch (b, *shape) without certificate and gradients, in a fraction of the time; always in the plain metric.

        Meant for all steps of a flow but the last. A sample that fails is returned as the iterations left it, unmarked.
        """
        refuse_transformed("project.move(u_hat)", u_hat, params)
        params, asked, budget = self._parse_call(u_hat, params, warm, tolerance, limit, seconds)
        return _by_cpu(partial(self._moved, asked, budget), u_hat, params, self._recall(warm), budget.clock)

    def _moved(self, asked: float, budget: Budget, u_hat: Tensor, params: Params, known: Warm | None) -> Moved:
        """Project a batch (b, *shape) on the CPU without a certificate."""
        with torch.no_grad(), one_thread(), np.errstate(all="ignore"):
            params64 = self.params_float64(params, len(u_hat))
            return Moved(*self.method.move(u_hat.detach().contiguous(), params64, asked, known, budget))

    def _parse_call(
        self, u_hat: Tensor, params: Params | None, warm: Projection | Moved | None, tolerance: float | None,
        limit: int | None, seconds: float | None, starts: int = 1,
    ) -> tuple[dict[str, Tensor], float, Budget]:  # fmt: skip
        """Check a call's arguments; return its params, tolerance and budget."""
        budget = Budget.of(
            *checks.check_budget(self.limit if limit is None else limit, self.seconds if seconds is None else seconds),
            checks.check_starts(starts),
        )
        checks.check_field(u_hat, self.shape)
        params = checks.check_params(params, self.example, len(u_hat))
        asked = self.tolerance if tolerance is None else checks.check_tolerance(tolerance)
        checks.check_warm(warm, len(u_hat), self.structure.slices())
        return params, asked, budget

    def _recall(self, warm: Projection | Moved | None) -> Warm | None:
        """Return a warm start for the method."""
        if warm is None:
            return None
        if isinstance(warm.warm, Warm) and warm.warm.owner is self.method:
            return warm.warm
        if isinstance(warm, Moved):
            return None  # another projector's: it has no multipliers
        parts = [
            warm.multipliers[name].detach().to(device="cpu", dtype=torch.float64) for name in self.structure.slices()
        ]
        whole = torch.cat([torch.zeros(len(warm.u), 0, dtype=torch.float64), *parts], dim=1)
        usable = warm.converged.cpu() & torch.isfinite(whole).all(dim=1)
        return self.method.recall(_float64(warm.u), whole, usable)

    def check(self, u: Tensor, params: Params | None = None) -> Judgement:
        """Judge fields u (b, *shape) in float64, by the laws as written, without projecting them."""
        refuse_transformed("project.check(u)", u, params)
        checks.check_field(u, self.shape)
        params = checks.check_params(params, self.example, len(u))
        with torch.no_grad(), one_thread(), np.errstate(all="ignore"):
            field = _float64(u)
            residual = self.structure.written(field, self.params_float64(params, len(u)))
            judged = judge(self.structure, residual, self.limits, field.reshape(len(u), self.structure.unknowns))
        return judged.to(u.device)

    def row_differences(self, u: Tensor, other: Tensor, params: Params | None = None) -> Tensor:
        """Return the largest difference (b,) of any row, in the law's own units, between two batches.

        The laws are evaluated in float64 on the first and as they are written on the second.
        """
        params = checks.check_params(params, self.example, len(u))
        with torch.no_grad(), one_thread(), np.errstate(all="ignore"):
            params64 = self.params_float64(params, len(u))
            one, two = self.structure.residual(_float64(u), params64), self.structure.written(_float64(other), params64)
            return torch.cat([one - two, one.new_zeros(len(one), 1)], dim=1).abs().amax(dim=1).to(other.device)

    def excess(self, u: Tensor, params: Params | None = None) -> Tensor:
        """Return h, max(g, 0) and the excess over bounds at u: (b, rows), float64, differentiable in u.

        For penalties and guidance; all entries are zero if no law is broken.
        """
        checks.check_field(u, self.shape)
        params = checks.check_params(params, self.example, len(u))
        field = u.to(device="cpu", dtype=torch.float64)
        residual = self.structure.residual(field, self.params_float64(params, len(u)))
        equality = torch.from_numpy(self.structure.equality_rows)
        parts = [torch.where(equality, residual, residual.clamp(min=0.0))]
        if self.limits.names:
            bounded = torch.from_numpy(np.flatnonzero(self.limits.bounded))
            parts.append(self.limits.excess(field.flatten(1))[:, bounded])
        return torch.cat(parts, dim=1).to(u.device)

    def _in_metric(
        self, u_hat: Tensor, params: Params | None, metric: Metric, tolerance: float | None, limit: int | None,
        seconds: float | None,
    ) -> Projection:  # fmt: skip
        """Project in a metric: see project.metric_projection."""
        params, _, budget = self._parse_call(u_hat, params, None, tolerance, limit, seconds)
        if torch.is_grad_enabled() and any(t.requires_grad for t in (u_hat, *params.values())):
            raise UnsupportedLaw(
                "a projection in a metric expects inputs without gradients; got some that require them. Call it under "
                "torch.no_grad(), or project without a metric."
            )
        plain, scale = self, torch.ones((), dtype=torch.float64)
        if not metric.uniform:
            scale = torch.from_numpy(metric.relative(self.structure.unknowns)).reshape(self.shape).sqrt()
            plain, params = self._projector_in_units(params), {**params, SCALE: scale[None]}
            metric = metric.in_units(scale)

        def project(some: Tensor, own: Params, _: Warm | None) -> Projection:
            return project_in_metric(plain, self, some, dict(own), metric, scale, tolerance, limit, budget)

        return _by_cpu(project, u_hat, params, None, budget.clock)

    def _projector_in_units(self, params: Params) -> Projector:
        """Return the projector of x = u/√D, made at first use."""
        made = self._units
        if made is None:
            example = {name: value[:1] for name, value in params.items()}
            example[SCALE] = torch.ones(1, *self.shape, dtype=torch.float64)
            self._units = made = Projector(
                scaled_laws(self.laws), self.shape, example, self.tolerance, limit=self.limit, seconds=self.seconds
            )
        return made

    @property
    def linearized(self) -> Tangents:
        """The laws ready to be linearized in a metric. Built lazily; concurrent first calls may build it twice."""
        made = self._linearized
        if made is None:
            self.require_sparse("a metric")
            assert isinstance(self.method, Newton)
            self._linearized = made = self.method.tangents()
        return made

    def require_sparse(self, purpose: str) -> CompiledLaws:
        """Return the laws with sparse derivatives; raises UnsupportedLaw, with what they are for, where there are none."""
        if isinstance(self.structure, CompiledLaws):
            return self.structure
        raise UnsupportedLaw(
            f"{purpose} expects laws with a sparse Jacobian; got laws that are matrix-free, with {self.structure.nnz:,} "
            "entries. Use a coarser field or fewer rows (the lowest modes), or project without it."
        )

    def params_float64(self, params: Params, batch: int) -> dict[str, Tensor]:
        """Convert params to float64 on the CPU; equal params return the same object, so that methods recognize them."""
        last = self._last
        if last is not None and last[0] == batch and _equal(last[1], params):
            return last[2]
        # By value, not by object: writes through numpy or .data leave no trace in torch, and params are small. Converted from the
        # copies: the caller may write to params before they are recognized, or before a gradient is taken.
        kept, params64 = {name: value.detach().clone() for name, value in params.items()}, {}
        for name, value in kept.items():
            moved = value.cpu()
            moved = moved.double() if moved.is_floating_point() else moved
            params64[name] = moved.expand(batch, *moved.shape[1:]).contiguous()
        self._last = (batch, kept, params64)
        return params64


def _equal(kept: Params, params: Params) -> bool:
    return all(
        value.dtype == kept[name].dtype and value.device == kept[name].device and torch.equal(value, kept[name])
        for name, value in params.items()
    )


def _float64(u_hat: Tensor) -> Tensor:
    """Convert a batch to float64, contiguous, on the CPU."""
    return u_hat.detach().to(device="cpu", dtype=torch.float64).contiguous()


def _by_cpu(project: Call[Result], u_hat: Tensor, params: Params, warm: Warm | None, clock: Clock) -> Result:
    """Project a batch (b, *shape) of any device with `project`; results and gradients go back there.

    The clock does not count the time spent waiting for the device: it is that of the network.
    """
    if u_hat.is_cpu:
        return project(u_hat, params, warm)
    _warn_of_copies(u_hat)
    with clock.paused():
        here, params = u_hat.to("cpu"), {name: value.to("cpu") for name, value in params.items()}
    return project(here, params, warm).to(u_hat.device)


def _warn_of_copies(u_hat: Tensor) -> None:
    """Say once in a process, for each device, what is going to happen."""
    if u_hat.device in _warned:
        return
    _warned.add(u_hat.device)
    warnings.warn(
        f"project(u_hat=…) expects fields on the CPU, which projects them; got {u_hat.device}. Answers are the same, but every "
        f"call waits for the device and copies the fields to the CPU and back, {u_hat.nbytes / 1e6:.3g} MB each way in this "
        "one. Nothing has to be done where the network takes most of the time; where it does not, run it on the CPU as well. "
        "docs/gpu.md says what it costs; to hide this, ignore snapfm.errors.DeviceWarning.",
        DeviceWarning,
        stacklevel=levels_to_caller(),
    )
