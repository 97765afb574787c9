"""4.2: the notification protocol."""

from __future__ import annotations

import os
import select

from aiodocadma.testing.conformance._bed import Bed
from aiodocadma.testing.conformance._runner import ENGINES, case

SELECTIVE, ALL = 0, 1


@case()
def test_4_2_1_one_handle(t: Bed) -> None:
    pe = t.create("pe")
    first = t.make("int", "pe_get_notification_handle", pe)
    t.engine_with_ctx()
    t.call("ctx_start", t.ctx)
    t.equal("the handle later", t.make("int", "pe_get_notification_handle", pe), first)
    t.check(t.fd != first, "two engines share a handle")
    t.note("what the handle is", os.readlink(f"/proc/self/fd/{first}"))


@case(engines=ENGINES)
def test_4_2_2_arm_wait_clear_progress(t: Bed) -> None:
    t.open()
    for i in range(8):
        t.arm()
        t.copy(i, 0, 4096, 64)
        t.step()
        t.check(t.readable(5), "a completion behind the arm does not make the fd readable")
        t.clear()
        t.equal("steps behind the clear", t.progress(), 1)
    t.equal("completions", [event.id for event in t.events], list(range(8)))


@case(engines=ENGINES)
def test_4_2_3_progress_arm_wait_clear(t: Bed) -> None:
    t.open()
    for i in range(8):
        t.copy(i, 64 * i, 4096 + 64 * i, 64)
    t.step()
    while t.in_flight():
        t.progress()
        if not t.in_flight():
            break
        t.arm()
        t.check(t.readable(5), "the fd does not become readable with tasks in flight")
        t.clear()
    t.equal("completions", len(t.events), 8)


@case(engines=ENGINES)
def test_4_2_4_arming_with_a_completion_pending(t: Bed) -> None:
    for mode in t.modes:
        t.open(mode=mode)
        t.copy(0, 0, 4096, 64)
        t.settle(4096, t.data(0, 64))
        t.arm()
        t.check(t.readable(5), "arming with a completion pending leaves the fd silent")
        t.clear()
        t.equal("steps", t.progress(), 1)


@case(engines=ENGINES)
def test_4_2_5_clear_ignores_the_handle(t: Bed) -> None:
    t.open()
    for handle in (0, t.fd, -1):
        t.arm()
        t.copy(0, 0, 4096, 64)
        t.step()
        t.check(t.readable(5), "the fd does not become readable")
        t.call("pe_clear_notification", t.pe, handle)
        t.check(not t.readable(), f"a clear with the handle {handle} leaves the fd readable")
        t.run()


@case(engines=ENGINES)
def test_4_2_6_readable_until_the_clear(t: Bed) -> None:
    t.open()
    t.arm()
    t.check(not t.readable(), "the fd is readable with nothing submitted")
    t.copy(0, 0, 4096, 64)
    t.step()
    t.check(t.readable(5), "the fd does not become readable")
    t.check(t.readable(), "a poll takes the readiness away")
    t.clear()
    t.check(not t.readable(), "the fd is readable after the clear")
    t.run()


@case(engines=("manual", "worker"))
def test_4_2_7_unarmed_is_silent(t: Bed) -> None:
    t.open()
    t.copy(0, 0, 4096, 64)
    t.settle(4096, t.data(0, 64))
    silent = not t.readable(0.05)
    t.note("an unarmed engine signals", "no" if silent else "yes")
    if t.abi.emulated:
        t.check(silent, "the fd is readable without an arm")
    t.run()


@case(engines=("manual",))
def test_4_2_8_selective_serves_what_was_pending(t: Bed) -> None:
    t.open()
    t.copy(0, 0, 4096, 64)
    if t.abi.emulated:
        t.copy(1, 64, 5000, 64)
        t.step(1)
        t.arm()
        t.step(1)
        t.equal("steps while armed", t.progress(), 1)
        t.clear()
        t.equal("steps after the clear", t.progress(), 1)
        return
    t.settle(4096, t.data(0, 64))
    t.arm()
    t.note("progress serves what was pending when armed", "yes" if t.progress() else "no")
    t.clear()
    t.run()


@case(engines=ENGINES, needs=("pe_set_event_mode",))
def test_4_2_9_all_needs_no_clear(t: Bed) -> None:
    t.open(mode=ALL)
    t.arm()
    t.copy(0, 0, 4096, 64)
    t.step()
    t.check(t.readable(5), "the fd does not become readable")
    t.run()
    t.equal("completions", len(t.events), 1)
    t.arm()
    t.check(not t.readable(), "the next arm does not clear")


@case(engines=ENGINES, needs=("pe_set_event_mode",))
def test_4_2_10_all_may_be_progressed_while_armed(t: Bed) -> None:
    t.open(mode=ALL)
    t.arm()
    t.copy(0, 0, 4096, 64)
    t.run()
    t.equal("completions", len(t.events), 1)


@case(engines=("manual", "worker"))
def test_4_2_11_selective_delivers_after_the_clear(t: Bed) -> None:
    t.open()
    t.arm()
    t.copy(0, 0, 4096, 64)
    t.step()
    t.check(t.readable(5), "the fd does not become readable")
    before = t.progress()
    t.note("SELECTIVE: progress between event and clear delivers", "yes" if before else "no")
    if t.abi.emulated:
        t.equal("steps before the clear", before, 0)
    t.clear()
    t.run()
    t.equal("completions", len(t.events), 1)


@case(engines=ENGINES, setting="edge", readings=("level", "strict"), needs=("pe_set_event_mode",))
def test_4_2_12_arm_then_progress_closes_the_race(t: Bed) -> None:
    t.open(mode=ALL)
    t.copy(0, 0, 4096, 64)
    t.settle(4096, t.data(0, 64))
    t.arm()
    if t.engine == "manual" or not t.abi.emulated:
        t.observed("edge", "level" if t.readable(0.2) else "strict")
    t.until(lambda: t.events, "a completion from before the arm")


@case(needs=("pe_set_event_mode",))
def test_4_2_13_event_mode_at_run_time(t: Bed) -> None:
    t.open()
    for mode in (ALL, SELECTIVE, ALL):
        t.call("pe_set_event_mode", t.pe, mode)
        t.arm()
        t.copy(mode, 0, 4096, 64)
        t.check(t.readable(5), "the fd does not become readable")
        t.clear()
        t.run()
    if t.abi.emulated:
        noted = t.violations()
        t.in_each(lambda: t.code("pe_set_event_mode", t.pe, ALL))
        t.copy(0, 0, 4096, 64)
        t.run()
        t.equal("violations by a change in a callback", t.violations() - noted, 1)


@case(engines=("default", "worker"))
def test_4_2_14_submitting_while_armed(t: Bed) -> None:
    for mode in t.modes:
        t.open(mode=mode)
        for i in range(20):
            t.arm()
            t.copy(i, 0, 4096, 8)
            t.check(t.readable(5), "a task submitted while armed does not make the fd readable")
            t.clear()
            t.equal("steps", t.progress(), 1)


@case(engines=ENGINES)
def test_4_2_15_two_engines_in_one_poll(t: Bed) -> None:
    t.open()
    first = t.pe, t.fd
    other = t.create("pe")
    poll = select.epoll()
    handle = t.make("int", "pe_get_notification_handle", other)
    try:
        for fd in (t.fd, handle):
            poll.register(fd, select.EPOLLIN)
        t.call("pe_request_notification", other)
        t.arm()
        t.copy(0, 0, 4096, 64)
        t.step()
        t.equal("what is readable", [fd for fd, _ in poll.poll(5)], [first[1]])
    finally:
        poll.close()
    t.clear()
    t.run()


@case(engines=ENGINES)
def test_4_2_16_arming_twice(t: Bed) -> None:
    t.open()
    t.arm()
    t.arm()
    t.copy(0, 0, 4096, 64)
    t.step()
    t.check(t.readable(5), "the fd does not become readable")
    t.clear()
    t.check(not t.readable(), "one clear does not clear two arms")
    t.run()
