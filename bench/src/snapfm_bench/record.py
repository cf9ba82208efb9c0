"""Records on disk and the runner that fills them: JSON Lines, one record per line, synced before the work goes on.

The records of a run (records.jsonl) begin with a header line that holds the suite and the sources it runs with. Every other line
is one finished cell; if a cell has several lines, the newest counts. Records of another suite or of other sources are refused,
never renewed. An incomplete line, left by a killed process, is dropped. Shares of a run, some cases
each, may append to one file at the same time. A stopped run continues after its last finished cell. Knows no suites and no cells:
both are dataclasses that `load` rebuilds from their type hints.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, fields, is_dataclass
from enum import Enum, StrEnum
from functools import cache, partial
from pathlib import Path
from types import UnionType
from typing import Any, Generic, Protocol, Self, TypeVar, Union, get_args, get_origin, get_type_hints

from snapfm.errors import DataError, UnknownName
from snapfm.files.engines import WHOLE, Share
from snapfm.files.engines.share import taken
from snapfm.locking import held
from snapfm_bench.machine import source

RECORDS = "records.jsonl"


class CellState(StrEnum):
    """How a cell ended; only DONE has figures."""

    DONE = "DONE"
    DNF = "DNF"  # the wall budget was used up
    FAILED = "FAILED"  # the method raised, or its process died
    ABSENT = "ABSENT"  # a package or a model is not there
    REFUSED = "REFUSED"  # the method does not support these laws


class Cell(Protocol):
    """One record of a run: a dataclass of plain values."""

    @property
    def key(self) -> tuple[str, ...]:
        """Identify the cell within its suite."""


T = TypeVar("T")
C = TypeVar("C", bound=Cell)
K = TypeVar("K", bound=tuple[str, ...])


def finite(value: Any) -> float | None:
    """Convert to a float that JSON can hold; None if it is not finite."""
    found = float(value)
    return found if math.isfinite(found) else None


def npz(save: Callable[..., None], **arrays: Any) -> bytes:
    """Encode arrays as the content of a file; `save` is np.savez or np.savez_compressed."""
    packed = io.BytesIO()
    save(packed, allow_pickle=False, **arrays)
    return packed.getvalue()


def to_line(record: Any) -> str:
    """Write a record, a dataclass or a dict, as one line of JSON."""
    plain = record if isinstance(record, dict) else asdict(record)
    return json.dumps(plain, ensure_ascii=False, allow_nan=False, default=str)


def load(kind: type[T], raw: Any) -> T:
    """Rebuild a dataclass from parsed JSON; missing keys take their defaults, unknown keys are ignored."""
    hints = _hints(kind)  # type: ignore[arg-type]  # a class is hashable
    return kind(**{one.name: _load(hints[one.name], raw[one.name]) for one in fields(kind) if one.name in raw})  # type: ignore[arg-type]


def read(file: Path, suite: type[T], cell: type[C]) -> tuple[T | None, dict[Any, C]]:
    """Read the suite and the newest record of every cell; None and nothing from an empty file."""
    try:
        lines = _lines(file)
        if not lines:
            return None, {}
        header = lines.pop(0)
        found = load(suite, header["suite"]) if is_dataclass(suite) else header["suite"]
        if is_dataclass(suite) and (unknown := set(header["suite"]) - {one.name for one in fields(suite)}):
            raise KeyError(*unknown)  # written by another version: a setting would be lost
        cells = [load(cell, line) for line in lines]
    except (ValueError, KeyError, TypeError) as cause:
        raise DataError(
            f"{file.name} is expected to hold a suite and one record per line; got something else ({cause}). Choose another "
            "folder."
        ) from cause
    return found, {one.key: one for one in cells}


def suite_digest(suite: Any) -> str:
    """Identify a suite by all its settings."""
    return hashlib.sha256(to_line({"suite": asdict(suite)}).encode()).hexdigest()[:16]


def check_source(folder: Path, found: dict[str, Any] | None, cells: Mapping[Any, Any], suite: Any) -> None:
    """Refuse to continue a run that was begun with other sources, or whose header was changed under its cells."""
    now, digest = source(), suite_digest(suite)
    if found != now:
        raise DataError(
            f"--out {folder} is expected to hold records of the present sources, {_sources(now)}; got those of "
            f"{_sources(found)}. Choose another folder, or check out what it was begun with."
        )
    for cell in cells.values():
        if getattr(cell, "suite", digest) != digest:
            raise DataError(
                f"--out {folder} is expected to hold cells of suite '{suite.name}' as its header has it; got a cell "
                f"{cell.key} of another one. Choose another folder, or remove that one."
            )


def _sources(found: dict[str, Any] | None) -> str:
    if found is None:
        return "an unknown commit"
    name = f"commit {found['commit']}" if found["commit"] else f"version {found['changes']}"
    return f"{name} with changes ({found['changes']})" if found["dirty"] else name


def check_same(folder: Path, found: Any, asked: Any) -> None:
    """Refuse a folder that holds records of another suite, naming the settings that differ."""
    if found == asked:
        return
    old, new = asdict(found), asdict(asked)
    other = ", ".join(key for key in new if old[key] != new[key])
    raise DataError(
        f"--out {folder} is expected to hold records of suite '{asked.name}' as it is now; got those of suite "
        f"'{found.name}' with another {other}. Choose another folder, or remove that one."
    )


def read_folder(folder: Path, suite: T, cell: type[C]) -> dict[Any, C]:
    """Read the cells of an existing run of this suite."""
    file = folder / RECORDS
    found, cells = read(file, type(suite), cell) if file.is_file() else (None, {})
    if found is None:
        raise DataError(f"--page-only expects {RECORDS} in --out {folder}; got none. Run the suite first.")
    check_same(folder, found, suite)
    return cells


def append(file: Path, record: dict[str, Any]) -> None:
    """Add one record to a file without a header."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with held(file):
        _write(file, to_line(record))


def _write(file: Path, line: str) -> None:
    """Append a line and push it to disk; the incomplete line of a killed writer is dropped. The caller holds the lock."""
    handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.ftruncate(handle, file.read_bytes().rfind(b"\n") + 1)
        left = (line + "\n").encode()
        while left:  # a signal may end a long write early
            left = left[os.write(handle, left) :]
        os.fsync(handle)
    finally:
        os.close(handle)


class Records(Generic[C]):
    """The open records of one run of a suite, or of a share of it: others may append to the same file meanwhile."""

    def __init__(self, folder: Path, suite: Any, cell: type[C], share: Share = WHOLE) -> None:
        self.share, self._file = share, folder / RECORDS
        self._held = ExitStack()
        try:
            self._held.enter_context(taken(folder, share, f"--out {folder}"))
            with self.alone():
                found, self.cells = read(self._file, type(suite), cell)
                if found is None:
                    _write(self._file, to_line({"suite": asdict(suite), "source": source()}))
                else:
                    check_same(folder, found, suite)
                    check_source(folder, _lines(self._file)[0].get("source"), self.cells, suite)
        except BaseException:
            self._held.close()
            raise

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other shares from writing into the folder, for as long as the block runs."""
        with held(self._file):
            yield

    def append(self, cell: C) -> None:
        """Append a finished cell."""
        with self.alone():
            _write(self._file, to_line(cell))
        self.cells[cell.key] = cell

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self._held.close()


@dataclass(frozen=True)
class Now(Generic[C]):
    """What runs now, and how much is left."""

    key: tuple[str, ...]
    doing: str
    share: float  # of the cell's steps that are done
    left: int  # cells after this one
    finished: C | None = None  # set once, when the cell is done


Follow = Callable[[Now[Any]], None]
Report = Callable[[str, float], None]  # what a cell does, and the share of it that is done


def run_cells(records: Records[C], todo: Sequence[K], make: Callable[[K, Report], C], progress: Follow | None) -> None:
    """Make and append the record of every key, in order; `progress` is called with what runs now."""

    def report(key: K, left: int, doing: str, share: float, finished: C | None = None) -> None:
        if progress is not None:
            progress(Now(key, doing, share, left, finished))

    for left, key in zip(reversed(range(len(todo))), todo):
        report(key, left, "starting", 0.0)
        cell = make(key, partial(report, key, left))
        records.append(cell)
        report(key, left, "done", 1.0, cell)


def check_name(option: str, what: str, known: Sequence[str], name: str | None) -> None:
    """Refuse an option that names nothing of the suite."""
    if name is not None and name not in known:
        raise UnknownName(f"{option} expects a {what}, one of {list(known)}; got {name!r}. Use one of these.")


@cache
def _hints(kind: type[Any]) -> dict[str, Any]:
    return get_type_hints(kind)


def _lines(file: Path) -> list[dict[str, Any]]:
    # Not splitlines: a reason may hold a line separator. What follows the last newline is incomplete.
    return [json.loads(line) for line in file.read_text(encoding="utf-8").split("\n")[:-1]]


def _load(hint: Any, raw: Any) -> Any:
    """Rebuild one value of a dataclass from its type hint."""
    origin, inner = get_origin(hint), get_args(hint)
    if raw is None:
        return None
    if origin in (Union, UnionType):
        return _load(next(one for one in inner if one is not type(None)), raw)
    if origin is tuple:
        return tuple(_load(inner[0], one) for one in raw)
    if isinstance(hint, type) and is_dataclass(hint):
        return load(hint, raw)
    if isinstance(hint, type) and issubclass(hint, Enum | Path):
        return hint(raw)
    return raw
