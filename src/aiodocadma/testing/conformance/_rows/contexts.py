"""4.4: the life of a context."""

from __future__ import annotations

from typing import Any

from aiodocadma.testing.conformance._bed import IDLE, RUNNING, STOPPING, Bed, Event
from aiodocadma.testing.conformance._runner import ENGINES, case


@case()
def test_4_4_1_configured_then_started(t: Bed) -> None:
    pe = t.create("pe")
    dma = t.create("dma", t.dev)
    ctx = t.abi.doca_dma_as_ctx(dma)
    t.call("ctx_set_user_data", ctx, 1)
    t.call("pe_connect_ctx", pe, ctx)
    t.check(t.code("ctx_start", ctx) != "SUCCESS", "a context starts without set_conf")
    t.set_conf(dma, 4)
    t.call("ctx_start", ctx)
    t.call("ctx_stop", ctx)


@case(engines=ENGINES)
def test_4_4_2_one_engine_many_contexts(t: Bed) -> None:
    t.open()
    others = []
    for _ in range(3):
        dma = t.create("dma", t.dev)
        t.call("pe_connect_ctx", t.pe, t.abi.doca_dma_as_ctx(dma))
        others.append(dma)
    t.copy(0, 0, 4096, 64)
    t.destroy("dma", others.pop(1))
    t.run()
    t.expect("IN_USE", "pe_destroy", t.pe)
    for dma in others:
        t.destroy("dma", dma)
    t.stop()
    t.destroy_ctx()
    t.destroy("pe", t.pe)


@case(engines=ENGINES)
def test_4_4_3_start_is_synchronous(t: Bed) -> None:
    t.open(start=False)
    t.equal("the state", t.state(), IDLE)
    t.call("ctx_start", t.ctx)
    t.equal("the states", t.states, [RUNNING])
    t.equal("the state", t.state(), RUNNING)


@case()
def test_4_4_4_running_is_frozen(t: Bed) -> None:
    t.open()
    for name, *args in (
        ("ctx_set_user_data", t.ctx, 1),
        ("ctx_set_state_changed_cb", t.ctx, t.null),
        ("dma_task_memcpy_set_conf", t.dma, t.task_callback(ok=True), t.task_callback(ok=False), 1),
        ("ctx_start", t.ctx),
    ):
        t.check(t.code(name, *args) != "SUCCESS", f"doca_{name} succeeds on a running context")


@case(engines=("manual", "default"))
def test_4_4_5_stop_flushes(t: Bed) -> None:
    t.open()
    for i in range(8):
        t.copy(i, 64 * i, 4096 + 64 * i, 64)
    late = t.task(t.null, t.null)
    if t.engine == "manual":
        t.step(3)
    t.expect("IN_PROGRESS", "ctx_stop", t.ctx)
    t.equal("the states", t.states, [RUNNING, STOPPING])
    out = t.ffi.new("struct doca_dma_task_memcpy **")
    t.expect("BAD_STATE", "dma_task_memcpy_alloc_init", t.dma, t.null, t.null, 0, out)
    t.check(t.code("task_submit", t.as_task(late)) != "SUCCESS", "a stopping context takes tasks")
    t.run()
    t.equal("the ends", sorted(event.id for event in t.events), list(range(8)))
    t.check(all(event.ok == (event.status == "SUCCESS") for event in t.events), "a status does not fit its callback")
    if t.engine == "manual" and t.abi.emulated:
        t.equal("the flushed", sum(not event.ok for event in t.events), 5)
    t.free(late)
    t.wait_idle()


@case(engines=ENGINES, setting="flush_status", readings=("culprit", "SHUTDOWN", "AGAIN"))
def test_4_4_6_status_of_flushed_tasks(t: Bed) -> None:
    if t.abi.emulated:
        t.configure("fault op=completion status=DRIVER")
    t.open()
    bad = t.src(0, 0) if not t.abi.emulated else t.src(0, 8)
    t.call("task_submit", t.as_task(t.task(bad, t.dst(4096, 8), 0)))
    for i in range(1, 8):
        t.copy(i, 64 * i, 8192 + 64 * i, 64)
    t.run()
    culprit = next(event for event in t.events if not event.ok)
    t.equal("the first failure", culprit.id, 0)
    codes = {event.status for event in t.events if not event.ok and event.id != 0}
    if len(codes) == 1:
        code = codes.pop()
        t.observed("flush_status", "culprit" if code == culprit.status else code)
    else:
        t.note("the status of flushed tasks", ", ".join(sorted(codes)) or "none was flushed")
    t.wait_idle()


@case(engines=ENGINES)
def test_4_4_7_stopping_until_all_are_freed(t: Bed) -> None:
    kept: list[Any] = []
    t.open()
    t.on_task = lambda task, event: kept.append(task)
    t.copy(0, 0, 4096, 64)
    kept.append(t.task(t.null, t.null))
    t.expect("IN_PROGRESS", "ctx_stop", t.ctx)
    t.run()
    t.progress()
    t.equal("the state with tasks allocated", t.state(), STOPPING)
    for task in kept:
        t.equal("the state", t.state(), STOPPING)
        t.free(task)
    t.check(t.state() == STOPPING, "freeing the last task makes the context idle outside progress")
    t.equal("the step to IDLE", t.abi.doca_pe_progress(t.pe), 1)
    t.equal("the states", t.states, [RUNNING, STOPPING, IDLE])


@case(engines=ENGINES)
def test_4_4_8_stop_without_tasks(t: Bed) -> None:
    t.open()
    t.copy(0, 0, 4096, 64)
    t.run()
    t.call("ctx_stop", t.ctx)
    t.equal("the state", t.state(), IDLE)


@case(engines=ENGINES)
def test_4_4_9_stop_in_the_last_callback(t: Bed) -> None:
    t.open()

    def last(task: Any, event: Event) -> None:
        t.free(task)
        if len(t.events) == 4:
            code = t.expect("SUCCESS IN_PROGRESS", "ctx_stop", t.ctx)
            t.note("stop in the last callback gives", code)

    t.on_task = last
    for i in range(4):
        t.copy(i, 64 * i, 4096 + 64 * i, 64)
    t.wait_idle()
    t.equal("the last state", t.states[-1], IDLE)


@case(engines=ENGINES)
def test_4_4_10_stop_in_a_callback(t: Bed) -> None:
    codes: list[str] = []
    t.open()

    def first(task: Any, event: Event) -> None:
        t.free(task)
        if len(t.events) == 1:
            codes.append(t.code("ctx_stop", t.ctx))

    t.on_task = first
    for i in range(8):
        t.copy(i, 64 * i, 4096 + 64 * i, 64)
    t.wait_idle()
    t.equal("stop", codes, ["IN_PROGRESS"])
    t.equal("the ends", len(t.events), 8)


@case(setting="stop_idle", readings=("success", "bad_state"))
def test_4_4_11_stop_of_an_idle_context(t: Bed) -> None:
    t.open(start=False)
    code = t.expect("SUCCESS BAD_STATE", "ctx_stop", t.ctx)
    t.observed("stop_idle", code.lower())


@case()
def test_4_4_12_destroying_before_idle(t: Bed) -> None:
    t.open()
    t.expect("IN_USE", "dma_destroy", t.dma)
    task = t.task(t.null, t.null)
    t.expect("IN_PROGRESS", "ctx_stop", t.ctx)
    t.expect("IN_USE", "dma_destroy", t.dma)
    t.free(task)
    t.wait_idle()
    t.destroy_ctx()


@case(engines=ENGINES)
def test_4_4_13_a_failure_stops_the_context(t: Bed) -> None:
    t.open()
    t.copy(0, 0, 4096, 64)
    t.call("task_submit", t.as_task(t.task(t.src(0, 0), t.dst(5000, 8), 1)))
    for i in range(2, 10):
        t.copy(i, 64 * i, 8192 + 64 * i, 64)
    t.equal("the state before any progress", t.state(), RUNNING)
    t.run()
    t.equal("the ends", sorted(event.id for event in t.events), list(range(10)))
    t.equal("the first failure", next(event.id for event in t.events if not event.ok), 1)
    t.wait_idle()
    t.equal("the states", t.states, [RUNNING, STOPPING, IDLE])
    if t.engine == "manual" and t.abi.emulated:
        t.equal("the successes", [event.id for event in t.events if event.ok], [0])


@case(engines=ENGINES)
def test_4_4_14_starting_again(t: Bed) -> None:
    t.open()
    for _ in range(3):
        t.call("task_submit", t.as_task(t.task(t.src(0, 0), t.dst(5000, 8), 1)))
        t.run()
        t.wait_idle()
        t.call("ctx_start", t.ctx)
        t.events.clear()
        for i in range(8):
            t.copy(i, 64 * i, 4096 + 64 * i, 64)
        t.run()
        t.check(all(event.ok for event in t.events) and len(t.events) == 8, "copies fail after a restart")
        t.equal("the bytes", t.data(4096, 512), t.data(0, 512))


@case()
def test_4_4_15_user_data_of_the_state_callback(t: Bed) -> None:
    seen: list[int] = []
    t.open(start=False)
    made = t.callback("doca_ctx_state_changed_callback_t", lambda data, ctx, previous, state: seen.append(int(data)))
    t.call("ctx_set_state_changed_cb", t.ctx, made)
    t.call("ctx_set_user_data", t.ctx, 41)
    t.call("ctx_start", t.ctx)
    t.call("ctx_stop", t.ctx)
    t.equal("the user data", set(seen), {41})


@case()
def test_4_4_16_the_second_callback_replaces(t: Bed) -> None:
    seen: list[str] = []
    t.open(start=False)
    for name in ("first", "second"):
        made = t.callback(
            "doca_ctx_state_changed_callback_t",
            lambda data, ctx, previous, state, name=name: seen.append(name),
        )
        t.call("ctx_set_state_changed_cb", t.ctx, made)
    t.call("ctx_start", t.ctx)
    t.equal("who was called", seen, ["second"])
    t.equal("the replaced one", t.states, [])
