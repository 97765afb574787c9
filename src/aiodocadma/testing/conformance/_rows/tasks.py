"""4.3: progress, callbacks, tasks."""

from __future__ import annotations

import threading
from typing import Any

from aiodocadma.testing.conformance._bed import IDLE, RUNNING, STOPPING, Bed, Event
from aiodocadma.testing.conformance._runner import ENGINES, case

NONE, FLUSH, OPTIMIZE_REPORTS = 0, 1, 2


@case(engines=ENGINES)
def test_4_3_1_one_step_per_call(t: Bed) -> None:
    t.open()
    t.equal("a step with nothing to do", t.abi.doca_pe_progress(t.pe), 0)
    for i in range(8):
        t.copy(i, 64 * i, 4096 + 64 * i, 64)
    t.equal("completions before any progress", len(t.events), 0)
    t.step()
    while t.in_flight():
        before = len(t.events)
        result = t.abi.doca_pe_progress(t.pe)
        t.check(result in (0, 1), f"progress gives {result}")
        t.equal("completions in a step", len(t.events) - before, result)
    task = t.task(t.null, t.null)
    t.expect("IN_PROGRESS", "ctx_stop", t.ctx)
    t.free(task)
    t.check(t.state() == IDLE or t.abi.doca_pe_progress(t.pe) == 1, "a change of state gives no 1")


@case(engines=ENGINES)
def test_4_3_2_one_for_an_error(t: Bed) -> None:
    t.open()
    t.call("task_submit", t.as_task(t.task(t.src(0, 0), t.dst(4096, 8))))
    t.step()
    steps = 0
    while not t.events:
        steps += t.abi.doca_pe_progress(t.pe)
    t.equal("steps", steps, 1)
    t.check(not t.events[0].ok, "a source without data succeeds")
    t.wait_idle()


@case(engines=ENGINES)
def test_4_3_3_progress_until_zero_drains(t: Bed) -> None:
    t.open(64)
    for i in range(64):
        t.copy(i, 64 * i, 8192 + 64 * i, 64)
    t.run()
    t.equal("the tasks", sorted(event.id for event in t.events), list(range(64)))
    t.equal("a step more", t.abi.doca_pe_progress(t.pe), 0)


@case(engines=ENGINES)
def test_4_3_4_callbacks_run_in_the_calling_thread(t: Bed) -> None:
    threads: list[int] = []
    t.on_state = lambda state: threads.append(threading.get_ident())
    t.in_each(lambda: threads.append(threading.get_ident()))
    t.open()
    t.equal("states inside start", t.states, [RUNNING])
    t.copy(0, 0, 4096, 64)
    t.equal("callbacks inside submit", len(t.events), 0)
    t.run()
    t.stop()
    t.equal("the threads", set(threads), {threading.get_ident()})


@case(engines=ENGINES)
def test_4_3_5_progress_in_a_callback(t: Bed) -> None:
    t.emulator_only()
    results: list[int] = []
    t.in_each(lambda: results.append(int(t.abi.doca_pe_progress(t.pe))))
    t.open()
    t.copy(0, 0, 4096, 64)
    t.copy(1, 0, 5000, 64)
    t.run()
    t.equal("progress in a callback", results, [0, 0])
    t.equal("violations", t.violations(), 2)


@case(engines=ENGINES)
def test_4_3_6_what_a_callback_may_do(t: Bed) -> None:
    t.open(4)

    def again(task: Any, event: Event) -> None:
        t.free(task)
        if event.id < 5:
            t.copy(event.id + 1, 0, 4096, 64)
        else:
            t.expect("IN_PROGRESS SUCCESS", "ctx_stop", t.ctx)

    t.on_task = again
    t.copy(0, 0, 4096, 64)
    t.wait_idle()
    t.equal("the tasks", [event.id for event in t.events], list(range(6)))


@case(engines=ENGINES)
def test_4_3_7_what_a_state_callback_may_do(t: Bed) -> None:
    t.open(4, start=False)

    def changed(state: int) -> None:
        if state == RUNNING:
            t.copy(0, 0, 4096, 64)
        elif state == IDLE:
            t.call("dma_destroy", t.dma)
            t.ctx_is_gone()
            gone.append(True)

    gone: list[bool] = []
    t.on_state = changed
    t.call("ctx_start", t.ctx)
    t.run()
    t.equal("completions", len(t.events), 1)
    t.expect("SUCCESS IN_PROGRESS", "ctx_stop", t.ctx)
    t.until(lambda: gone, "IDLE")


@case(engines=ENGINES)
def test_4_3_9_a_failed_submit_leaves_the_task(t: Bed) -> None:
    t.open(2)
    task = t.task(t.null, t.null, 3)
    t.expect("INVALID_VALUE", "task_try_submit", t.as_task(task))
    t.abi.doca_dma_task_memcpy_set_src(task, t.src(0, 64))
    t.abi.doca_dma_task_memcpy_set_dst(task, t.dst(4096, 64))
    t.call("task_submit", t.as_task(task))
    t.run()
    t.equal("the ends", [event.id for event in t.events], [3])
    t.free(t.task(t.null, t.null))


@case(engines=ENGINES)
def test_4_3_10_freeing_outside_the_callback(t: Bed) -> None:
    kept: list[Any] = []
    t.open(2)
    t.on_task = lambda task, event: kept.append(task)
    t.copy(0, 0, 4096, 64)
    t.copy(1, 0, 5000, 64)
    t.run()
    for task in kept:
        t.free(task)
    again = [t.task(t.null, t.null) for _ in range(2)]
    for task in again:
        t.free(task)


@case(engines=ENGINES)
def test_4_3_11_status_and_callbacks(t: Bed) -> None:
    t.open()
    t.copy(0, 0, 4096, 64)
    t.run()
    t.call("task_submit", t.as_task(t.task(t.src(0, 0), t.dst(4096, 8), 1)))
    t.run()
    t.wait_idle()
    t.equal("the first", t.events[0], Event(0, True, "SUCCESS"))
    t.check(not t.events[1].ok and t.events[1].status != "SUCCESS", f"a failed task ends as {t.events[1]}")


@case(engines=ENGINES)
def test_4_3_12_resubmitting_with_changes(t: Bed) -> None:
    t.open(1)
    kept: list[Any] = []
    t.on_task = lambda task, event: kept.append(task)
    t.copy(1, 0, 4096, 64)
    t.run()
    task = kept[0]
    t.drop(t.abi.doca_dma_task_memcpy_get_src(task), t.abi.doca_dma_task_memcpy_get_dst(task))
    t.abi.doca_dma_task_memcpy_set_src(task, t.src(64, 32))
    t.abi.doca_dma_task_memcpy_set_dst(task, t.dst(5000, 32))
    t.abi.doca_task_set_user_data(t.as_task(task), 2)
    t.equal("the user data", t.abi.doca_task_get_user_data(t.as_task(task)), 2)
    t.call("task_submit", t.as_task(task))
    t.run()
    t.equal("the tasks", [event.id for event in t.events], [1, 2])
    t.equal("the bytes", t.data(5000, 32), t.data(64, 32))
    t.check(t.abi.doca_task_get_ctx(t.as_task(task)) == t.ctx, "task_get_ctx gives another context")
    t.free(task)


@case()
def test_4_3_13_the_pool_is_fixed(t: Bed) -> None:
    t.open(3)
    out = t.ffi.new("struct doca_dma_task_memcpy **")
    for _ in range(3):
        tasks = [t.task(t.null, t.null) for _ in range(3)]
        t.expect("NO_MEMORY", "dma_task_memcpy_alloc_init", t.dma, t.null, t.null, 0, out)
        for task in tasks:
            t.free(task)


@case()
def test_4_3_14_alloc_needs_running(t: Bed) -> None:
    t.open(3, start=False)
    out = t.ffi.new("struct doca_dma_task_memcpy **")
    t.expect("BAD_STATE", "dma_task_memcpy_alloc_init", t.dma, t.null, t.null, 0, out)
    t.call("ctx_start", t.ctx)
    task = t.task(t.null, t.null)
    t.expect("IN_PROGRESS", "ctx_stop", t.ctx)
    t.expect("BAD_STATE", "dma_task_memcpy_alloc_init", t.dma, t.null, t.null, 0, out)
    t.free(task)
    t.wait_idle()


@case(engines=ENGINES)
def test_4_3_15_submit_after_a_fault(t: Bed) -> None:
    t.open()
    late = t.task(t.src(0, 64), t.dst(5000, 64), 1)
    t.call("task_submit", t.as_task(t.task(t.src(0, 0), t.dst(4096, 8))))
    t.until(lambda: t.events, "the failure")
    t.equal("the state", t.state(), STOPPING)
    t.expect("BAD_STATE", "task_submit", t.as_task(late))
    t.free(late)
    t.wait_idle()


@case(engines=ENGINES)
def test_4_3_16_bufs_may_follow(t: Bed) -> None:
    t.open()
    task = t.task(t.null, t.null)
    t.abi.doca_dma_task_memcpy_set_src(task, t.src(0, 64))
    t.abi.doca_dma_task_memcpy_set_dst(task, t.dst(4096, 64))
    t.call("task_submit", t.as_task(task))
    t.run()
    t.equal("the bytes", t.data(4096, 64), t.data(0, 64))


@case(engines=ENGINES)
def test_4_3_17_only_try_submit_validates(t: Bed) -> None:
    t.open()
    task = t.task(t.src(0, 65), t.dst(4096, 64))
    t.expect("INVALID_VALUE", "task_try_submit", t.as_task(task))
    t.equal("in flight", t.in_flight(), 0)
    t.free(task)
    empty = t.task(t.src(0, 0), t.dst(4096, 64))
    t.expect("INVALID_VALUE", "task_try_submit", t.as_task(empty))
    t.call("task_submit", t.as_task(empty))
    t.run()
    t.wait_idle()


@case(engines=ENGINES)
def test_4_3_18_a_full_queue(t: Bed) -> None:
    t.configure("queue_depth=2")
    t.open(64)
    tasks = [t.task(t.src(64 * i, 64), t.dst(8192 + 64 * i, 64), i) for i in range(64)]
    waiting = list(tasks)
    code = "SUCCESS"
    while waiting and code == "SUCCESS":
        code = t.code("task_submit", t.as_task(waiting[0]))
        if code == "SUCCESS":
            waiting.pop(0)
    t.note("a full queue gives", code if code != "SUCCESS" else "nothing: it never is with set_conf's number")
    if t.abi.emulated:
        t.equal("the code", code, "AGAIN")
    while waiting:
        t.run()
        for task in waiting[:2]:
            t.call("task_submit", t.as_task(task))
        waiting = waiting[2:]
    t.run()
    t.equal("completions", len(t.events), 64)


@case(engines=ENGINES, needs=("task_submit_ex",))
def test_4_3_19_flushing(t: Bed) -> None:
    t.open()
    for i, flags in enumerate((OPTIMIZE_REPORTS, OPTIMIZE_REPORTS, FLUSH)):
        t.call("task_submit_ex", t.as_task(t.task(t.src(64 * i, 64), t.dst(4096 + 64 * i, 64), i)), flags)
    t.run()
    t.equal("completions", len(t.events), 3)


@case(engines=ENGINES, needs=("task_submit_ex", "ctx_flush_tasks"))
def test_4_3_20_without_flush_a_task_may_wait(t: Bed) -> None:
    t.open()
    t.call("task_submit_ex", t.as_task(t.task(t.src(0, 64), t.dst(4096, 64))), NONE)
    t.step()
    began = t.progress()
    t.note("a task without FLUSH begins at once", "yes" if began else "no")
    if t.abi.emulated:
        t.equal("steps without a flush", began, 0)
        t.equal("in flight", t.in_flight(), 1)
    t.abi.doca_ctx_flush_tasks(t.ctx)
    t.run()
    t.equal("completions", len(t.events), 1)


@case(engines=ENGINES, needs=("dma_set_ordered_completions",))
def test_4_3_21_ordered_completions(t: Bed) -> None:
    t.open(32, start=False, size=1 << 20)
    t.call("dma_set_ordered_completions", t.dma, 1)
    t.call("ctx_start", t.ctx)
    for i in range(32):
        t.copy(i, 0, (1 << 19) + i * 8192, 8192 if i % 7 == 0 else 8)
    if t.engine == "manual":
        t.step(order=1)
    t.run()
    t.equal("the order", [event.id for event in t.events], list(range(32)))
    if t.abi.emulated and t.engine == "manual":
        t.stop()
        t.call("dma_set_ordered_completions", t.dma, 0)
        t.call("ctx_start", t.ctx)
        t.events.clear()
        for i in range(4):
            t.copy(i, 0, 8192 + i * 8, 8)
        t.step(order=1)
        t.run()
        t.equal("the order unordered", [event.id for event in t.events], [3, 2, 1, 0])


@case(engines=ENGINES)
def test_4_3_22_two_threads(t: Bed) -> None:
    t.emulator_only()
    results: list[object] = []

    def intrude() -> None:
        results.append(int(t.abi.doca_pe_progress(t.pe)))
        results.append(t.code("pe_request_notification", t.pe))

    def in_callback(task: Any, event: Event) -> None:
        thread = threading.Thread(target=intrude)
        thread.start()
        thread.join()
        t.free(task)

    t.open()
    t.on_task = in_callback
    t.copy(0, 0, 4096, 64)
    t.run()
    t.equal("the other thread's calls", results, [0, "BAD_STATE"])
    t.equal("violations", t.violations(), 2)


@case(engines=ENGINES)
def test_4_3_23_num_inflight(t: Bed) -> None:
    counted: list[int] = []
    t.in_each(lambda: counted.append(t.in_flight()))
    t.open()
    t.equal("before", t.in_flight(), 0)
    for i in range(3):
        t.copy(i, 64 * i, 4096 + 64 * i, 64)
        t.equal("in flight", t.in_flight(), i + 1)
        t.equal("of the context", t.make("size_t", "ctx_get_num_inflight_tasks", t.ctx), i + 1)
    t.run()
    t.equal("in the callbacks", counted, [2, 1, 0])
    t.equal("after", t.in_flight(), 0)
