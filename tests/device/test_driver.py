"""The driver's calls, with a stand-in for libcuda that writes them down: their order and arguments, and what errors say."""

from __future__ import annotations

import ctypes

import pytest

from snapfm.device import driver
from snapfm.device.artifact import shipped
from snapfm.device.launch import ALONE, WARP, Teams
from snapfm.errors import DeviceError


class Library:
    """libcuda, as far as launches need it."""

    def __init__(self, fails: str = "") -> None:
        self.calls: list[tuple[str, tuple]] = []
        self._fails = fails

    def __getattr__(self, name: str):
        def call(*arguments):
            self.calls.append((name, arguments))
            if name == "cuGetErrorString":
                ctypes.cast(arguments[1], ctypes.POINTER(ctypes.c_char_p))[0] = b"out of memory"
                return 0
            if name == "cuLaunchKernel":
                cells = arguments[9]
                self.launched = [
                    ctypes.c_int64.from_address(cells[0]).value,
                    ctypes.c_double.from_address(cells[1]).value,
                ]
            return 2 if name == self._fails else 0

        return call


@pytest.fixture
def library(monkeypatch) -> Library:
    made = Library()
    monkeypatch.setattr(driver.ctypes, "CDLL", lambda name: made)
    return made


def test_a_launch_passes_addresses_of_its_arguments_in_its_own_context(library):
    one = driver.Driver()
    context = one.context(3)
    function = one.function(context, shipped().ptx["rotate"])
    one.launch(context, function, 5, 32, 1, 77, [11, 2.5])
    names = [name for name, _ in library.calls]
    assert names[:3] == ["cuInit", "cuDeviceGet", "cuDevicePrimaryCtxRetain"]
    assert names[-3:] == ["cuCtxPushCurrent_v2", "cuLaunchKernel", "cuCtxPopCurrent_v2"]
    assert library.calls[1][1][1] == 3
    _, arguments = library.calls[-2]
    assert arguments[1:8] == (5, 1, 1, 32, 1, 1, 0)
    assert arguments[8].value == 77
    assert arguments[10] is None
    assert library.launched == [11, 2.5]
    name = next(given for call, given in library.calls if call == "cuModuleGetFunction")[2].decode()
    assert f".entry {name}(" in shipped().ptx["rotate"]
    text = next(given for call, given in library.calls if call == "cuModuleLoadData")[1]
    assert text.endswith(b"\0")


def test_an_error_of_the_driver_is_told(monkeypatch):
    broken = Library(fails="cuLaunchKernel")
    monkeypatch.setattr(driver.ctypes, "CDLL", lambda name: broken)
    one = driver.Driver()
    with pytest.raises(
        DeviceError, match=r"cuLaunchKernel expects to succeed; the driver returned 2: out of memory\. Run"
    ):
        one.launch(ctypes.c_void_p(1), ctypes.c_void_p(2), 1, 32, 1, 0, [1, 2.0])
    assert broken.calls[-1][0] == "cuCtxPopCurrent_v2"  # the thread's context is as it was


def test_a_missing_driver_is_told(monkeypatch):
    def missing(name):
        raise OSError(name)

    monkeypatch.setattr(driver.ctypes, "CDLL", missing)
    with pytest.raises(DeviceError, match=r"expects the driver's library .*; it cannot be loaded\. Install"):
        driver.Driver()


def test_teams_cover_the_batch_within_the_memory_of_a_launch():
    assert Teams.of(10, WARP, 100) == Teams(10, 32, 1)
    assert Teams.of(10, ALONE, 100) == Teams(1, 1, 10)
    assert Teams.of(1000, ALONE, 100) == Teams(16, 1, 64)
    assert Teams.of(10_000, WARP, 1 << 24).count == 8  # a gigabyte
    assert Teams.of(1, WARP, 1 << 40).count == 1
