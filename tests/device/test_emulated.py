"""The emulated device itself: threads meet, races and strays are found, instructions compute what they say."""

from __future__ import annotations

import numpy as np
import pytest
from tests.device.emulated.machine import CHECKED, COUNTED, Diverged, Executable, Order
from tests.device.emulated.translate import UnknownInstruction

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry kernel(\n.param .u64 kernel_param_0\n)\n{\n"
REGISTERS = ".reg .pred %p<9>;\n.reg .b32 %r<9>;\n.reg .f64 %fd<9>;\n.reg .b64 %rd<9>;\n"
# %rd1: address of this thread's number; %rd2: that of its neighbor, the next thread's (the first one's for the last)
START = """
	ld.param.u64 	%rd0, [kernel_param_0];
	mov.u32 	%r1, %tid.x;
	mov.u32 	%r2, %ntid.x;
	add.s32 	%r3, %r1, 1;
	rem.s32 	%r3, %r3, %r2;
	mul.wide.s32 	%rd1, %r1, 8;
	add.s64 	%rd1, %rd0, %rd1;
	mul.wide.s32 	%rd2, %r3, 8;
	add.s64 	%rd2, %rd0, %rd2;
"""


def run(
    body: str, numbers: np.ndarray, threads: int = 4, order: Order = Order.ASCENDING, left_out: tuple[int, ...] = ()
):
    """Run one block on an array of float64."""
    program = Executable(f"{HEAD}{REGISTERS}{START}{body}\nret;\n}}\n", CHECKED)
    return program.run(1, threads, 1, [numbers.ctypes.data], order, left_out=left_out, memory=[numbers])


SHIFT = """
	ld.global.f64 	%fd1, [%rd2];
	bar.sync 	0;
	st.global.f64 	[%rd1], %fd1;
"""


def test_threads_meet_at_barriers_in_any_order():
    for order in Order:
        numbers = np.arange(4.0)
        report = run(SHIFT, numbers, order=order)
        assert numbers.tolist() == [1.0, 2.0, 3.0, 0.0]
        assert (report.barriers, report.reads, report.writes, report.races, report.strays) == (1, 4, 4, 0, 0)


def test_a_barrier_that_is_left_out_is_a_race():
    report = run(SHIFT, np.arange(4.0), left_out=(0,))
    assert report.races > 0
    assert report.first_race > 0


def test_reads_of_one_place_are_no_race_and_two_writes_are():
    assert run("ld.global.f64 	%fd1, [%rd0];", np.arange(4.0)).races == 0
    assert run("mov.f64 	%fd1, 0d3FF0000000000000;\nst.global.f64 	[%rd0], %fd1;", np.arange(4.0)).races > 0


def test_threads_that_meet_at_different_places_have_diverged():
    body = """
	setp.eq.s32 	%p1, %r1, 0;
	@%p1 bra 	$A;
	bar.sync 	0;
	bra.uni 	$B;
$A:
	bar.sync 	0;
$B:
"""
    with pytest.raises(Diverged):
        run(body, np.arange(4.0))


def test_an_access_outside_of_the_memory_given_is_a_stray():
    numbers = np.arange(5.0)
    program = Executable(f"{HEAD}{REGISTERS}{START}\nld.global.f64 	%fd1, [%rd1+-8];\nret;\n}}\n", CHECKED)
    report = program.run(1, 4, 1, [numbers.ctypes.data], memory=[numbers[:4]])
    assert report.strays == 1  # of the first thread, before the array


STORE = "mov.f64 	%fd1, 0d3FF0000000000000;\nst.global.f64 	[%rd1], %fd1;"


def test_blocks_that_write_one_place_race():
    numbers = np.arange(4.0)
    program = Executable(f"{HEAD}{REGISTERS}{START}{STORE}\nret;\n}}\n", CHECKED)
    assert program.run(1, 4, 1, [numbers.ctypes.data], memory=[numbers]).races == 0
    assert program.run(2, 4, 1, [numbers.ctypes.data], memory=[numbers]).races == 4


def test_a_write_to_what_is_constant_is_a_stray():
    numbers = np.arange(4.0)
    program = Executable(f"{HEAD}{REGISTERS}{START}{SHIFT}\nret;\n}}\n", CHECKED)
    report = program.run(1, 4, 1, [numbers.ctypes.data], constant=[numbers])
    assert (report.strays, report.races) == (4, 0)


def test_a_hasty_launch_ends_at_its_first_race():
    numbers = np.arange(4.0)
    program = Executable(f"{HEAD}{REGISTERS}{START}{SHIFT}\nret;\n}}\n", CHECKED)
    given = ([numbers.ctypes.data],)
    assert program.run(1, 4, 1, *given, memory=[numbers], left_out=[0]).races > 1
    assert program.run(1, 4, 1, *given, memory=[numbers], left_out=[0], hasty=True).races == 1
    assert program.run(1, 4, 1, *given, memory=[numbers]).races == 0  # nothing is left of it


def test_a_team_of_one_meets_nobody():
    numbers = np.arange(4.0)
    report = run(SHIFT, numbers, threads=1)
    assert (report.barriers, report.reached) == (0, frozenset())
    assert run(SHIFT, numbers).reached == {0}


def test_shuffles_exchange_numbers():
    body = """
	ld.global.f64 	%fd1, [%rd1];
	mov.b64 	{%r4, %r5}, %fd1;
	shfl.sync.bfly.b32 	%r6|%p1, %r4, 1, 31, -1;
	shfl.sync.bfly.b32 	%r7|%p2, %r5, 1, 31, -1;
	mov.b64 	%fd2, {%r6, %r7};
	st.global.f64 	[%rd1], %fd2;
"""
    numbers = np.array([0.5, -1.5, 2.5, np.inf])
    run(body, numbers)
    assert numbers.tolist() == [-1.5, 0.5, np.inf, 2.5]


def test_arithmetic_of_floats_and_integers():
    body = """
	ld.global.f64 	%fd1, [%rd1];
	fma.rn.f64 	%fd2, %fd1, %fd1, 0dBFF0000000000000;
	sqrt.rn.f64 	%fd3, %fd2;
	setp.leu.f64 	%p1, %fd3, 0d4000000000000000;
	selp.f64 	%fd4, %fd3, 0dC000000000000000, %p1;
	cvt.rmi.f64.f64 	%fd5, %fd4;
	cvt.rzi.s64.f64 	%rd3, %fd4;
	shl.b64 	%rd3, %rd3, 3;
	shr.s64 	%rd4, %rd3, 2;
	max.s64 	%rd5, %rd4, -3;
	cvt.rn.f64.s64 	%fd6, %rd5;
	add.rn.f64 	%fd7, %fd6, %fd5;
	st.global.f64 	[%rd1], %fd7;
"""
    numbers = np.array([1.0, 2.0, 5.0, 0.5])
    run(body, numbers)
    # √(x² − 1) = 0, 1.73, 4.9 (above 2: −2), NaN; floor(x) + max(4·trunc(x)/2, −3), with NaN to 0 as an integer
    assert numbers[:3].tolist() == [0.0, 1.0 + 2.0, -2.0 - 3.0]
    assert np.isnan(numbers[3])


def test_instructions_of_a_team_are_counted_once():
    program = Executable(f"{HEAD}{REGISTERS}{START}{SHIFT}\nret;\n}}\n", COUNTED)
    report = program.run(3, 4, 1, [np.arange(4.0).ctypes.data])
    loads, stores, floats, others, barriers, shuffles = report.counts
    assert (loads, stores, floats, others, barriers, shuffles) == (3, 3, 0, 3 * 10, 3, 0)


def test_an_instruction_that_is_not_known_is_named():
    with pytest.raises(UnknownInstruction, match=r"dp4a\.s32\.s32"):
        run("dp4a.s32.s32 	%r4, %r1, %r2, %r3;", np.arange(4.0))
