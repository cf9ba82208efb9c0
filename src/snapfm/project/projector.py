"""Projector: the public class and stop 3 of the walk. Compiles the laws once, then projects whole batches onto them.

Checks arguments, converts to float64, calls the method, asks the judge, attaches the gradient. Must not know any PDE.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np
import torch
from torch import Tensor

from snapfm.arrays import Values
from snapfm.compile import CompiledLaws, MatrixFreeLaws, TooDense, compile_laws, matrix_free
from snapfm.compile.units import Units
from snapfm.errors import DeviceWarning, SettingError, UnsupportedLaw
from snapfm.kernels.threads import Clock
from snapfm.laws import Law, Oracle, Params
from snapfm.linear import Solver
from snapfm.progress import Report, preparing
from snapfm.project import checks
from snapfm.project.judge import Judgement, judge, verdict
from snapfm.project.metric import Metric
from snapfm.project.metric_projection import check_metric, project_in_metric
from snapfm.project.pickling import packed, sharing, unpacked
from snapfm.project.tolerance import Tolerance, row_weights, smallest
from snapfm.project.transforms import project_transformed, refuse_transformed, transformed
from snapfm.solve.base import Method, Warm, limits_of
from snapfm.solve.budget import LIMIT, SECONDS, Budget
from snapfm.solve.gradient import attach_gradient
from snapfm.solve.matrix_free.method import MatrixFree
from snapfm.solve.memory import LARGEST, described, levels_to_caller
from snapfm.solve.newton import Newton
from snapfm.solve.projection import Moved, Projection, tolerance_text
from snapfm.solve.single_thread import one_thread
from snapfm.solve.tangent import Tangents
from snapfm.text import extents

Result = TypeVar("Result", Projection, Moved)
Call = Callable[[Tensor, Params, Warm | None], Result]  # of a batch on the CPU
_warned: set[torch.device] = set()  # devices whose copies a warning has named
_KEPT = 3  # other metrics and ratios of tolerances that a projector stays prepared for


class _Prepared(NamedTuple):
    """A method, prepared in units: fields in those of `scale`, rows weighted, where given."""

    method: Method
    scale: Values | None
    weights: Values | None

    def serves(self, scale: Values | None, weights: Values | None) -> bool:
        """Whether it is prepared for these units."""
        pairs = (self.scale, scale), (self.weights, weights)
        return all(a is b or (a is not None and b is not None and np.array_equal(a, b)) for a, b in pairs)

    @property
    def lengths(self) -> Tensor | None:
        """The scale as a flat tensor."""
        return None if self.scale is None else torch.from_numpy(self.scale)


class _Asked(NamedTuple):
    """How one call is made."""

    prepared: _Prepared
    tolerance: Tolerance
    strictest: float  # the tolerance of rows that are weighted
    budget: Budget


class Projector:
    """Project batches of fields of one shape onto a list of laws: min ½‖u − û‖² subject to the laws.

    `shape` is the shape of ONE field, without the batch axis. `params` is an example of what laws read, (b, …) or (1, …) by name:
    it fixes names, shapes and dtypes. `tolerance` is the largest violation, in the laws' own units, that counts as obeyed; a
    mapping gives laws their own, {"mass": 1e-6, "energy": 10.0}; those it does not name keep the default. Every call ends: a
    sample that has used up `limit` iterations, over all attempts, or that has not converged when the batch has taken `seconds`,
    is returned as ITERATION_LIMIT. `linear` replaces the linear solver behind KKT systems, closed forms, marches and gradients
    (snapfm.linear); the default chooses the fastest. `progress=True` shows what is being prepared, on stderr, if that takes
    longer than two seconds; by default it is shown only on a terminal. `metric` replaces ‖u − û‖² by (u − û)ᵀΣ⁻¹(u − û): see
    snapfm.Metric. One without directions is a change of units, made once, and costs a few passes over the fields.

    A projector may be called by several threads at once and after a fork. It pickles as its arguments, and is prepared again on
    the other side, once per process; copies in this process share what is prepared.
    """

    def __init__(
        self, laws: Sequence[Law], shape: Sequence[int], params: Params | None = None,
        tolerance: float | Mapping[str, float] = checks.TOLERANCE, *, limit: int = LIMIT, seconds: float = SECONDS,
        linear: Solver | None = None, progress: bool | None = None, metric: Metric | None = None,
    ) -> None:  # fmt: skip
        self.laws = checks.check_laws(laws)
        self.shape = checks.check_shape(shape)
        self.example = checks.check_example(params)
        self.names = [law.name for law in self.laws]
        self.tolerance = checks.check_tolerance(tolerance, self.names)
        self.limit, self.seconds = checks.check_budget(limit, seconds)
        self.limits = limits_of(self.laws, self.shape)
        check_metric(metric, self.shape)
        self.metric, self.linear = metric, linear
        with preparing(checks.check_progress(progress)) as report:
            self.structure, self._own = self._prepare(report)
        self._others: tuple[_Prepared, ...] = ()  # for other units, the last used first; replaced whole
        # Batch size, params as given, params converted: one tuple, replaced whole and read once, as threads share it.
        self._last: tuple[int, dict[str, Tensor], dict[str, Tensor]] | None = None
        self._linearized: Tangents | None = None

    def __repr__(self) -> str:
        names = ", ".join(self.names) or "no laws"
        return f"{type(self).__name__}({names}; fields of {extents(self.shape)}, tolerance {tolerance_text(self.tolerance)})"

    @property
    def method(self) -> Method:
        """The method, prepared for the metric and the tolerances."""
        return self._own.method

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

    def _prepare(self, report: Report) -> tuple[CompiledLaws | MatrixFreeLaws, _Prepared]:
        """Compile the laws, and prepare the method for them: as products with their Jacobian where its entries are too many."""
        traced = not any(isinstance(law, Oracle) for law in self.laws)  # torch can multiply by all derivatives
        largest = LARGEST if self.linear is None and traced else math.inf
        try:
            laws = compile_laws(self.laws, self.shape, self.example, report)
            report("comparing slopes with torch's")
            laws.check()
            report("presolve")
            laws.presolve  # noqa: B018  found at first use: here
            report("reducing, ordering, symbolic factorization")
            made = self._prepared(laws, *self._units(self.metric, self.tolerance, laws), largest)
            newton = made.method
            assert isinstance(newton, Newton)
            if newton.bytes(1) <= largest or newton.kinked:
                laws.remarks.extend([*newton.plan.describe(), described(newton.bytes)])
                return newton.laws, made
            reason = f"factors of {newton.bytes(1) / 1e9:.0f} GB are not computed"
        except TooDense as refusal:
            if not traced:
                raise
            reason = refusal.reason
        free = matrix_free(self.laws, self.shape, self.example, reason, report)
        return free, self._prepared(free, *self._units(self.metric, self.tolerance, free))

    def _units(
        self, metric: Metric | None, tolerance: Tolerance, laws: CompiledLaws | MatrixFreeLaws
    ) -> tuple[Values | None, Values | None]:
        """Return the scale of every unknown and the weight of every row, where there are any."""
        scale = None if metric is None else metric.scale(laws.unknowns)
        return scale, row_weights(tolerance, laws.slices())[1]

    def _prepared(
        self, laws: CompiledLaws | MatrixFreeLaws, scale: Values | None, weights: Values | None, largest: float = math.inf
    ) -> _Prepared:  # fmt: skip
        """Prepare the method for compiled laws in units."""
        units = None
        if scale is not None or weights is not None:
            ones = np.ones(laws.unknowns), np.ones(laws.rows)
            units = Units(ones[0] if scale is None else scale, ones[1] if weights is None else weights)
        if isinstance(laws, MatrixFreeLaws):
            return _Prepared(MatrixFree(laws, self.limits, units), scale, weights)
        return _Prepared(Newton(laws, self.limits, self.linear, most=largest, units=units), scale, weights)

    def _prepared_for(self, metric: Metric | None, tolerance: Tolerance) -> _Prepared:
        """Return what is prepared for a metric and tolerances; other units than the last few are prepared now."""
        if metric is self.metric and tolerance is self.tolerance:
            return self._own
        scale, weights = self._units(metric, tolerance, self.structure)
        kept = self._others
        for one in (self._own, *kept):
            if one.serves(scale, weights):
                return one
        try:
            made = self._prepared(self.structure, scale, weights)
        except TooDense as refusal:
            raise UnsupportedLaw(
                "project(metric=…) expects variances in which these laws can be written out, as they are in the projector's own; "
                f"got others, where {refusal.reason}. Give them to Projector(…, metric=…), which multiplies by Jacobians then."
            ) from refusal
        self._others = (made, *kept[: _KEPT - 1])
        return made

    def __call__(
        self, u_hat: Tensor, params: Params | None = None, *, warm: Projection | Moved | None = None,
        tolerance: float | Mapping[str, float] | None = None, limit: int | None = None, seconds: float | None = None,
        metric: Metric | None = None, starts: int = 1,
    ) -> Projection:  # fmt: skip
        """Project a batch u_hat (b, *shape); results keep its dtype and device, the work is done in float64.

        `params` has the names of the example, (b, …) each or (1, …) if shared. `warm`, a projection of nearby fields of the same
        batch, is a warm start: fewer iterations if laws are nonlinear. `tolerance`, `limit`, `seconds` and `metric` replace the
        projector's own for this call; other variances, and other ratios of tolerances, are prepared at their first call. In a
        metric, `distance` and `multipliers` are those of its distance, `stationarity` bounds ‖u − û + ΣJᵀλ‖∞, and there are no
        gradients if it has directions.
        `starts` beyond one are further points to iterate from, in the ball around û that a nearer answer would lie in: where
        laws have several nearest fields, the nearest of those found is returned.
        """
        if transformed(u_hat, params):
            return self._transformed(
                u_hat, params, warm, tolerance=tolerance, limit=limit, seconds=seconds, metric=metric, starts=starts
            )
        check_metric(metric, self.shape)
        chosen = metric or self.metric
        params, asked = self._parse_call(u_hat, params, warm, tolerance, limit, seconds, chosen, starts)
        directed = chosen is not None and chosen.directions is not None
        if starts > 1:
            self.require_sparse("starts=…")
            if directed:
                raise SettingError(
                    f"starts=… expects 1 beside a metric with directions; got {starts}. Leave starts out, or give the metric a "
                    "diagonal alone."
                )
        if chosen is not None and directed:
            return self._in_metric(u_hat, params, chosen, asked)
        known = self._recall(warm, asked.prepared.method)
        return _by_cpu(partial(self._certified, asked), u_hat, params, known, asked.budget.clock)

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
        check_metric(metric := settings["metric"] or self.metric, self.shape)
        plain = metric is None or metric.directions is None

        def variances() -> Tensor | None:
            scale = None if metric is None else metric.scale(self.structure.unknowns)
            return None if scale is None else torch.from_numpy(scale**2).reshape(self.shape)

        return project_transformed(partial(self, **settings), u_hat, params, plain, variances)

    def plain(self, u_hat: Tensor, params: Params | None = None, **settings: Any) -> Projection:
        """Project a batch (b, *shape) in the plain metric, ‖u − û‖², whatever the projector's own."""
        return self(u_hat, params, metric=Metric(1.0), **settings)

    def _certified(self, asked: _Asked, u_hat: Tensor, params: Params, known: Warm | None) -> Projection:
        """Project a batch (b, *shape) on the CPU, judge it, and attach gradients if they are wanted."""
        method, scale = asked.prepared.method, asked.prepared.lengths
        gradient = torch.is_grad_enabled() and any(t.requires_grad for t in (u_hat, *params.values()))
        with torch.no_grad(), one_thread(), np.errstate(all="ignore"):
            u_hat64, params64 = _float64(u_hat), self.params_float64(params, len(u_hat))
            solved = method.solve(u_hat64, params64, asked.strictest, known, asked.budget)
            judged = judge(self.structure, solved.residual, self.limits, solved.u)
            lengths = None if scale is None else scale.reshape(self.shape)
            status = verdict(
                self.structure, method.implied, solved, judged, asked.tolerance, u_hat64, params64, lengths
            )  # fmt: skip
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
                partial(method.adjoint, kept, params64),
            )  # fmt: skip
        count, second, generalized = len(u_hat), solved.second_order, solved.generalized
        return Projection(
            u=answer,
            status=status,
            violation=returned.violation,
            stationarity=solved.stationarity if scale is None else solved.stationarity * float(scale.max()),
            iterations=solved.iterations,
            distance=solved.distance,
            multipliers={name: solved.multipliers[:, part] for name, part in self.structure.slices().items()},
            by_law=returned.by_law,
            tolerance=asked.tolerance,
            rounding=rounding,
            second_order=torch.ones(count, dtype=torch.int8) if second is None else second,  # affine: the Hessian is 1
            generalized=torch.zeros(count, dtype=torch.bool) if generalized is None else generalized,
            warm=solved.warm,
        )

    def move(
        self, u_hat: Tensor, params: Params | None = None, *, warm: Projection | Moved | None = None,
        tolerance: float | Mapping[str, float] | None = None, limit: int | None = None, seconds: float | None = None,
    ) -> Moved:  # fmt: skip
        """Project a batch (b, *shape) without certificate and gradients, in a fraction of the time.

        Meant for all steps of a flow but the last. A sample that fails is returned as the iterations left it, unmarked. Of the
        projector's metric only the diagonal counts, if it has directions.
        """
        refuse_transformed("project.move(u_hat)", u_hat, params)
        params, asked = self._parse_call(u_hat, params, warm, tolerance, limit, seconds, self.metric)
        known = self._recall(warm, asked.prepared.method)
        return _by_cpu(partial(self._moved, asked), u_hat, params, known, asked.budget.clock)

    def _moved(self, asked: _Asked, u_hat: Tensor, params: Params, known: Warm | None) -> Moved:
        """Project a batch (b, *shape) on the CPU without a certificate."""
        with torch.no_grad(), one_thread(), np.errstate(all="ignore"):
            params64 = self.params_float64(params, len(u_hat))
            method, start = asked.prepared.method, u_hat.detach().contiguous()
            return Moved(*method.move(start, params64, asked.strictest, known, asked.budget))

    def _parse_call(
        self, u_hat: Tensor, params: Params | None, warm: Projection | Moved | None,
        tolerance: float | Mapping[str, float] | None, limit: int | None, seconds: float | None, metric: Metric | None,
        starts: int = 1,
    ) -> tuple[dict[str, Tensor], _Asked]:  # fmt: skip
        """Check a call's arguments; return its params, and what it asks for."""
        budget = Budget.of(
            *checks.check_budget(self.limit if limit is None else limit, self.seconds if seconds is None else seconds),
            checks.check_starts(starts),
        )
        checks.check_field(u_hat, self.shape)
        params = checks.check_params(params, self.example, len(u_hat))
        own = self.tolerance
        given = own if tolerance is None else checks.check_tolerance(tolerance, self.names, own)
        checks.check_warm(warm, len(u_hat), self.structure.slices())
        prepared = self._prepared_for(metric, given)
        strictest = given if isinstance(given, float) else row_weights(given, self.structure.slices())[0]
        return params, _Asked(prepared, given, strictest, budget)

    def _recall(self, warm: Projection | Moved | None, method: Method) -> Warm | None:
        """Return a warm start for the method."""
        if warm is None:
            return None
        if isinstance(warm.warm, Warm) and warm.warm.owner is method:
            return warm.warm
        if isinstance(warm, Moved):
            return None  # another projector's: it has no multipliers
        parts = [
            warm.multipliers[name].detach().to(device="cpu", dtype=torch.float64) for name in self.structure.slices()
        ]
        whole = torch.cat([torch.zeros(len(warm.u), 0, dtype=torch.float64), *parts], dim=1)
        usable = warm.converged.cpu() & torch.isfinite(whole).all(dim=1)
        return method.recall(_float64(warm.u), whole, usable)

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

    def _in_metric(self, u_hat: Tensor, params: Params, metric: Metric, asked: _Asked) -> Projection:
        """Project in a metric with directions: see project.metric_projection."""
        if torch.is_grad_enabled() and any(t.requires_grad for t in (u_hat, *params.values())):
            raise UnsupportedLaw(
                "a projection in a metric with directions expects inputs without gradients; got some that require them. Call it "
                "under torch.no_grad(), or in a metric of variances alone."
            )
        scale, budget = asked.prepared.lengths, asked.budget
        lengths = torch.ones((), dtype=torch.float64) if scale is None else scale.reshape(self.shape)

        def inner(some: Tensor, own: Params, seconds: float) -> Projection:
            return self._certified(asked._replace(budget=Budget.of(budget.limit, seconds)), some, own, None)

        def project(some: Tensor, own: Params, _: Warm | None) -> Projection:
            return project_in_metric(self, inner, some, dict(own), metric, lengths, budget)

        return _by_cpu(project, u_hat, params, None, budget.clock)

    @property
    def strictest(self) -> float:
        """The tolerance of the strictest law."""
        return smallest(self.tolerance)

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
