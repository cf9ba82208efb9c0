"""Gradients through projections: what they cost beside the projection, and whether they are right.

Cost: processor seconds of backward over those of forward, as the median of ratios in one run, one thread; in û alone, and in û
and all params. Error: against the dense KKT system of the laws as written, differentiated by torch, relative to the largest
entry; for one converged sample of each law of the any-law suite, at the size for tests. Answers on kinks are not compared.
"""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

import benchmarks.any_law.cases  # noqa: F401  registers the cases
import snapfm
from benchmarks.any_law.case import CASES, LEVELS
from snapfm.laws import Bounds

SIX = (
    "heat-ic-mass", "heat-ic-mass-pde-energy", "burgers-bc-mass", "burgers-ic-mass-flux", "reaction-diffusion-ic-mass",
    "navier-stokes-ic-mass-enstrophy",
)  # fmt: skip
SAMPLES = 32
RATIOS, FEW = 24, 5  # per problem, and per law of the suite
DENSE = 260  # unknowns up to which the dense system is made: one pass of torch for each
_ACTIVE = 1e-7  # multipliers of active inequalities
_RANK = 1e-12  # of the dense system: rows may repeat each other
_DEPENDENT, _HUGE = 1e-9, 1e100
SECONDS = 20.0  # of a projection: laws that take longer here are left out


def run() -> dict[str, Any]:
    """Measure the six problems, then every law of the suite near and far."""
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {"samples": SAMPLES, "problems": list(_problems()), "laws": list(_laws())}


def _problems() -> Iterator[dict[str, Any]]:
    for name in SIX:
        problem, generator = snapfm.problem(name), torch.Generator().manual_seed(0)
        fields, params = problem.truth(SAMPLES, generator)
        u_hat = fields + 0.1 * torch.randn(fields.shape, generator=generator, dtype=fields.dtype)
        yield {"problem": name, **_measured(problem.laws, u_hat, params, 1e-5, RATIOS)}
        print(name)


def _laws() -> Iterator[dict[str, Any]]:
    smallest = {case.stem: case for case in reversed(CASES.values())}
    for stem, case in sorted(smallest.items()):
        for level in LEVELS:
            setting = case.setting(case.tiny, SAMPLES)
            yield {
                "law": stem,
                "level": level,
                **_measured(setting.laws, case.input(setting, level), setting.params, case.tolerance, FEW),
            }
            print(stem, level)


def _measured(laws: Any, u_hat: Tensor, params: dict[str, Tensor], tolerance: float, repeats: int) -> dict[str, Any]:
    example = {name: value[:1] for name, value in params.items()}
    project = snapfm.Projector(laws, u_hat.shape[1:], example, tolerance, seconds=SECONDS)
    weight = torch.randn(u_hat.shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    begin = time.perf_counter()
    result = project(u_hat, params)
    if time.perf_counter() - begin > SECONDS / 4:
        return {"left_out": f"a projection takes {time.perf_counter() - begin:.0f} s"}
    found: dict[str, Any] = {"unknowns": u_hat[0].numel(), "converged": int(result.converged.sum())}
    try:
        for key, wanted in (("u_hat", False), ("params", True)):
            if wanted and not any(value.is_floating_point() for value in params.values()):
                continue
            ratios = [_ratio(project, u_hat, params, weight, wanted) for _ in range(repeats + 1)][1:]
            found[key] = {"ratio": round(statistics.median(ratios), 3), "worst": round(max(ratios), 3)}
        found["error"] = _error(project, u_hat, params, weight, result)
    except snapfm.errors.UnsupportedLaw as refused:
        found["refused"] = str(refused).split(";")[0]
    return found


def _ratio(project: Any, u_hat: Tensor, params: dict[str, Tensor], weight: Tensor, wanted: bool) -> float:
    leaves = {k: v.clone().requires_grad_(wanted and v.is_floating_point()) for k, v in params.items()}
    given = u_hat.clone().requires_grad_()
    began = time.process_time()
    answer = project(given, leaves).u
    between = time.process_time()
    answer.backward(weight)
    return (time.process_time() - between) / (between - began)


def _error(project: Any, u_hat: Tensor, params: dict[str, Tensor], weight: Tensor, result: Any) -> float | str:
    """Compare the gradients of one sample with those of the dense system."""
    if u_hat[0].numel() > DENSE:
        return "too large"
    fine = torch.nonzero(result.converged & ~result.generalized & (result.second_order != 0)).flatten()
    if not len(fine):
        return "no sample"
    i = int(fine[0])
    own = {name: value[i : i + 1] if len(value) > 1 else value for name, value in params.items()}
    leaves = {k: v.clone().requires_grad_(v.is_floating_point()) for k, v in own.items()}
    given = u_hat[i : i + 1].clone().requires_grad_()
    answer = project(given, leaves)
    answer.u.backward(weight[i : i + 1])
    w, by_params = _dense(project, answer, own, weight[i].flatten().numpy())
    assert given.grad is not None
    errors = [_apart(given.grad.flatten(), w)]
    for name, leaf in leaves.items():
        if name in by_params:
            mine = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
            errors.append(_apart(mine.flatten(), by_params[name].flatten()))
    return float(f"{max(errors):.1e}")


def _apart(one: Tensor, other: Tensor) -> float:
    return float((one - other).abs().max() / other.abs().max().clamp(min=1.0))


def _dense(project: Any, answer: Any, params: dict[str, Tensor], g: np.ndarray) -> tuple[Tensor, dict[str, Tensor]]:
    """Solve the KKT system of one answer over all rows and unknowns; return the gradients in û and in the params.

    Where rows repeat each other, ν is not unique, and no gradient in params is returned: only changes of params that keep the
    laws consistent have one. Neither is one that torch's derivative of the law makes infinite.
    """
    shape = answer.u.shape[1:]
    laws = [law for law in project.laws if not isinstance(law, Bounds)]
    point = answer.u.detach()[0].flatten()
    lam = torch.cat([answer.multipliers[law.name][0] for law in laws])
    leaves = {k: v[0].clone().requires_grad_(v.is_floating_point()) for k, v in params.items()}

    def rows(flat: Tensor, values: dict[str, Tensor]) -> Tensor:
        return torch.cat([law.residual(flat.reshape(shape), values).flatten().double() for law in laws])

    fixed = {name: value.detach() for name, value in leaves.items()}
    jacobian = torch.autograd.functional.jacobian(lambda x: rows(x, fixed), point)
    hessian = torch.autograd.functional.hessian(lambda x: lam @ rows(x, fixed), point)
    equality = torch.from_numpy(project.structure.equality_rows)
    push = lam * jacobian.norm(dim=1).clamp(min=1e-300)
    active = (equality | (push > _ACTIVE * push.abs().max().clamp(min=1.0))).numpy()
    x = point.numpy()
    free = (x < project.limits.upper) & (x > project.limits.lower)
    scale = 1.0 / np.maximum(np.linalg.norm(jacobian.numpy(), axis=1), 1e-300)
    a = (jacobian.numpy() * scale[:, None])[active][:, free]
    w_matrix = (np.eye(len(x)) + hessian.numpy())[free][:, free]
    matrix = np.block([[w_matrix, a.T], [a, np.zeros((len(a), len(a)))]])
    solved = np.linalg.lstsq(matrix, np.concatenate([g[free], np.zeros(len(a))]), rcond=_RANK)[0]
    w, nu = np.zeros(len(x)), np.zeros(len(lam))
    w[free], nu[active] = solved[: int(free.sum())], solved[int(free.sum()) :] * scale[active]
    moving = point.clone().requires_grad_()
    value = rows(moving, leaves)
    (pull,) = torch.autograd.grad(lam @ value, moving, create_graph=True)
    total = -(pull @ torch.from_numpy(w) + torch.from_numpy(nu) @ value)
    wanted = [name for name, leaf in leaves.items() if leaf.requires_grad]
    found = torch.autograd.grad(total, [leaves[name] for name in wanted], allow_unused=True) if wanted else ()
    by_params = {name: torch.zeros_like(leaves[name]) if one is None else one for name, one in zip(wanted, found)}
    unique = np.linalg.matrix_rank(a, _DEPENDENT) == len(a) if len(a) else True
    return torch.from_numpy(w), {k: v for k, v in by_params.items() if unique and bool((v.abs() < _HUGE).all())}
