"""Kernels are compiled once and kept: for Python, and for the kernels that call them; where nothing can be written, in memory."""

from __future__ import annotations

import json
import os
import pickle
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numba
import numpy as np
import pytest
from numba import types

from snapfm.errors import CacheWarning
from snapfm.kernels.layout import Settings, Tile
from snapfm.kernels.numba import cache as kept
from snapfm.kernels.numba import compiling, packs, stored
from snapfm.kernels.numba.cache import LINKABLE, OBJECT
from snapfm.kernels.numba.compiling import compiled

_own = kept.own


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give kernels a cache folder of their own, and nothing that is shipped."""
    monkeypatch.setattr(kept, "own", lambda: tmp_path)
    monkeypatch.setattr(kept, "shipped", lambda: None)
    (tmp_path / "locks").mkdir()
    yield tmp_path
    sys.modules.pop("snapfm.kernels.trial", None)


SOURCE = """
@compiled(nogil=True, error_model="numpy")
def half(x):
    return x / 2

@compiled(nogil=True, error_model="numpy")
def quarters(x):
    out = np.empty_like(x)
    for i in range(len(x)):
        out[i] = half(half(x[i]))
    return out

@compiled()
def eighth(x):
    return half(half(half(x)))
"""


def defined() -> ModuleType:
    """Define kernels that call each other, as a module of the package would: as if in a new process."""
    module = ModuleType("snapfm.kernels.trial")
    sys.modules[module.__name__] = module
    vars(module).update(compiled=compiled, np=np)
    exec(SOURCE, vars(module))
    return module


def forms(folder: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {OBJECT: [], LINKABLE: []}
    for file in folder.iterdir():
        if file.is_file():
            name, _, form = file.name.rpartition(".")
            found[form].append(name.split(".")[-1].split("-")[0])
    return {form: sorted(names) for form, names in found.items()}


X = np.array([4.0, 10.0])


def test_what_python_calls_has_machine_code_and_what_kernels_call_has_none(folder: Path):
    trial = defined()
    assert trial.quarters(X).tolist() == [1.0, 2.5]
    assert forms(folder) == {OBJECT: ["quarters"], LINKABLE: ["half"]}
    assert not trial.half.overloads
    assert trial.half(3.0) == 1.5  # now Python calls it too
    assert forms(folder) == {OBJECT: ["half", "quarters"], LINKABLE: ["half"]}


def test_a_kernel_that_was_kept_is_not_compiled(folder: Path, monkeypatch: pytest.MonkeyPatch):
    defined().quarters(X)
    monkeypatch.setattr(compiling.Kernel, "_make", lambda *_: pytest.fail("compiled"))
    trial = defined()
    assert trial.quarters(X).tolist() == [1.0, 2.5]
    assert not trial.half.overloads


def test_what_was_kept_for_callers_is_linked_into_another_kernel(folder: Path, monkeypatch: pytest.MonkeyPatch):
    defined().quarters(X)
    made = made_anew(monkeypatch)
    assert defined().eighth(8.0) == 1.0
    assert made == ["trial.eighth"]


def test_a_function_of_numba_may_call_kernels_that_were_read(folder: Path):
    assert defined().half(3.0) == 1.5
    half = defined().half
    assert half(3.0) == 1.5  # read, as machine code alone

    @numba.njit
    def mine(x):
        return half(x) + 1.0

    assert mine(3.0) == 2.5
    assert half(5.0) == 2.5


def test_other_types_are_other_files(folder: Path):
    half = defined().half
    assert half(3.0) == 1.5
    assert half(np.float32(3.0)) == 1.5
    assert forms(folder)[OBJECT] == ["half", "half"]


def made_anew(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the list of kernels that are compiled from now on."""
    made: list[str] = []
    real = compiling.Kernel._make
    monkeypatch.setattr(
        compiling.Kernel, "_make", lambda self, *a: (made.append(self._cache.kernel), real(self, *a))[1]
    )
    return made


def kept_files(folder: Path) -> list[Path]:
    return [file for file in folder.iterdir() if file.is_file()]


def flipped(raw: bytes) -> bytes:
    return raw[:-100] + bytes([raw[-100] ^ 1]) + raw[-99:]


@pytest.mark.parametrize(
    "damage",
    [lambda raw: b"", lambda raw: b"\x80\x04nonsense", lambda raw: raw[:-100], flipped],
    ids=["empty", "nonsense", "cut short", "one bit"],
)
def test_a_damaged_file_is_compiled_anew(folder: Path, damage, monkeypatch: pytest.MonkeyPatch):
    defined().quarters(X)
    for file in kept_files(folder):
        file.write_bytes(damage(file.read_bytes()))
    made = made_anew(monkeypatch)
    assert defined().quarters(X).tolist() == [1.0, 2.5]
    assert made == ["trial.quarters", "trial.half"]


class Planted:
    """What unpickling would run."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple:
        return os.mkdir, (str(self.trace),)


def test_a_pickle_among_the_files_is_not_executed(folder: Path, monkeypatch: pytest.MonkeyPatch):
    defined().quarters(X)
    trace = folder / "executed"
    for file in kept_files(folder):
        file.write_bytes(pickle.dumps(Planted(trace)))
    made = made_anew(monkeypatch)
    assert defined().quarters(X).tolist() == [1.0, 2.5]
    assert made == ["trial.quarters", "trial.half"]
    assert not trace.exists()
    pickle.loads(pickle.dumps(Planted(trace)))
    assert trace.exists()  # so it would have been


posix = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="files have no owners here")


@posix
def test_only_the_owner_can_read_and_write_what_is_kept(folder: Path, monkeypatch: pytest.MonkeyPatch):
    before = os.umask(0)
    try:
        defined().quarters(X)
        monkeypatch.setenv("SNAPFM_CACHE", str(folder / "mine"))
        own = _own.__wrapped__()
    finally:
        os.umask(before)
    assert {stat.S_IMODE(file.stat().st_mode) for file in kept_files(folder)} == {0o600}
    assert own is not None
    assert stat.S_IMODE(own.stat().st_mode) == 0o700


@posix
@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_files_that_others_can_write_are_not_used(folder: Path, mode: int, monkeypatch: pytest.MonkeyPatch):
    defined().quarters(X)
    for file in kept_files(folder):
        file.chmod(mode)
    made = made_anew(monkeypatch)
    with pytest.warns(CacheWarning, match=rf"{folder} is not such a folder.*set SNAPFM_CACHE to a folder") as said:
        assert defined().quarters(X).tolist() == [1.0, 2.5]
    assert len(said) == 1
    assert made == ["trial.quarters", "trial.half"]


@posix
@pytest.mark.parametrize("mode", [0o720, 0o702, 0o777])
def test_a_folder_that_others_can_write_is_not_used(mode: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("SNAPFM_CACHE", str(tmp_path))
    own = _own.__wrapped__()
    own.chmod(mode)
    with pytest.warns(CacheWarning, match=f"expected to belong to this user.*{own}.*compiled again"):
        assert _own.__wrapped__() is None
    own.chmod(0o755)  # others may read
    assert _own.__wrapped__() == own


def state(uid: int, mode: int) -> os.stat_result:
    return os.stat_result((mode, 0, 0, 1, uid, 0, 0, 0, 0, 0))


@posix
def test_whose_files_are_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    mine, shipped = tmp_path / "mine", tmp_path / "objects" / "one"
    monkeypatch.setattr(kept, "SHIPPED", tmp_path / "objects")
    monkeypatch.setattr(os, "stat", lambda file: state(1001, 0o664))  # the package: another user's, and of his group
    assert [kept._trusted(state(uid, 0o644), mine) for uid in (1000, 0, 1001)] == [True, True, False]
    assert [kept._trusted(state(uid, 0o644), shipped) for uid in (1000, 0, 1001, 1002)] == [True, True, True, False]
    assert [kept._trusted(state(1000, mode), mine) for mode in (0o600, 0o664, 0o646)] == [True, False, False]
    assert [kept._trusted(state(1001, mode), shipped) for mode in (0o600, 0o664, 0o646)] == [True, True, False]


def test_without_owners_of_files_nothing_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.delattr(os, "geteuid", raising=False)
    assert kept._trusted(state(0, 0o666), tmp_path)


KINDS = [
    numba.none, numba.boolean, numba.int64, numba.float64, numba.float64[::1], numba.int32[:, ::1], numba.int64[:],
    types.Array(numba.float64, 1, "C", readonly=True), types.Array(numba.int64, 2, "F", aligned=False),
    types.UniTuple(numba.float64, 2), types.Tuple((numba.float64[::1], numba.int64)), packs._PACK,
    types.UniTuple(packs._PACK, 3), types.NamedUniTuple(numba.float64, len(Settings._fields), Settings),
    types.NamedTuple([numba.int64[::1], *(len(Tile._fields) - 1) * [numba.float64[::1]]], Tile),
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_types_of_results_are_read_as_they_were_written(kind):
    assert stored._read(json.loads(json.dumps(stored._written(kind)))) == kind


@pytest.mark.parametrize("kind", [types.unicode_type, types.List(numba.int64)], ids=str)
def test_other_types_are_not_kept(kind):
    with pytest.raises(stored.Unkept):
        stored._written(kind)


def test_a_file_cannot_name_classes_of_others():
    for words in (["named", "pathlib", "Path"], ["own", "os", "mkdir"], ["own", "snapfm.kernels.layout", "Tile"]):
        with pytest.raises((TypeError, ValueError)):
            stored._read(words)


def test_without_a_folder_a_kernel_is_compiled_in_memory(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(kept, "own", lambda: None)
    trial = defined()
    assert trial.quarters(X).tolist() == [1.0, 2.5]
    assert trial.quarters.stats.cache_path is None
    assert trial.half(3.0) == 1.5


def test_a_full_disk_is_no_reason_to_fail(folder: Path, monkeypatch: pytest.MonkeyPatch):
    def full(self: Path, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    assert defined().quarters(X).tolist() == [1.0, 2.5]
    assert forms(folder) == {OBJECT: [], LINKABLE: []}


def test_errors_of_the_compiler_reach_the_caller_and_leave_nothing_behind(folder: Path):
    @compiled()
    def wrong(x):
        return x.nothing_of_this_name

    for _ in range(2):
        with pytest.raises(numba.core.errors.TypingError, match="nothing_of_this_name"):
            wrong(1.0)
    assert compiling._under_way == []
    assert defined().half(3.0) == 1.5


def test_kernels_of_other_packages_are_not_kept(folder: Path):
    """Their files are not looked at, so what was kept of them could be stale."""

    @compiled()
    def mine(x):
        return x + 1

    assert mine(1) == 2
    assert forms(folder) == {OBJECT: [], LINKABLE: []}


def test_kernels_of_others_are_left_alone():
    """No environment variable and no setting of numba changes, and numba's own functions keep their cache."""

    @numba.njit
    def theirs(x):
        return x + 1

    assert theirs(1) == 2
    assert not isinstance(theirs, compiling.Kernel)
    assert os.environ.get("NUMBA_CACHE_DIR", "") == numba.core.config.CACHE_DIR


def test_the_state_of_all_kernel_files_names_the_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("SNAPFM_CACHE", str(tmp_path))
    before = kept.own.__wrapped__()
    monkeypatch.setattr(kept, "sources", lambda: "other kernels")
    after = kept.own.__wrapped__()
    assert before.parent == after.parent == tmp_path
    assert before != after


def test_folders_that_nobody_used_for_a_month_are_removed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("SNAPFM_CACHE", str(tmp_path))
    for name, days in (("kernels-old", 31), ("kernels-new", 29), ("photographs", 31), ("kernels-of-corn", 31)):
        (tmp_path / name).mkdir()
        if name in ("kernels-old", "kernels-new"):
            (tmp_path / name / "locks").mkdir()
        then = (tmp_path / name).stat().st_mtime - days * 24 * 3600
        os.utime(tmp_path / name, (then, then))
    own = kept.own.__wrapped__()
    left = sorted([own.name, "kernels-new", "photographs", "kernels-of-corn"])
    assert sorted(one.name for one in tmp_path.iterdir()) == left


def test_where_the_cache_is_on_each_system(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    for name in ("SNAPFM_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    monkeypatch.setattr(sys, "platform", "linux")
    assert kept._base() == tmp_path / ".cache" / "snapfm"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert kept._base() == tmp_path / "Library" / "Caches" / "snapfm"
    monkeypatch.setenv("SNAPFM_CACHE", "off")
    assert kept._base() is None


def test_what_is_shipped_is_chosen_by_what_the_processor_has(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(kept, "SHIPPED", tmp_path)
    monkeypatch.setattr(kept.binding, "get_host_cpu_features", lambda: {"avx": True, "avx2": True, "avx512f": False})
    assert kept.shipped.__wrapped__() is None
    for level, features in (("plain", ""), ("two", "avx avx2"), ("five", "avx avx2 avx512f")):
        (tmp_path / kept.stamp() / level).mkdir(parents=True)
        (tmp_path / kept.stamp() / level / kept.FEATURES).write_text(features)
    assert kept.shipped.__wrapped__().name == "two"
    monkeypatch.setattr(kept.config, "CPU_NAME", "generic")
    assert kept.shipped.__wrapped__() is None


TWO = """
import sys, time
from pathlib import Path
from numba import boolean, float64
from snapfm.kernels.numba import compiling
from snapfm.kernels.factor.lu import blend
real = compiling.Kernel._make
compiling.Kernel._make = lambda self, *a: (print(self._cache.kernel), time.sleep(0.5), real(self, *a))[2]
Path(sys.argv[1]).touch()
while not Path(sys.argv[2]).exists():
    time.sleep(0.01)
blend.compile((boolean[::1], float64[::1], float64[::1]))
"""


def test_two_processes_that_need_a_kernel_compile_it_once(tmp_path: Path):
    """They start together; one waits for what the other keeps."""
    environment = {**os.environ, "SNAPFM_CACHE": str(tmp_path / "cache")}
    ready = [str(tmp_path / name) for name in ("a", "b")]
    running = [
        subprocess.Popen(
            [sys.executable, "-c", TWO, mine, other],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for mine, other in (ready, ready[::-1])
    ]
    ends = [process.communicate(timeout=300) for process in running]
    assert [process.returncode for process in running] == [0, 0], ends
    compiled_by = [told.split() for told, _ in ends]
    assert compiled_by[0].count("factor.lu.blend") + compiled_by[1].count("factor.lu.blend") == 1


@pytest.mark.skipif(os.name == "nt", reason="needs a folder that cannot be written")
def test_snapfm_works_where_no_cache_folder_can_be_written(tmp_path: Path):
    """A file where the folder should be: no user, not even root, can write below it."""
    blocked = tmp_path / "file"
    blocked.write_text("")
    script = (  # one kernel: each is compiled in the same way, and a projection needs twenty
        "import numpy as np\n"
        "from snapfm.kernels.factor.lu import LANES, blend\n"
        "from snapfm.kernels.numba import cache\n"
        "assert cache.own() is None\n"
        "target = np.zeros(LANES)\n"
        "blend(np.arange(LANES) < 3, np.ones(LANES), target)\n"
        "print(target.sum())\n"
    )
    kept_variables = {name: value for name, value in os.environ.items() if not name.startswith(("SNAPFM_", "XDG_"))}
    ran = subprocess.run(
        [sys.executable, "-c", script],
        env={**kept_variables, "HOME": str(blocked / "home")},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert ran.returncode == 0, ran.stderr
    assert float(ran.stdout) == 3.0
