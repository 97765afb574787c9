"""4.10: what NVIDIA's unmodified samples need."""

from __future__ import annotations

from typing import Any

from aiodocadma.testing.conformance._bed import IDLE, RUNNING, STOPPING, Bed, Event
from aiodocadma.testing.conformance._rows.bufs import segment
from aiodocadma.testing.conformance._runner import ENGINES, case


@case(engines=ENGINES)
def test_4_10_2_destroying_in_the_idle_callback(t: Bed) -> None:
    for with_tasks in (True, False):
        t.open()
        gone: list[bool] = []

        def changed(state: int, gone: list[bool] = gone) -> None:
            if state == IDLE:
                t.call("dma_destroy", t.dma)
                t.ctx_is_gone()
                gone.append(True)

        def last(task: Any, event: Event) -> None:
            t.free(task)
            if len(t.events) == 4:
                t.expect("IN_PROGRESS SUCCESS", "ctx_stop", t.ctx)

        t.on_state, t.on_task = changed, last
        t.events.clear()
        if with_tasks:
            for i in range(4):
                t.copy(i, 64 * i, 4096 + 64 * i, 64)
        else:
            t.expect("IN_PROGRESS SUCCESS", "ctx_stop", t.ctx)
        t.until(gone.copy, "IDLE")


@case(engines=ENGINES)
def test_4_10_3_one_bad_task_of_255(t: Bed) -> None:
    t.open(255)
    for i in range(255):
        t.call("task_submit", t.as_task(t.task(t.src(64 * i, 0 if i == 2 else 64), t.dst(32768 + 64 * i, 64), i)))
    t.equal("the state before any progress", t.state(), RUNNING)
    t.run()
    t.equal("the ends", sorted(event.id for event in t.events), list(range(255)))
    t.equal("the first failure", next(event.id for event in t.events if not event.ok), 2)
    t.wait_idle()
    t.equal("the states", t.states, [RUNNING, STOPPING, IDLE])


@case(engines=("manual", "default"))
def test_4_10_4_stop_in_the_eighth_of_16(t: Bed) -> None:
    codes: list[str] = []
    t.open()

    def eighth(task: Any, event: Event) -> None:
        t.free(task)
        if len(t.events) == 8:
            codes.append(t.code("ctx_stop", t.ctx))

    t.on_task = eighth
    for i in range(16):
        t.copy(i, 64 * i, 4096 + 64 * i, 64)
    t.step(8)
    t.progress()
    t.wait_idle()
    t.equal("stop", codes, ["IN_PROGRESS"])
    t.equal("the ends", len(t.events), 16)
    good = sum(event.ok for event in t.events)
    t.check(good >= 8, "tasks reported before the stop failed")
    if t.engine == "manual" and t.abi.emulated:
        t.equal("the successes", good, 8)


@case(engines=ENGINES)
def test_4_10_6_the_destination_in_the_callback(t: Bed) -> None:
    seen: list[tuple[int, int]] = []
    t.open()

    def look(task: Any, event: Event) -> None:
        seen.append(segment(t, t.abi.doca_dma_task_memcpy_get_dst(task)))
        t.free(task)

    t.on_task = look
    t.copy(0, 0, 4096, 64)
    t.run()
    t.equal("the data", seen, [(4096, 64)])


@case(needs=("log",))
def test_4_10_10_log_without_a_backend(t: Bed) -> None:
    source = t.make("int", "log_register_source", b"CONFORMANCE::LOG")
    text = t.ffi.new("char[]", b"word")
    t.call("log", 50, source, b"file.c", 1, b"function", b"%s", text)
    t.call("log_unregister_source", source)
