"""Laws are recorded as torch's make_fx would record them, without what it imports; what is not followed is left to it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from benchmarks.any_law.case import CASES as PHYSICS
from hypothesis import HealthCheck, given, note, settings
from tests.compile import operator_laws, random_laws
from tests.compile.lower.test_composites import LAWS as COMPOSITES
from tests.compile.random_laws import FAMILIES, Chain
from tests.compile.trace.both_records import assert_same, operators, ours, torchs
from tests.compile.trace.test_tracing_lock import together
from torch import Tensor, nn

import snapfm
from snapfm.compile.trace.recording import Unrecordable, record, recorded
from snapfm.compile.trace.trace import example_of, trace
from snapfm.errors import LawError
from snapfm.laws import Bounds, Equality
from snapfm_bench.problems import names

EXAMPLES = 10  # of each family of random laws: the operators are those of the table, in chains
OPERATORS = {case.name: case for case in operator_laws.cases()}
STEMS = {case.stem: case for case in PHYSICS.values()}
C = torch.sin(torch.arange(12.0, dtype=torch.float64)).reshape(3, 4)
WEIGHT = nn.Parameter(C[:, :3].clone())
SCALE = torch.tensor(2.5, dtype=torch.float64)
MODULE = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True).double().eval()


def field(*shape: int) -> Tensor:
    return 0.1 + 0.8 * torch.rand(shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


class Cubed(torch.autograd.Function):
    """A function with a derivative of its own."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, grad):
        return 3 * ctx.saved_tensors[0] ** 2 * grad


def _written(u: Tensor) -> Tensor:
    out = torch.zeros_like(u)
    out[0] = u[1]
    out[1:] += u[:2] ** 2
    out.view(-1)[::2].mul_(3.0)  # through a view
    return out


def _written_constant(u: Tensor) -> Tensor:
    out = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=u.dtype)
    return u * out.add_(2.0)


def _slope(u: Tensor) -> Tensor:
    with torch.enable_grad():
        x = u.detach().requires_grad_()
        (slope,) = torch.autograd.grad((x**3).sum(), x)
    return slope + u


# Ways to call torch that the tables of operators do not contain.
WAYS: dict[str, Callable[[Tensor], Tensor]] = {
    "module": lambda u: MODULE(u[None])[0],
    "parameter": lambda u: u.T @ WEIGHT,
    "one constant, many times": lambda u: u * C + torch.sin(C) - C,
    "number of a constant": lambda u: u**2 * float(SCALE),
    "autograd inside": _slope,
    "function of its own": Cubed.apply,
    "jacobian": lambda u: torch.func.jacrev(lambda x: (x**3).sum(1))(u).sum(0) + u,
    "forward jacobian": lambda u: torch.func.jacfwd(lambda x: (x**3).sum(1))(u).sum(0) + u,
    "vmap": lambda u: torch.vmap(lambda row: row * torch.outer(row, row).sum(0))(u),
    "script": torch.jit.script(F.silu),
    "writes": _written,
    "writes into a constant of its own": _written_constant,
    "out": lambda u: torch.sin(u, out=torch.empty_like(u)),
    "lists": lambda u: torch.block_diag(*u.split(1)),
    "sparse": lambda u: torch.sparse.mm(C.to_sparse(), u.T),
    "transform": lambda u: torch.fft.irfft2(torch.fft.rfft2(u) * 2.0, s=u.shape) ** 2,
    "scatter": lambda u: torch.zeros(2, 4, dtype=u.dtype).index_put_((torch.tensor([0, 1, 1]),), u, accumulate=True),
    "several results": lambda u: u.sort(1).values * torch.linalg.qr(u.T).Q.T,
    "infinite": lambda u: torch.where(u > 0.5, u, -torch.inf).logsumexp(1),
    "the field itself": lambda u: u,
}


@pytest.mark.parametrize("name", OPERATORS)
def test_operators(name: str):
    case = OPERATORS[name]
    assert_same(Equality(name, case.residual), field(*case.shape), {"p": 0.6 + field(5)})


@pytest.mark.parametrize("name", COMPOSITES)
def test_composites(name: str):
    assert_same(Equality(name, lambda u, p: COMPOSITES[name](u)), field(3, 4), {})


@pytest.mark.parametrize("name", WAYS)
def test_ways_to_call_torch(name: str):
    assert_same(Equality(name, lambda u, p: WAYS[name](u)), field(3, 4), {})


@pytest.mark.parametrize("name", names())
def test_problems(name: str):
    problem = snapfm.problem(name)
    u, params = example_of(problem.grid.shape, problem.params(1, torch.Generator().manual_seed(0)))
    for law in problem.laws:
        if not isinstance(law, Bounds):
            assert_same(law, u, params)


@pytest.mark.parametrize("stem", STEMS)
def test_physics(stem: str):
    setting = STEMS[stem].setting(STEMS[stem].tiny, 1)
    u, params = example_of(setting.truth.shape[1:], setting.params)
    for law in setting.laws:
        if not isinstance(law, Bounds):
            assert_same(law, u, params)


@pytest.mark.parametrize("family", FAMILIES)
def test_random_laws(family: str):
    @settings(
        max_examples=EXAMPLES, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(random_laws.laws(family))
    def every_law(chain: Chain) -> None:
        note(repr(chain))
        params = {name: value[0] for name, value in chain.params.items()}
        assert_same(Equality("random", chain.residual), chain.fields[0], params)

    every_law()


def test_graphs_are_called_like_the_function():
    def function(u: Tensor, params: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        return u * params["b"], {"a": params["a"] + C[0]}

    graph = recorded(function, field(4), {"b": field(4), "a": field(4)})
    u, params = field(4) - 1.0, {"b": field(4) + 2.0, "a": field(4) + 3.0}
    found, expected = graph(u, params), function(u, params)
    assert torch.equal(found[0], expected[0])
    assert list(found[1]) == ["a"]
    assert torch.equal(found[1]["a"], expected[1]["a"])


def test_inputs_are_not_written_to():
    u = field(4)
    recorded(lambda x: x.mul_(2.0), u)
    assert torch.equal(u, field(4))


# What is left to make_fx.


def _catches(u: Tensor) -> Tensor:
    try:
        return u * float(u.sum())
    except Exception:
        return u


class Named(Tensor):
    """A class of tensors of one's own."""


LEFT: dict[str, Callable[[Tensor], Tensor]] = {
    "reads a value": lambda u: u * float(u.sum()),
    "reads a value and catches that": _catches,
    "chooses": lambda u: u if torch.equal(u, u) else -u,
    "operator of higher order": lambda u: torch.cond(u.sum() > 0, torch.sin, torch.cos, (u,)),
    "class of tensors": lambda u: (u.as_subclass(Named) ** 2).as_subclass(Tensor),
}


@pytest.mark.parametrize("name", LEFT)
def test_what_cannot_be_followed_is_left_to_torch(name: str):
    with pytest.raises(Unrecordable):
        record(LEFT[name], field(4), decompositions={})
    law = Equality("law", lambda u, p: LEFT[name](u))
    with pytest.raises(LawError) as refused:
        trace(law, field(4), {})
    with pytest.raises(LawError) as expected:
        torchs(law, field(4), {})
    assert str(refused.value) == str(expected.value)


def test_a_small_constant_is_known_to_torch():
    law = Equality("law", lambda u, p: u**2 * (torch.tensor(2.0) + 1.0).item())
    with pytest.raises(Unrecordable, match="_local_scalar_dense"):
        record(lambda u: law.residual(u, {}), field(4), decompositions={})
    assert operators(trace(law, field(4), {})) == operators(torchs(law, field(4), {}))


def test_a_function_that_goes_on_after_an_error_is_not_recorded():
    def function(u: Tensor) -> Tensor:
        try:
            return torch.linalg.cholesky(u)
        except RuntimeError:
            return u

    with pytest.raises(Unrecordable, match="raised"):
        record(function, -torch.eye(3, dtype=torch.float64), decompositions={})


def test_a_function_of_torch_compile_is_recorded_as_its_operators():
    """make_fx refuses it."""
    compiled = torch.compile(lambda u: torch.sin(u) * u, backend="eager")
    found = ours(Equality("law", lambda u, p: compiled(u)), field(4), {})
    assert [name for name, *_ in operators(found)][:2] == ["aten.sin.default", "aten.mul.Tensor"]


# What a recording leaves behind.


def test_records_of_many_threads_leave_no_mode_behind():
    """torch.compile would compile nothing any more: torch notes in a global that there is a mode."""
    entered = torch.utils._python_dispatch.is_in_torch_dispatch_mode

    def work(number: int) -> None:
        for _ in range(20):
            record(torch.sin, field(4), decompositions={})

    assert not entered()
    together(work, 4)
    assert not entered()


def test_a_first_projection_imports_no_compiler():
    """They take longer to import than all the rest of it."""
    code = """
import sys, torch
before = set(sys.modules)
import snapfm
laws = [
    snapfm.Equality("total", lambda u, p: u.sum(0) - p["m"]),
    snapfm.Equality("energy", lambda u, p: (u[:, 0] ** 2).sum() - 2.0),
    snapfm.Inequality("decay", lambda u, p: (u[:, 1:] ** 2).sum(0) - (u[:, :-1] ** 2).sum(0)),
    snapfm.Bounds(lower=-3.0),
]
m = torch.full((1, 4), 0.5, dtype=torch.float64)
project = snapfm.Projector(laws, (6, 4), {"m": m})
project(torch.linspace(1.0, -1.0, 24, dtype=torch.float64).reshape(1, 6, 4), {"m": m}).raise_for_status()
slow = ("torch._dynamo", "torch._inductor", "sympy", "scipy.optimize", "numba.np.linalg")
print([name for name in slow if name in sys.modules and name not in before])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
