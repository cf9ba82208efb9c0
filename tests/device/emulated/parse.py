"""Read PTX: functions and their instructions, as much of the language as numba-cuda writes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_SPACE = re.compile(
    r"^(?:\.(?:visible|common|extern|weak)\s+)*\.(?:global|const)\s+(?:\.align\s+\d+\s+)?\.(\w+)\s+([\w$]+)(?:\[(\d*)\])?"
    r"(?:\s*=\s*(\{[^}]*\}|[^;]*))?;",
    re.M,
)
_HEAD = re.compile(
    r"^(?:\.(?:visible|weak)\s+)*\.(func|entry)\s+(?:\((\.param[^)]*)\)\s*)?([\w$]+)\s*\((.*?)\)\s*(?:\.\w+[^\n{;]*\s*)*(;|\{)",
    re.M | re.S,
)


@dataclass(frozen=True)
class Constant:
    """A global array: name, type, number of elements, values as written."""

    name: str
    kind: str
    count: int
    values: str


@dataclass(frozen=True)
class Instruction:
    """`@guard op operands`; a label has the op `label`, braces are `{` and `}`. `line` is that of the PTX."""

    op: str
    operands: tuple[str, ...] = ()
    guard: str = ""
    line: int = 0


@dataclass(frozen=True)
class Function:
    """An entry or a function that others call."""

    name: str
    entry: bool
    parameters: tuple[str, ...]
    result: str
    body: tuple[Instruction, ...]
    sources: dict[int, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Module:
    """A whole PTX."""

    constants: tuple[Constant, ...]
    functions: tuple[Function, ...]


def parse(ptx: str) -> Module:
    """Read a module."""
    text = re.sub(r"//[^\n]*", "", ptx)
    constants = [
        Constant(name, kind, int(count or 1), values or "") for kind, name, count, values in _SPACE.findall(text)
    ]
    functions = []
    for found in _HEAD.finditer(text):
        kind, result, name, parameters, end = found.groups()
        if end == ";":
            continue
        close = _closing(text, found.end())
        first = text.count("\n", 0, found.end())
        functions.append(
            Function(
                name, kind == "entry", tuple(_name(one) for one in parameters.split(",") if one.strip()),
                _name(result) if result else "", tuple(_instructions(text[found.end() : close], first)),
            )
        )  # fmt: skip
    return Module(tuple(constants), tuple(functions))


def _closing(text: str, begin: int) -> int:
    depth, at = 1, begin
    while depth:
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        at += 1
    return at - 1


def _name(declaration: str) -> str:
    found = re.search(r"([\w$]+)(?:\[\d+\])?\s*$", declaration)
    assert found is not None
    return found.group(1)


def _instructions(body: str, first: int) -> Iterator[Instruction]:
    """Cut a body into statements: labels, braces that stand alone, and what ends with a semicolon."""
    pending, begin = "", first
    for number, line in enumerate(body.split("\n")):
        part = line.strip()
        if not part:
            continue
        if not pending:
            begin = first + number
            if part in "{}":
                yield Instruction(part)
                continue
            if re.fullmatch(r"[\w$]+:", part):
                yield Instruction("label", (part[:-1],))
                continue
        pending = f"{pending} {part}".strip()
        if pending.endswith(";"):
            yield _statement(pending[:-1], begin)
            pending = ""


def _statement(text: str, line: int) -> Instruction:
    text, guard = re.sub(r"\s+", " ", text), ""
    if text.startswith("@"):
        guard, _, text = text[1:].partition(" ")
    op, _, rest = text.strip().partition(" ")
    return Instruction(op, tuple(_split(rest)), guard, line)


def _split(operands: str) -> Iterator[str]:
    """Cut at commas outside of brackets, braces and parentheses."""
    depth, now = 0, ""
    for letter in operands:
        depth += {"{": 1, "[": 1, "(": 1, "}": -1, "]": -1, ")": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            yield now.strip()
            now = ""
        else:
            now += letter
    if now.strip():
        yield now.strip()
