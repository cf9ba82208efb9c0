"""What makes a claim false. Builds on the evidence judge and, like it, shares no code with the projector.

It takes the laws' residuals in float64 and torch's derivatives of them, and knows of an answer only its field, multipliers and
status. With S = max(1, ‖û‖∞) and r = u − û + Jᵀλ, a sample called CONVERGED is a false claim of

- violation, unless the largest |h|, max(g, 0) and bound excess of the field as returned are within the tolerance;
- stationarity, unless ‖u − clip(u − r, bounds)‖∞ ≤ 1e-6 S. Where slopes jump, a mix of those around u may stand for J. It is
  a false claim of multipliers instead if others make u stationary: the field is right, its certificate is not;
- sign, if an inequality with λ < 0 pushes, |λ|‖∇g‖∞ > 1e-6 S; or one that is slack does, with g < −tolerance and
  λ|g| > 1e-6 S² besides;
- second order, if W = I + Σλ∇²h has an eigenvalue below −1e-6 max(1, ‖W‖) along the null space of what holds u (equalities,
  inequalities with λ > 0, unknowns at bounds) and a walk that way finds a lawful field nearer to û; unproved if it finds none.

In float32 the field is allowed what its rounding costs, to first order: ε Σ|∂h||u| of violation and ε Σ|W||u| of stationarity.
INFEASIBLE is a false claim where a lawful field is known; it is true nearby if the laws contradict each other to first order
where the projector stopped. Second order is not looked at beyond 64 unknowns. `loose` counts converged fields smaller than one
whose r is above 1e-6 of their size: true by the contract, which asks for 1e-6 of fields of order one, not in their own units.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from scipy.optimize import nnls
from torch import Tensor
from torch.func import grad, jacrev, vmap

from benchmarks.certificates.kinds import DENSE, Case
from snapfm import Bounds, Equality, Projection, Status
from snapfm.laws import Params
from snapfm.metrics.scores import one_of
from snapfm_bench.judge import NEAREST, ROUNDING, bounds_of, clipped
from snapfm_bench.judge import measure as weighed

_RANK = 1e-10  # singular values of unit rows below it count as none
_AT_BOUND = 1e-7  # of S: an unknown so near to its bound counts as held
_NEXT = 0.1  # of S: fields farther away prove nothing of u
_CORRECTIONS = 30  # Gauss–Newton steps back onto the laws; a few are enough from next to them
_AROUND = 64  # points at which slopes are taken around a kink
_AT_KINK = 1e-5  # of S: stationarity asked there, as the slopes are taken 1e-8 S away
_CANCELS = 0.1  # unit slopes of broken laws that mix to less leave next to no step that mends them all
_TINY = 1e-300
_INF = math.inf
_NONE = torch.zeros(0, dtype=torch.float64)


class Judge:
    """The laws of a case as functions of flat fields, and torch's derivatives of them."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.laws = [law for law in case.laws if not isinstance(law, Bounds)]
        self.u_hat = case.u_hat.double().flatten(1)
        self.params = {name: value.double() for name, value in case.params.items()}
        self.lower, self.upper = bounds_of(case.laws, self.u_hat[0].view(case.shape))
        self.lower, self.upper = self.lower.flatten(), self.upper.flatten()
        self.size = self.u_hat.abs().nan_to_num(_INF).amax(1).clamp(min=1.0)  # S of each sample
        first = {name: value[0] for name, value in self.params.items()}
        rows = [(law, law.residual(self.u_hat[0].view(case.shape), first).numel()) for law in self.laws]
        self.equality = torch.cat([_NONE.bool(), *(torch.full((n,), isinstance(law, Equality)) for law, n in rows)])

    def one_residual(self, u: Tensor, params: Params) -> Tensor:
        """Evaluate all rows at one flat field."""
        return torch.cat([_NONE, *(law.residual(u.view(self.case.shape), params).reshape(-1) for law in self.laws)])

    def residual(self, u: Tensor) -> Tensor:
        """Evaluate all rows at a batch (b, n): (b, m)."""
        rows: Tensor = vmap(self.one_residual)(u, self.params)
        return rows

    def broken(self, residual: Tensor) -> Tensor:
        """Return h and max(g, 0) of a residual."""
        return torch.where(self.equality, residual, residual.clamp(min=0.0))

    def violation(self, u: Tensor) -> Tensor:
        """Measure what is broken most at a batch (b, n): (b,)."""
        excess = torch.maximum(u - self.upper, self.lower - u).clamp(min=0.0)
        return largest(torch.cat([self.broken(self.residual(u)), excess], 1))

    def jacobian(self, u: Tensor) -> Tensor:
        """Differentiate all rows: (b, m, n)."""
        slopes: Tensor = vmap(jacrev(self.one_residual))(u, self.params)
        return slopes

    def pull(self, u: Tensor, multipliers: Tensor) -> Tensor:
        """Form Jᵀλ by one reverse pass: (b, n)."""
        pulled: Tensor = vmap(grad(self._weighted))(u, self.params, multipliers)
        return pulled

    def hessian(self, u: Tensor, multipliers: Tensor) -> Tensor:
        """Form W = I + Σλ∇²h: (b, n, n)."""
        bent: Tensor = vmap(jacrev(grad(self._weighted)))(u, self.params, multipliers)
        return torch.eye(u.shape[1]) + bent

    def _weighted(self, u: Tensor, params: Params, multipliers: Tensor) -> Tensor:
        return multipliers @ self.one_residual(u, params) + 0.0 * u.sum()  # rows may be none, or read nothing

    def walls(self, u: Tensor) -> Tensor:
        """List the directions in which the bounds that one flat field is at may push it, as rows."""
        eye, near = torch.eye(len(u)).double(), self.case.tolerance
        return torch.cat([-eye[u - self.lower <= near], eye[self.upper - u <= near]])


@dataclass(frozen=True)
class Findings:
    """What the judge measures on a batch, (b,) each; infinite where something is not a number."""

    violation: Tensor
    allowed: Tensor  # of violation
    stationarity: Tensor  # as a share of what is allowed, like `sign`
    sign: Tensor
    loose: Tensor  # bool: the field is smaller than one, and stationarity above 1e-6 of its size
    curvature: Tensor  # smallest eigenvalue of W where u may move, over max(1, ‖W‖); infinite where not looked at
    direction: Tensor  # (b, n), of that eigenvalue
    known: Tensor  # bool: a feasible field is known


def measure(case: Case, answer: Tensor, multipliers: Mapping[str, Tensor]) -> Findings:
    """Measure answers (b, *shape) with multipliers (b, rows) by law."""
    judge, u = Judge(case), answer.detach().double().flatten(1)
    weights = joined(judge, multipliers)
    rest = clipped(u, u - judge.u_hat + judge.pull(u, weights), judge.lower, judge.upper)
    allowed, nearest = torch.full_like(judge.size, case.tolerance), NEAREST * judge.size
    push, curvature, direction = weights.abs(), torch.full_like(judge.size, _INF), torch.zeros_like(u)
    if u.shape[1] <= DENSE:
        jacobian, hessian = judge.jacobian(u), judge.hessian(u, weights)
        push = push * jacobian.abs().amax(2)
        curvature, direction = _second_order(judge, u, weights, jacobian, hessian)
        if answer.dtype == torch.float32:
            bounded = torch.diag_embed((judge.lower > -_INF) | (judge.upper < _INF)).double().expand_as(hessian)
            allowed = allowed + _rounding(torch.cat([jacobian, bounded], 1), u)
            nearest = nearest + _rounding(hessian, u)
    residual = judge.residual(u)
    slack = torch.minimum(push, (weights * residual).abs() / judge.size[:, None]) * (residual < -allowed[:, None])
    wrong = torch.where(weights < 0, push, slack)[:, ~judge.equality]
    own = torch.maximum(largest(u), largest(judge.u_hat))
    return Findings(
        violation=judge.violation(u),
        allowed=allowed,
        stationarity=largest(rest) / nearest,
        sign=largest(wrong) / nearest,
        loose=(own < 1) & (largest(rest) > NEAREST * own),
        curvature=curvature,
        direction=direction,
        known=_known(judge),
    )


def _known(judge: Judge) -> Tensor:
    """Return for which samples a feasible field is known; each is verified."""
    known = judge.case.known
    if known is None:
        return torch.zeros(len(judge.u_hat), dtype=torch.bool)
    return judge.violation(known.double().flatten(1)) <= judge.case.tolerance


def _second_order(
    judge: Judge, u: Tensor, multipliers: Tensor, jacobian: Tensor, hessian: Tensor
) -> tuple[Tensor, Tensor]:
    """Find the smallest eigenvalue of W, over max(1, ‖W‖), along the null space of what holds u; and its direction."""
    finite = torch.isfinite(hessian).all(2).all(1) & torch.isfinite(jacobian).all(2).all(1)
    hessian, jacobian = hessian.where(finite[:, None, None], 0.0), jacobian.where(finite[:, None, None], 0.0)
    held = judge.equality | (multipliers > 0)
    unit = jacobian / jacobian.norm(dim=2, keepdim=True).clamp(min=_TINY) * held[..., None]
    near = _AT_BOUND * judge.size[:, None]
    fixed = torch.diag_embed(((u - judge.lower <= near) | (judge.upper - u <= near)).double())
    _, values, basis = torch.linalg.svd(torch.cat([unit, fixed], 1), full_matrices=False)
    basis = basis * (values > _RANK)[..., None]
    spanned = basis.mT @ basis
    free = torch.eye(u.shape[1]) - spanned
    norm = torch.linalg.matrix_norm(hessian, 2).clamp(min=1.0)
    moved = free @ hessian @ free + 2.0 * norm[:, None, None] * spanned  # what is held stays out of the smallest
    values, vectors = torch.linalg.eigh(0.5 * (moved + moved.mT))
    return torch.where(finite, values[:, 0] / norm, _INF), vectors[:, :, 0]


def nearer(case: Case, sample: int, u: Tensor, multipliers: Tensor, direction: Tensor) -> float:
    """Walk from u both ways, back onto the laws by Gauss–Newton, and return how much ‖u − û‖² falls; 0 if it does not.

    What is found is a proof that needs no rank condition: a lawful field next to u that is nearer to û.
    """
    judge, start, best = Judge(_alone(case, sample)), u.double().flatten()[None], 0.0
    here, size = float((start - judge.u_hat).square().sum()), float(judge.size)
    price, missed = 4.0 * float(multipliers.abs().sum()), float(judge.violation(start))
    for step in (1e-3, -1e-3, 3e-3, -3e-3, 1e-2, -1e-2, 3e-2, -3e-2):
        point = _back(judge, start + step * size * direction, judge.equality | (multipliers > 0))
        violation = float(judge.violation(point))
        if violation <= case.tolerance and float((point - start).norm()) <= _NEXT * size:
            gain = here - float((point - judge.u_hat).square().sum())
            # What is broken, at its price, may explain a gain; and so may rounding.
            explained = price * (missed + violation) + 1e-12 * max(1.0, here)
            best = max(best, gain if gain > explained else 0.0)
    return best


def _back(judge: Judge, point: Tensor, held: Tensor) -> Tensor:
    """Bring a field back onto the rows that hold it and the laws it breaks, within its bounds."""
    for _ in range(_CORRECTIONS):
        point = point.clamp(judge.lower, judge.upper)
        residual = judge.residual(point)
        broken = torch.where(held, residual, judge.broken(residual))
        if not bool(torch.isfinite(broken).all()) or float(largest(broken)) <= 1e-4 * judge.case.tolerance:
            break
        inner = (point > judge.lower) & (point < judge.upper)
        matrix = judge.jacobian(point)[0] * (broken != 0).T * inner
        point = point - torch.linalg.lstsq(matrix, broken.T, driver="gelsd").solution.T
    return point


def fits_at_kink(case: Case, sample: int, u: Tensor, multipliers: Tensor) -> bool:
    """Return whether a mixture of slopes around u makes u stationary: where they jump, torch's own is one of many (Clarke)."""
    judge, flat = Judge(_alone(case, sample)), u.double().flatten()
    size, count = float(judge.size), _AROUND
    noise = torch.randn(count, len(flat), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    judge.params = {name: value.expand(count, *value.shape[1:]) for name, value in judge.params.items()}
    pulls = flat - judge.u_hat + judge.pull(flat + 1e-8 * size * noise, multipliers.expand(count, -1))
    if _shortest_mix(pulls / size, judge.walls(flat)) <= _AT_KINK:
        return True
    # Many kinks have more sides than can be drawn: weigh the two slopes of each.
    alone = _alone(case, sample)
    sizes = [law.residual(u.double(), one_of(alone.params, 0)).numel() for law in judge.laws]
    weights = {law.name: part[None] for law, part in zip(judge.laws, multipliers.reshape(-1).split(sizes))}
    found = weighed(case.laws, alone.u_hat.double(), u.double()[None], weights, alone.params)
    return float(found.stationarity) <= NEAREST * size


def fits_otherwise(case: Case, sample: int, u: Tensor) -> bool:
    """Return whether some multipliers make u stationary, though its own do not."""
    judge, flat = Judge(_alone(case, sample)), u.double().flatten()
    residual, slopes = judge.residual(flat[None])[0], judge.jacobian(flat[None])[0]
    active = judge.equality | (residual >= -case.tolerance)
    pushes = torch.cat([slopes[active], -slopes[judge.equality], judge.walls(flat)])
    pushes = pushes / pushes.norm(dim=1, keepdim=True).clamp(min=_TINY)
    goal = judge.u_hat[0] - flat
    if not bool(torch.isfinite(pushes).all() & torch.isfinite(goal).all()):
        return False
    found, _ = nnls(pushes.T.numpy(), goal.numpy())
    return float((pushes.T @ torch.from_numpy(found) - goal).abs().max()) <= NEAREST * float(judge.size)


def contradiction(case: Case, sample: int, u: Tensor) -> float:
    """Measure how far the laws at u are from contradicting each other to first order (Farkas): 0 if no step mends them.

    It is the shortest mix of the slopes of broken rows; those of rows and bounds that hold u push as they may. Slopes are of unit
    length, and shorter where mending a row would take a step longer than the field.
    """
    judge, flat = Judge(_alone(case, sample)), u.double().flatten()
    residual, slopes = judge.residual(flat[None])[0], judge.jacobian(flat[None])[0]
    slopes = slopes / torch.maximum(slopes.norm(dim=1), residual.abs() / judge.size).clamp(min=_TINY)[:, None]
    broken = judge.broken(residual).abs() > case.tolerance
    kept = ~broken & (judge.equality | (residual >= -case.tolerance))
    others = torch.cat([slopes[kept], -slopes[kept & judge.equality], judge.walls(flat)])
    return _shortest_mix((slopes * residual.sign()[:, None])[broken], others)


def _shortest_mix(vectors: Tensor, others: Tensor) -> float:
    """Return about the least length of a convex mix of vectors (k, n) plus a non-negative sum of others."""
    columns = torch.cat([vectors, others])
    if len(vectors) == 0 or not bool(torch.isfinite(columns).all()):
        return _INF
    share = torch.cat([torch.ones(len(vectors)), torch.zeros(len(others))])[None]
    goal = torch.cat([torch.zeros(columns.shape[1]), torch.ones(1)])
    _, left = nnls(torch.cat([columns.T, share.double()]).numpy(), goal.double().numpy())
    return float(left)


def joined(judge: Judge, multipliers: Mapping[str, Tensor]) -> Tensor:
    """Join the multipliers of all laws: (b, m)."""
    none = _NONE.expand(len(judge.u_hat), 0)
    return torch.cat([none, *(multipliers[law.name].detach().double() for law in judge.laws)], 1)


def _alone(case: Case, sample: int) -> Case:
    """Return one sample of a case as a batch of one."""
    only = slice(sample, sample + 1)
    return replace(case, params={name: value[only] for name, value in case.params.items()}, u_hat=case.u_hat[only])


def _rounding(matrix: Tensor, u: Tensor) -> Tensor:
    """Bound what float32 rounding of u does to a product with a matrix (b, k, n): the largest ε Σ|a||u|, (b,)."""
    return torch.finfo(torch.float32).eps * (matrix.abs() @ u.abs()[..., None])[..., 0].nan_to_num(0.0, 0.0).amax(1)


def largest(value: Tensor) -> Tensor:
    """Return each sample's largest size; NaN counts as infinite, so that it cannot hide behind a maximum."""
    return value.abs().nan_to_num(_INF, _INF).amax(1) if value.shape[1] else torch.zeros(len(value)).double()


def false_claims(case: Case, found: Projection, seen: Findings) -> list[dict[str, Any]]:
    """List every false claim of a batch, with the check that found it."""
    claimed = found.status == Status.CONVERGED
    faults = {
        "violation": claimed & ~(seen.violation <= seen.allowed * ROUNDING),
        "stationarity": claimed & ~(seen.stationarity <= ROUNDING),
        "sign": claimed & ~(seen.sign <= ROUNDING),
        "second order": claimed & ~(seen.curvature >= -NEAREST),
        "infeasible": (found.status == Status.INFEASIBLE) & seen.known,
        "nonfinite": (found.status != Status.NONFINITE) & ~torch.isfinite(case.u_hat).flatten(1).all(1),
    }
    weights = joined(Judge(case), found.multipliers)
    told = []
    for name, where in faults.items():
        for i in torch.nonzero(where).flatten().tolist():
            fault, measured = _examine(name, case, i, found.u[i], weights[i], seen)
            if fault is not None:
                told.append(
                    {
                        "fault": fault,
                        "sample": i,
                        "laws": list(case.makes),
                        "shape": list(case.shape),
                        "iterations": int(found.iterations[i]),
                        "violation": float(seen.violation[i]),
                        "stationarity": float(seen.stationarity[i]) * NEAREST,
                        "sign": float(seen.sign[i]) * NEAREST,
                        "multiplier": float(largest(weights[i][None])),
                        **measured,
                    }
                )
    return told


def _examine(
    fault: str, case: Case, sample: int, u: Tensor, multipliers: Tensor, seen: Findings
) -> tuple[str | None, dict[str, float]]:
    """Check one suspect again: return the name of its fault, None if there is none, and the measurements."""
    small = u.numel() <= DENSE
    if fault == "stationarity" and small:
        if fits_at_kink(case, sample, u, multipliers):
            return None, {}
        return ("multipliers" if fits_otherwise(case, sample, u) else fault), {}
    if fault == "second order":
        gain = nearer(case, sample, u, multipliers, seen.direction[sample])
        measured = {"curvature": float(seen.curvature[sample]), "nearer_by": gain}
        return (fault if gain > 0 else "second order, unproved"), measured
    if fault == "infeasible" and small:
        left = contradiction(case, sample, u)
        return ("infeasible, true nearby" if left <= _CANCELS else fault), {"contradiction": left}
    return fault, {}
