"""Find functions, classes and methods that nothing in the two packages uses: reachable from tests only, or not at all.

Goes by names: a definition counts as used if its name is read anywhere in the sources but in its own body, or if a decorator
registers it. Public names and those listed below with a reason are exempt. Exits with 1 if anything is left.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIBRARY, BENCH = ROOT / "src" / "snapfm", ROOT / "bench" / "src" / "snapfm_bench"

# Used from outside the packages, each for the reason given.
EXEMPT = {
    "main": "entry point of the command line",
    "log_determinant": "of the linear seam, for samplers that weigh by the volume of the constraint's normal space",
    "verify": "public: compares a user's laws with dense derivatives (docs/how-to.md)",
}
PUBLIC = ("", "adapters", "linear", "plot")  # packages of the library whose names users import; in the bench, all are
# Methods that other packages call on their own base classes and callbacks.
HOOKS = {
    "forward",
    "backward",
    "setup_context",
    "vmap",
    "jvp",
    "_repr_html_",
    "invoke",
    "_apply",
    "jacobianstructure",
    "hessianstructure",
    "nopython_signatures",
    "get_call_template",
    "get_overload",
    "_customize_flags",
    "generic_resolve",
    "cache_path",
    "_should_skip_dynamo",
}
# Decorators that hand a function to someone who calls it; `property` and the like do not.
PASSIVE = {"property", "cached_property", "classmethod", "staticmethod", "dataclass", "compiled", "intrinsic", "cache",
           "contextmanager", "abstractmethod", "once_differentiable", "overload"}  # fmt: skip


def main() -> int:
    """Report and give the exit code."""
    trees = {
        path: ast.parse(path.read_text()) for sources in (LIBRARY, BENCH) for path in sorted(sources.rglob("*.py"))
    }
    opened = [*(LIBRARY / place / "__init__.py" for place in PUBLIC), *BENCH.rglob("__init__.py")]
    public = set().union(*(_exported(trees[file]) for file in opened))
    defined: dict[str, list[tuple[Path, int]]] = {}
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not _registered(node):
                defined.setdefault(node.name, []).append((path, node.lineno))
    used = set().union(*(_used(tree) for tree in trees.values()))
    contract = _methods_of_public(trees, public)
    left = {
        name: places
        for name, places in defined.items()
        if name not in used | public | contract | set(EXEMPT) and not name.startswith("__")
    }
    for name, places in sorted(left.items(), key=lambda one: one[1]):
        for path, line in places:
            print(f"{path.relative_to(ROOT)}:{line}: {name} is used by nothing in src or bench/src")
    print(f"{sum(map(len, defined.values()))} definitions, {sum(map(len, left.values()))} of them unreached")
    return int(bool(left))


def _used(tree: ast.Module) -> set[str]:
    """Collect the names that a module reads, those read only inside a definition of the same name left out."""
    found: set[str] = set()

    def walk(node: ast.AST, inside: tuple[str, ...]) -> None:
        name = None
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            name = node.id
        elif isinstance(node, ast.Attribute):
            name = node.attr
        elif isinstance(node, ast.keyword):
            name = node.arg
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
            name = node.value  # getattr, and annotations written as strings
        if name is not None and name not in inside:
            found.add(name)
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            inside = (*inside, node.name)
        for child in ast.iter_child_nodes(node):
            if not _is_all(child):
                walk(child, inside)

    walk(tree, ())
    return found


def _is_all(node: ast.AST) -> bool:
    return isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets)


def _registered(node: ast.FunctionDef | ast.ClassDef) -> bool:
    for decorator in node.decorator_list:
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
        if name not in PASSIVE:
            return True
    return False


def _exported(tree: ast.Module) -> set[str]:
    """Read the public names of the package."""
    for node in tree.body:
        if _is_all(node):
            return set(ast.literal_eval(node.value))  # type: ignore[attr-defined]
    return set()


def _methods_of_public(trees: dict[Path, ast.Module], public: set[str]) -> set[str]:
    """Collect the public methods of public classes, and the methods that a base class of another package asks for."""
    found: set[str] = set()
    for tree in trees.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and node.name in public:
                found |= {one.name for one in node.body if isinstance(one, ast.FunctionDef) and one.name[0] != "_"}
    return found | HOOKS


if __name__ == "__main__":
    sys.exit(main())
