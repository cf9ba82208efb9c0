"""Write PTX as C, one statement an instruction, to be run by runtime.c.

Registers are variables of a thread. Every access to memory, barrier and shuffle goes through macros of the runtime, with the line
of the PTX. Approximate instructions (rcp.approx and the like) are exact here, cut to the bits that the hardware gives: what
refines them ends at the same number, or beside it.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable

from tests.device.emulated.parse import Constant, Function, Instruction, Module

_C = {
    "b8": "uint8_t", "u8": "uint8_t", "s8": "int8_t", "b16": "uint16_t", "u16": "uint16_t", "s16": "int16_t",
    "b32": "uint32_t", "u32": "uint32_t", "s32": "int32_t", "b64": "uint64_t", "u64": "uint64_t", "s64": "int64_t",
    "f32": "float", "f64": "double", "pred": "int",
}  # fmt: skip
_SPECIAL = {
    f"%{name}.{axis}": f"t->{name}[{k}]" for name in ("tid", "ntid", "ctaid", "nctaid") for k, axis in enumerate("xyz")
} | {"%laneid": "((t->number - 1) % 32)"}
_BINARY = {"add": "+", "sub": "-", "and": "&", "or": "|", "xor": "^"}
_COMPARE = {
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "lo": "<",
    "ls": "<=",
    "hi": ">",
    "hs": ">=",
}
_ROUND = {"rni": "rint", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}


# Kinds of instructions that are counted: loads and stores, arithmetic in float64, anything else, barriers and shuffles.
KINDS = ("loads", "stores", "floats", "others", "barriers", "shuffles")
_KIND = {"ld": 0, "st": 1, "bar": 4, "shfl": 5}


class UnknownInstruction(NotImplementedError):
    """The PTX has an instruction that the emulation does not know."""


def translate(module: Module) -> tuple[str, list[int]]:
    """Return C for a module, and the lines of the PTX where threads meet."""
    names = {one.name: f"G{number}" for number, one in enumerate(module.constants)}
    names |= {one.name: f"F{number}" for number, one in enumerate(module.functions)}
    meetings = _Counter()
    parts = [_constant(one, names[one.name]) for one in module.constants]
    listed = [f"{{(char *){names[one.name]}, sizeof {names[one.name]}}}" for one in module.constants]
    parts.append(f"static Constant constants[] = {{{', '.join([*listed, '{0, 0}'])}}};")
    parts += [f"{_head(one, names)};" for one in module.functions]
    parts += [_Writer(one, names, meetings).written() for one in module.functions]
    entry = next(one for one in module.functions if one.entry)
    parts.append(f"static void kernel(Thread *t, char **P) {{ {names[entry.name]}(t, P); }}")
    return "\n".join(parts), meetings.lines


class _Counter:
    """Numbers the places where threads meet, over all functions."""

    def __init__(self) -> None:
        self.lines: list[int] = []

    def next(self, line: int) -> int:
        self.lines.append(line)
        return len(self.lines) - 1


def _constant(one: Constant, name: str) -> str:
    values = one.values if one.values.startswith("{") else f"{{{one.values}}}"
    filled = f" = {values}" if one.values else ""
    return f"static {_C[one.kind]} {name}[{one.count}] __attribute__((aligned(16))){filled};"


def _head(one: Function, names: dict[str, str]) -> str:
    if one.entry:
        return f"static void {names[one.name]}(Thread *t, char **P)"
    given = "".join(f", char *P{k}" for k in range(len(one.parameters)))
    return f"static void {names[one.name]}(Thread *t, char *R{given})"


class _Writer:
    """Writes one function."""

    def __init__(self, one: Function, names: dict[str, str], meetings: _Counter) -> None:
        self.one, self.names, self.meetings = one, dict(names), meetings
        self.registers: dict[str, str] = {}
        pointer = "P[{}]" if one.entry else "P{}"
        self.names |= {name: pointer.format(k) for k, name in enumerate(one.parameters)}
        if one.result:
            self.names[one.result] = "R"

    def written(self) -> str:
        body = [self._line(one) for one in self.one.body]
        declared = "\n".join(f"{kind} {name};" for name, kind in self._used(body))
        return (
            f"{_head(self.one, self.names)} {{\nuint32_t carry = 0; (void)carry;\n{declared}\n"
            + "\n".join(body)
            + "\n}"
        )

    def _used(self, body: Iterable[str]) -> Iterable[tuple[str, str]]:
        named = set(re.findall(r"\b[rq]_\w+\b", "\n".join(body)))
        return [(name, _C[self._class(name)]) for name in sorted(named)]

    def _class(self, register: str) -> str:
        return self.registers[register] if register in self.registers else self.registers[re.sub(r"\d+$", "", register)]

    def _line(self, one: Instruction) -> str:
        if one.op in "{}":
            return one.op
        if one.op == "label":
            return f"{_label(one.operands[0])}: ;"
        if one.op.startswith("."):
            return self._declaration(one)
        op = one.op.split(".")
        kind = 3 if "param" in op else _KIND.get(op[0], 2 if op[-1] == "f64" and op[0] != "mov" else 3)
        text = f"COUNTS({kind}) {self._statement(op, one.operands, one.line)}"
        if one.guard:
            test = self._read(one.guard.lstrip("!"), "pred")
            return f"if ({'!' if one.guard[0] == '!' else ''}{test}) {{ {text} }}"
        return text

    def _declaration(self, one: Instruction) -> str:
        text = f"{one.op} {', '.join(one.operands)}"
        if one.op == ".reg":
            kind, names = re.match(r"\.reg \.(\w+)\s+(.*)", text).groups()  # type: ignore[union-attr]
            for name in names.split(","):
                self.registers[_register(re.sub(r"<\d+>", "", name.strip()))] = kind
            return ""
        if one.op in (".local", ".param"):
            found = re.search(r"([\w$]+)(?:\[(\d+)\])?$", text)
            assert found is not None
            self.names[found.group(1)] = f"M_{found.group(1)}"
            return f"char M_{found.group(1)}[{found.group(2) or 8}] __attribute__((aligned(16)));"
        return ""  # .loc, .pragma

    def _read(self, operand: str, kind: str) -> str:
        """Write an operand as a value of a type; registers of another class are read by their bits."""
        if operand in _SPECIAL:
            return _SPECIAL[operand]
        if operand.startswith("%") or _register(operand) in self.registers:
            name = _register(operand)
            here = self._class(name)
            if (here[0] == "f") != (kind[0] == "f"):
                return f"bits_{here}_{_C[kind]}({name})" if here[0] == "f" else f"as_{kind}({name})"
            return name if here == kind else f"(({_C[kind]}){name})"
        if operand.startswith("0d"):
            number = struct.unpack(">d", bytes.fromhex(operand[2:]))[0]
            return _float(number) if kind[0] == "f" else f"0x{operand[2:]}ULL"
        if operand.startswith("0f"):
            number = struct.unpack(">f", bytes.fromhex(operand[2:]))[0]
            return f"((float){_float(number)})" if kind[0] == "f" else f"0x{operand[2:]}U"
        if re.fullmatch(r"-?\d+U?|-?0x[0-9a-fA-F]+U?", operand):
            return (
                f"(({_C[kind]}){operand.rstrip('U')}LL)"
                if not operand.startswith("0x")
                else f"(({_C[kind]}){operand}LL)"
            )
        return f"((uint64_t){self.names[operand]})"

    def _write(self, operand: str, kind: str, value: str) -> str:
        if operand == "_":
            return ";"
        name = _register(operand)
        here = self._class(name)
        if (here[0] == "f") != (kind[0] == "f"):
            return f"{name} = " + (f"as_{here}({value});" if here[0] == "f" else f"bits_{kind}_{_C[here]}({value});")
        if kind[0] == "s" and here != kind:  # sign or zero extension by the type of the instruction
            return f"{name} = ({_C[here]})({_C[kind]})({value});"
        return f"{name} = ({_C[here]})({value});"

    def _address(self, operand: str) -> str:
        inner = operand.strip("[]")
        base, offset = re.fullmatch(r"([%\w$.]+)(?:\+(-?\d+))?", inner).groups()  # type: ignore[union-attr]
        place = f"(char *){_register(base)}" if base.startswith("%") else f"(char *){self.names[base]}"
        return f"({place} + ({offset or 0}))"

    def _statement(self, op: list[str], given: tuple[str, ...], line: int) -> str:
        name, kind = op[0], op[-1]
        if name in ("ld", "st"):
            return self._memory(op, given, line)
        if name == "bra":
            return f"goto {_label(given[0])};"
        if name == "ret":
            return "return;"
        if name in ("call",):
            return self._call(given)
        if name == "bar" or (name == "barrier"):
            return f"MEET({self.meetings.next(line)});"
        if name == "shfl":
            target = given[0].split("|")[0]
            read = [self._read(one, "b32") for one in given[1:3]]
            return f"SHUFFLE({_register(target)}, {read[0]}, {read[1]}, {self.meetings.next(line)});"
        if name == "setp":
            return self._compare(op, given)
        if name == "mov":
            return self._move(kind, given)
        if name == "cvt":
            return self._convert(op, given)
        if name == "cvta":
            return self._write(given[0], "u64", self._read(given[1], "u64"))
        return self._write(given[0], *self._value(op, given[1:]))

    def _memory(self, op: list[str], given: tuple[str, ...], line: int) -> str:
        kind, load = op[-1], op[0] == "ld"
        place, data = (given[1], given[0]) if load else (given[0], given[1])
        checked = "param" not in op and "local" not in op and "const" not in op
        parts = [one.strip() for one in data.strip("{}").split(",")]
        lines = []
        for number, one in enumerate(parts):
            address = f"({self._address(place)} + {number} * sizeof({_C[kind]}))"
            if checked:
                lines.append(f"{'READS' if load else 'WRITES'}({address}, sizeof({_C[kind]}), {line});")
            if load:
                lines.append(self._write(one, kind, f"*({_C[kind]} *){address}"))
            else:
                lines.append(f"*({_C[kind]} *){address} = {self._read(one, kind)};")
        return " ".join(lines)

    def _call(self, given: tuple[str, ...]) -> str:
        result, called, passed = ("", *given) if len(given) < 3 and not given[0].startswith("(") else given
        if len(given) == 2 and given[0].startswith("("):
            result, called, passed = given[0], given[1], "()"
        names = [one.strip() for one in passed.strip("()").split(",") if one.strip()]
        back = self.names[result.strip("()").strip()] if result else "0"
        return f"{self.names[called]}(t, {', '.join([back, *(self.names[one] for one in names)])});"

    def _compare(self, op: list[str], given: tuple[str, ...]) -> str:
        test, kind = op[1], op[-1]
        a, b = self._read(given[1], kind), self._read(given[2], kind)
        if test in ("num", "nan"):
            value = f"{'!' if test == 'num' else ''}(isnan({a}) || isnan({b}))"
        elif kind[0] == "f" and test.endswith("u"):
            value = f"(isnan({a}) || isnan({b}) || ({a} {_COMPARE[test[:-1]]} {b}))"
        elif kind[0] == "f" and test == "ne":
            value = f"(!isnan({a}) && !isnan({b}) && {a} != {b})"
        else:
            value = f"({a} {_COMPARE[test]} {b})"
        if len(op) == 4 and op[2] in ("and", "or", "xor"):
            value = f"({value} {_BINARY[op[2]]} ({self._read(given[3].lstrip('!'), 'pred')}))"
        return self._write(given[0].split("|")[0], "pred", value)

    def _move(self, kind: str, given: tuple[str, ...]) -> str:
        target, source = given
        if target.startswith("{"):  # halves of 64 bits
            low, high = (one.strip() for one in target.strip("{}").split(","))
            whole = self._read(source, "b64")
            parts = [(low, f"(uint32_t)({whole})"), (high, f"(uint32_t)(({whole}) >> 32)")]
            return " ".join(self._write(one, "b32", value) for one, value in parts if one != "_")
        if source.startswith("{"):
            low, high = (self._read(one.strip(), "b32") for one in source.strip("{}").split(","))
            return self._write(target, "b64", f"((uint64_t)({high}) << 32 | (uint32_t)({low}))")
        return self._write(target, kind, self._read(source, kind))

    def _convert(self, op: list[str], given: tuple[str, ...]) -> str:
        into, source = op[-2], op[-1]
        value = self._read(given[1], source)
        rounding = next((_ROUND[one] for one in op if one in _ROUND), "")
        if rounding:
            value = f"{rounding}({value})"
        if source[0] == "f" and into[0] != "f":
            value = f"to_{into}({rounding or 'trunc'}({self._read(given[1], source)}))"
        return self._write(given[0], into, f"({_C[into]})({value})")

    def _value(self, op: list[str], given: tuple[str, ...]) -> tuple[str, str]:
        """Return type and value of an instruction that computes one number."""
        name, kind = op[0], op[-1]
        if name == "selp":
            a, b, p = (*(self._read(one, kind) for one in given[:2]), self._read(given[2], "pred"))
            return kind, f"({p} ? {a} : {b})"
        if name in ("shl", "shr"):
            a, by, width = self._read(given[0], kind), self._read(given[1], "u32"), kind[1:]
            beyond = f"(({a}) < 0 ? -1 : 0)" if name == "shr" and kind[0] == "s" else "0"
            return kind, f"({by} >= {width} ? {beyond} : ({_C[kind]})({a} {'<<' if name == 'shl' else '>>'} {by}))"
        read = [self._read(one, kind) for one in given]
        real = kind[0] == "f"
        if "cc" in op or name in ("addc", "subc", "madc"):
            return kind, self._with_carry(op, read)
        if name in _BINARY and not (kind == "pred" and name in ("add", "sub")):
            return kind, f"({read[0]} {_BINARY[name]} {read[1]})"
        if name == "mul" and not real:
            return self._product(op, read)
        if name == "mad":
            wide, product = self._product(op, read[:2])
            return wide, f"({product} + {self._read(given[2], wide)})"
        single = "f" if kind == "f32" else ""
        table = {
            "mul": "({0} * {1})", "div": "({0} / {1})", "rem": "({0} % {1})", "fma": f"fma{single}({{0}}, {{1}}, {{2}})",
            "neg": "(-{0})", "not": "(~{0})", "sqrt": f"sqrt{single}({{0}})", "copysign": f"copysign{single}({{1}}, {{0}})",
            "abs": f"fabs{single}({{0}})" if real else "({0} < 0 ? -{0} : {0})", "ex2": "exp2f({0})", "lg2": "log2f({0})",
            "rcp": "(1.0 / {0})", "rsqrt": "(1.0 / sqrt({0}))", "min": f"fmin{single}({{0}}, {{1}})",
            "max": f"fmax{single}({{0}}, {{1}})",
        }  # fmt: skip
        if name == "not" and kind == "pred":
            return kind, f"(!{read[0]})"
        if name in ("min", "max") and not real:
            return kind, f"({read[0]} {'<' if name == 'min' else '>'} {read[1]} ? {read[0]} : {read[1]})"
        if name in ("rcp", "rsqrt") and "approx" in op and kind == "f64":
            return kind, f"coarse({table[name].format(*read)})"
        if name == "clz":
            return "u32", f"leading_zeros({read[0]}, {kind[1:]})"
        if name == "bfi":
            length, place = self._read(given[3], "u32"), self._read(given[2], "u32")
            return kind, f"inserted({read[0]}, {read[1]}, {place}, {length})"
        if name == "bfe":
            return kind, f"extracted({read[0]}, {self._read(given[1], 'u32')}, {self._read(given[2], 'u32')})"
        if name in ("div", "rem") and not real:  # computed ahead of a branch that may not be taken: zero is no error
            return kind, f"({read[1]} == 0 ? ({_C[kind]})-1 : {table[name].format(*read)})"
        if name not in table:
            raise UnknownInstruction(
                f"the emulation expects instructions it knows; got {'.'.join(op)}. Add it to _value."
            )
        return kind, table[name].format(*read)

    def _product(self, op: list[str], read: list[str]) -> tuple[str, str]:
        kind = op[-1]
        wide = f"{kind[0]}{2 * int(kind[1:])}"
        if "wide" in op:
            return wide, f"(({_C[wide]}){read[0]} * ({_C[wide]}){read[1]})"
        if "hi" in op:
            if kind[1:] == "64":
                return (
                    kind,
                    f"({_C[kind]})((({'' if kind[0] == 's' else 'unsigned '}__int128){read[0]} * {read[1]}) >> 64)",
                )
            return kind, f"({_C[kind]})((({_C[wide]}){read[0]} * ({_C[wide]}){read[1]}) >> {kind[1:]})"
        return kind, f"({_C[kind]})((uint64_t){read[0]} * (uint64_t){read[1]})"

    def _with_carry(self, op: list[str], read: list[str]) -> str:
        name, keeps = op[0], int("cc" in op)
        base = {"add": "add", "addc": "add", "sub": "sub", "subc": "sub", "mad": "add", "madc": "add"}[name]
        takes = int(name.endswith("c") and name != "mad")
        if name.startswith("mad"):
            product = self._product(op, read[:2])[1]
            return f"carry_{base}({product}, {read[2]}, &carry, {takes}, {keeps})"
        return f"carry_{base}({read[0]}, {read[1]}, &carry, {takes}, {keeps})"


def _label(name: str) -> str:
    return name.replace("$", "D")


def _register(name: str) -> str:
    """Name a variable; registers of inline assembly have no sign before them, and may have the same names."""
    return ("r_" if name[0] == "%" else "q_") + name.lstrip("%").replace(".", "_")


def _float(number: float) -> str:
    if number != number:
        return "NAN"
    if number in (float("inf"), float("-inf")):
        return "INFINITY" if number > 0 else "(-INFINITY)"
    return f"({number.hex()})"
