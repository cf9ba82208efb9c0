"""Every public name is in the API reference and has a docstring; those that take or return tensors say their shapes."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import snapfm

PAGES = Path(__file__).parents[2] / "docs" / "reference"
PRIVATE = {"cli", "device", "kernels"}  # commands and compiled code: not for import by users
BEYOND = ("snapfm.files.engines", "snapfm_bench.problems", "snapfm_bench.flow", "snapfm_bench.files")
LISTED = [name for page in sorted(PAGES.glob("*.md")) for name in re.findall(r"^::: (\S+)$", page.read_text(), re.M)]


def packages() -> list[ModuleType]:
    names = [one.name for one in pkgutil.iter_modules(snapfm.__path__) if one.ispkg and one.name not in PRIVATE]
    return [snapfm, *map(importlib.import_module, [*(f"snapfm.{name}" for name in names), *BEYOND])]


def public() -> list[str]:
    """Name all public objects; modules among them have pages of their own."""
    names = [f"{package.__name__}.{name}" for package in packages() for name in getattr(package, "__all__", ())]
    return [name for name in names if not isinstance(found(name), ModuleType)]


def found(path: str) -> Any:
    """Return the object that a dotted path names."""
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def documented(path: str) -> str:
    """Return the docstring of a name: that of a class or function, or the string below a constant or type alias."""
    value = found(path)
    if inspect.isclass(value) or inspect.isfunction(value):
        return inspect.getdoc(value) or ""
    module, _, name = path.rpartition(".")
    return _below(importlib.import_module(module), name)


def _below(module: ModuleType, name: str) -> str:
    """Find where a name is assigned, through imports, and return the string that follows the assignment."""
    body = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8")).body
    for here, after in zip(body, [*body[1:], ast.Pass()]):
        if isinstance(here, ast.ImportFrom) and name in [alias.asname or alias.name for alias in here.names]:
            return _below(importlib.import_module(str(here.module)), name)
        targets = (
            here.targets if isinstance(here, ast.Assign) else [here.target] if isinstance(here, ast.AnnAssign) else []
        )
        if name in [target.id for target in targets if isinstance(target, ast.Name)]:
            is_text = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
            return str(after.value.value) if is_text else ""  # type: ignore[attr-defined]
    return ""


@pytest.mark.parametrize("path", public())
def test_a_public_name_is_in_the_reference_and_says_what_it_is(path: str):
    value = found(path)
    same = [one for one in LISTED if one == path or (found(one) is value and not isinstance(value, int | float | str))]
    assert same, f"{path} is on no page of docs/reference; add `::: {path}` to one"
    first = documented(same[0]).partition("\n")[0]
    assert first.endswith((".", ":")), f"{same[0]} has no one-line summary"


def test_nothing_is_listed_twice():
    assert len(LISTED) == len(set(LISTED))
    values = [id(found(path)) for path in LISTED if callable(found(path))]
    assert len(values) == len(set(values))


@pytest.mark.parametrize("page", sorted(PAGES.glob("*.md")), ids=lambda page: page.stem)
def test_names_of_a_page_exist(page: Path):
    for path in re.findall(r"^::: (\S+)$", page.read_text(), re.M):
        assert found(path) is not None


TENSORS = [
    "snapfm.Equality", "snapfm.Inequality", "snapfm.Bounds", "snapfm.Oracle", "snapfm.Projector", "snapfm.Projection",
    "snapfm.Samples", "snapfm.Spread", "snapfm.Metric", "snapfm.sample", "snapfm.adapters.Normalized",
    "snapfm_bench.problems.problem", "snapfm.metrics.crps.crps", "snapfm.metrics.scores.scores", "snapfm.files.load",
    "snapfm_bench.flow.train", "snapfm.laws.initial", "snapfm.laws.mass", "snapfm.laws.dirichlet", "snapfm.compile.compile_laws",
]  # fmt: skip


@pytest.mark.parametrize("path", TENSORS)
def test_names_that_take_tensors_say_their_shapes(path: str):
    value = found(path)
    text = documented(path)
    if inspect.isclass(value):  # attributes have docstrings of their own
        text += inspect.getsource(value)
    assert re.search(r"\((?:b|r|count|nx|n|m|c|1|\*shape)\b[^()]*\)", text), f"{path} names no shape"
