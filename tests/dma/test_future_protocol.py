# SPDX-License-Identifier: Apache-2.0
"""
``CopyFuture`` speaks the asyncio future protocol and keeps its promise of quiescence (contract C1).

Every test runs on the pure-Python model and on the C type, on asyncio and on uvloop. The engine ends a copy when the
test says so, at once or some turns of the loop later: nothing here sleeps.
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
import inspect
import sys
import warnings
import weakref
from collections.abc import Callable, Coroutine, Generator, Iterable
from typing import Any

import anyio
import anyio.lowlevel
import pytest
import uvloop

from .future_model import ModelCopies

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


class Failed(Exception):
    """What a failing copy ends with."""


class Case:
    """One test's loop, copies, and what the loop's exception handler was told."""

    def __init__(self, copies: Any) -> None:
        self.copies = copies
        self.held: list[Any] = []
        self.reports: list[dict[str, Any]] = []

    def start(self, length: int = 64) -> Any:
        """A copy that the engine holds."""
        future = self.copies.start(length)
        self.held.append(future)
        return future

    def start_many(self, count: int) -> list[Any]:
        """Several copies that the engine holds."""
        return [self.start() for _ in range(count)]

    def finish(self, future: Any) -> None:
        """Let the engine finish a copy."""
        self.held = [other for other in self.held if other is not future]
        self.copies.finish(future)

    def fail(self, future: Any, error: BaseException) -> None:
        """Let the engine fail a copy."""
        self.held = [other for other in self.held if other is not future]
        self.copies.fail(future, error)

    def later(self, turns: int, callback: Callable[..., object], *args: Any) -> None:
        """Call back so many turns of the loop from now."""
        loop = asyncio.get_running_loop()
        if turns == 0:
            callback(*args)
        else:
            loop.call_soon(self.later, turns - 1, callback, *args)

    def finish_later(self, futures: Iterable[Any], after: int = 20, every: int = 3) -> None:
        """Let the engine finish copies one after the other, the first one ``after`` turns from now."""
        for i, future in enumerate(futures):
            self.later(after + i * every, self.finish, future)


async def turns(count: int = 3) -> None:
    """Let the loop run that many turns."""
    for _ in range(count):
        await asyncio.sleep(0)


def run(body: Callable[[Case], Coroutine[Any, Any, None]], copies: Any, loop_kind: str) -> None:
    """Run one test in a fresh loop; the loop must have no exception to report that the test did not expect."""

    async def main() -> None:
        async with copies:
            case = Case(copies)
            loop = asyncio.get_running_loop()
            loop.set_exception_handler(lambda _, context: case.reports.append(context))
            await body(case)
            for future in list(case.held):
                case.finish(future)
            await turns()
            gc.collect()
            assert case.reports == []

    with asyncio.Runner(loop_factory=LOOPS[loop_kind]) as runner:
        runner.run(main())


@pytest.fixture(params=["model", "real"])
def copies(request: pytest.FixtureRequest) -> Any:
    """An async context manager, entered in the test's loop, with ``start``, ``finish`` and ``fail``."""
    if request.param == "model":
        return ModelCopies()
    return request.getfixturevalue("real_copies")


def on_every_loop(test: Callable[[Case], Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Make a test of a coroutine function that takes a Case."""

    def runs(copies: Any, loop_kind: str) -> None:
        run(test, copies, loop_kind)

    runs.__name__ = test.__name__
    runs.__doc__ = test.__doc__
    marked: Callable[..., None] = pytest.mark.parametrize("loop_kind", sorted(LOOPS))(runs)
    return marked


# ---- the protocol ----


@on_every_loop
async def test_is_a_future(case: Case) -> None:
    """asyncio and inspect take it for one; its loop is the running one."""
    future = case.start()
    assert asyncio.isfuture(future)
    assert inspect.isawaitable(future)
    assert asyncio.ensure_future(future) is future
    assert future.get_loop() is asyncio.get_running_loop()
    assert "pending" in repr(future)


@on_every_loop
async def test_await_pending(case: Case) -> None:
    """A pending await resolves to the length."""
    future = case.start(100)
    case.finish_later([future])
    assert await future == 100
    assert future.done()
    assert not future.cancelled()
    assert future.result() == 100
    assert future.exception() is None


@on_every_loop
async def test_await_done_does_not_suspend(case: Case) -> None:
    """An await of a done copy returns in its first step."""
    future = case.start(7)
    case.finish(future)
    with pytest.raises(StopIteration) as stop:
        iter(future).send(None)
    assert stop.value.value == 7


@on_every_loop
async def test_stop_iterations_are_not_mixed_up(case: Case) -> None:
    """Whoever keeps the StopIteration of one await finds it unchanged after the next ones."""
    kept: list[StopIteration] = []
    for length in (1, 2, 3):
        future = case.start(length)
        case.finish(future)
        try:
            next(iter(future))
        except StopIteration as stop:
            kept.append(stop)
        assert await future == length
    assert [stop.value for stop in kept] == [1, 2, 3]


@on_every_loop
async def test_waiter_is_an_exact_future(case: Case) -> None:
    """A pending await yields what tasks have a fast path for."""
    future = case.start()
    it = iter(future)
    waiter = next(it)
    assert type(waiter) is asyncio.Future
    assert waiter._asyncio_future_blocking is True
    case.finish(future)
    assert waiter.done()
    with pytest.raises(StopIteration):
        next(it)


@on_every_loop
async def test_failure(case: Case) -> None:
    """A failure is raised by await, result() and given by exception()."""
    future = case.start()
    error = Failed("x")
    case.later(5, case.fail, future, error)
    with pytest.raises(Failed) as caught:
        await future
    assert caught.value is error
    assert future.exception() is error
    with pytest.raises(Failed):
        future.result()


@on_every_loop
async def test_result_raised_again_keeps_its_traceback_short(case: Case) -> None:
    """The same exception raised many times does not collect frames."""
    future = case.start()
    case.fail(future, Failed())
    for _ in range(5):
        with pytest.raises(Failed) as caught:
            future.result()
    assert len(caught.traceback) <= 2


@on_every_loop
async def test_invalid_state(case: Case) -> None:
    """A pending copy has neither result nor exception."""
    future = case.start()
    with pytest.raises(asyncio.InvalidStateError):
        future.result()
    with pytest.raises(asyncio.InvalidStateError):
        future.exception()


@on_every_loop
async def test_callbacks_run_in_order_with_their_context(case: Case) -> None:
    """Callbacks run in the loop, in order, each in the context it was added with."""
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="none")
    seen: list[tuple[int, str, bool]] = []
    future = case.start()
    own = contextvars.copy_context()
    own.run(variable.set, "own")
    variable.set("first")
    future.add_done_callback(lambda f: seen.append((1, variable.get(), f is future)))
    variable.set("second")
    future.add_done_callback(lambda f: seen.append((2, variable.get(), f is future)))
    future.add_done_callback(lambda f: seen.append((3, variable.get(), f is future)), context=own)
    case.finish(future)
    assert seen == []
    await turns()
    future.add_done_callback(lambda f: seen.append((4, variable.get(), f is future)), context=own)
    assert len(seen) == 3
    await turns()
    assert seen == [(1, "first", True), (2, "second", True), (3, "own", True), (4, "own", True)]


@on_every_loop
async def test_remove_done_callback(case: Case) -> None:
    """Removal is by equality, counts, and leaves the waiters alone."""
    future = case.start()
    seen: list[str] = []

    def one(_: Any) -> None:
        seen.append("one")

    def two(_: Any) -> None:
        seen.append("two")

    task = asyncio.create_task(wait_for_it(future))
    await turns(1)
    for callback in (one, two, one, seen.append):
        future.add_done_callback(callback)
    assert future.remove_done_callback(one) == 2
    assert future.remove_done_callback(one) == 0
    assert future.remove_done_callback(seen.append) == 1
    case.finish(future)
    assert await task == 64
    assert seen == ["two"]


class Hostile:
    """A callback whose comparison changes the list it is in."""

    def __init__(self, future: Any) -> None:
        self.future = future
        self.inside = False

    def __call__(self, future: Any) -> None:
        raise AssertionError("removed callbacks are not called")

    def __eq__(self, other: object) -> bool:
        if not self.inside:
            self.inside = True
            self.future.remove_done_callback(print)
            self.inside = False
        return self is other

    __hash__ = None  # type: ignore[assignment]


@on_every_loop
async def test_remove_done_callback_reentrant(case: Case) -> None:
    """A comparison may itself remove callbacks."""
    future = case.start()
    hostile = Hostile(future)
    for callback in (print, print, hostile, print, hostile, print):
        future.add_done_callback(callback)
    assert future.remove_done_callback(hostile) >= 1
    while future.remove_done_callback(hostile):
        pass


@on_every_loop
async def test_callback_that_raises(case: Case) -> None:
    """An exception in a callback reaches the loop's handler and disturbs nobody."""
    future = case.start()
    seen: list[Any] = []

    def bad(_: Any) -> None:
        raise Failed

    future.add_done_callback(bad)
    future.add_done_callback(seen.append)
    case.finish(future)
    await turns()
    assert seen == [future]
    assert [type(report["exception"]) for report in case.reports] == [Failed]
    case.reports.clear()


@on_every_loop
async def test_weak_references(case: Case) -> None:
    """Futures can be referred to weakly, and a pending one is kept until its end by whoever copies."""
    future = case.start()
    died: list[Any] = []
    reference = weakref.ref(future, died.append)
    case.finish(future)
    await turns()
    del future
    gc.collect()
    assert reference() is None
    assert died == [reference]


@on_every_loop
async def test_garbage_cycles(case: Case) -> None:
    """A done future in a cycle is collected."""
    future = case.start()
    reference = weakref.ref(future)
    holder = [future]
    future.add_done_callback(holder.append)
    future.remove_done_callback(holder.append)
    case.fail(future, Failed(holder))
    future.exception()
    holder.append(holder)
    await turns()
    del future, holder
    gc.collect()
    assert reference() is None


@on_every_loop
async def test_never_retrieved_is_reported_once(case: Case) -> None:
    """Dropping a failed future that nobody looked at tells the loop; looking at it, or cancelling it, does not."""
    future = case.start()
    case.fail(future, Failed("unseen"))
    await turns()
    del future
    gc.collect()
    assert [report["message"] for report in case.reports] == ["CopyFuture exception was never retrieved"]
    assert str(case.reports[0]["exception"]) == "unseen"
    case.reports.clear()
    seen = case.start()
    case.fail(seen, Failed("seen"))
    seen.exception()
    cancelled = case.start()
    cancelled.cancel()
    case.fail(cancelled, Failed("after cancel"))
    await turns()
    assert cancelled.cancelled()
    del seen, cancelled
    gc.collect()
    assert case.reports == []


async def wait_for_it(future: Any) -> Any:
    """The coroutine around a future that tasks need."""
    return await future


@on_every_loop
async def test_two_awaiters(case: Case) -> None:
    """Several tasks may await one copy; a third that is cancelled cancels it for all of them."""
    future = case.start()
    tasks = [asyncio.create_task(wait_for_it(future)) for _ in range(3)]
    await turns(1)
    case.finish(future)
    assert await asyncio.gather(*tasks) == [64, 64, 64]
    future = case.start()
    tasks = [asyncio.create_task(wait_for_it(future)) for _ in range(3)]
    await turns(1)
    tasks[0].cancel()
    case.finish_later([future])
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(result) for result in results] == [asyncio.CancelledError] * 3
    assert case.held == []


# ---- asyncio's constructs ----


@on_every_loop
async def test_gather(case: Case) -> None:
    """gather gives the results in order, whatever order the copies end in."""
    futures = [case.start(length) for length in (1, 2, 3)]
    case.finish_later(reversed(futures))
    assert await asyncio.gather(*futures) == [1, 2, 3]


@on_every_loop
async def test_gather_return_exceptions(case: Case) -> None:
    """gather collects a failure, a cancellation and a result."""
    failed, cancelled, good = case.start_many(3)
    cancelled.cancel("why")
    case.later(4, case.fail, failed, Failed())
    case.finish_later([cancelled, good])
    results = await asyncio.gather(failed, cancelled, good, return_exceptions=True)
    assert [type(result) for result in results] == [Failed, asyncio.CancelledError, int]
    assert results[1].args == ("why",)


@on_every_loop
async def test_gather_raises_the_failure(case: Case) -> None:
    """One copy that fails fails the gather; the others go on."""
    failed, good = case.start_many(2)
    case.later(4, case.fail, failed, Failed())
    with pytest.raises(Failed):
        await asyncio.gather(failed, good)
    case.finish(good)
    assert await good == 64


@on_every_loop
async def test_wait(case: Case) -> None:
    """wait takes the futures themselves and gives them back."""
    futures = case.start_many(3)
    case.finish_later(futures[:1])
    done, pending = await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
    assert done == {futures[0]}
    assert pending == set(futures[1:])
    case.finish_later(futures[1:])
    done, pending = await asyncio.wait(futures)
    assert (len(done), len(pending)) == (3, 0)


@on_every_loop
async def test_as_completed(case: Case) -> None:
    """as_completed gives them in the order they end."""
    futures = [case.start(length) for length in (1, 2, 3)]
    case.finish_later([futures[1], futures[2], futures[0]])
    assert [await future for future in asyncio.as_completed(futures)] == [2, 3, 1]


@on_every_loop
async def test_shield(case: Case) -> None:
    """A cancelled shield leaves the copy alone, by its own definition."""
    future = case.start()
    task = asyncio.create_task(wait_for_it(asyncio.shield(future)))
    await turns(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert case.held == [future]
    case.finish(future)
    assert await future == 64


@on_every_loop
async def test_wait_for(case: Case) -> None:
    """wait_for passes a result, and at a timeout waits until the engine has let go."""
    future = case.start()
    case.finish_later([future])
    assert await asyncio.wait_for(future, 60) == 64
    future = case.start()
    case.finish_later([future])
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(future, 1e-9)
    assert case.held == []


@on_every_loop
async def test_task_group(case: Case) -> None:
    """Tasks of a group that await copies."""
    futures = case.start_many(3)
    case.finish_later(futures)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(wait_for_it(future)) for future in futures]
    assert [task.result() for task in tasks] == [64, 64, 64]


@pytest.mark.parametrize("loop_kind", sorted(LOOPS))
def test_run_until_complete(copies: Any, loop_kind: str) -> None:
    """run_until_complete takes the future itself."""
    loop = LOOPS[loop_kind]()
    try:
        loop.run_until_complete(copies.__aenter__())

        async def start() -> Any:
            return copies.start(5)

        future = loop.run_until_complete(start())
        loop.call_soon(copies.finish, future)
        assert loop.run_until_complete(future) == 5
        loop.run_until_complete(copies.__aexit__(None, None, None))
    finally:
        loop.close()


if sys.version_info >= (3, 12):  # which brought eager tasks

    @on_every_loop
    async def test_eager_tasks(case: Case) -> None:
        """An eager task's first step runs before it is a task; done and pending copies both work there."""
        eager: Any = asyncio.Task
        loop = asyncio.get_running_loop()
        done, pending, cancelled = case.start_many(3)
        case.finish(done)
        tasks = [eager(wait_for_it(future), loop=loop, eager_start=True) for future in (done, pending, cancelled)]
        assert tasks[0].done()
        tasks[2].cancel()
        case.finish_later([pending, cancelled])
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert results[:2] == [64, 64]
        assert isinstance(results[2], asyncio.CancelledError)
        assert case.held == []


# ---- cancelling ----


@on_every_loop
async def test_cancel_waits_for_the_engine(case: Case) -> None:
    """cancel() marks; the end, always as cancelled, comes with the native end."""
    future = case.start()
    assert future.cancel("first") is True
    assert future.cancel("second") is True
    await turns(10)
    assert not future.done()
    assert not future.cancelled()
    with pytest.raises(asyncio.InvalidStateError):
        future.result()
    case.finish(future)
    assert future.cancelled()
    assert future.cancel() is False
    for raises in (future.result, future.exception):
        with pytest.raises(asyncio.CancelledError) as caught:
            raises()
        assert caught.value.args == ("first",)
    with pytest.raises(asyncio.CancelledError):
        await future


@on_every_loop
async def test_cancel_after_the_end(case: Case) -> None:
    """A done copy cannot be cancelled."""
    future = case.start()
    case.finish(future)
    assert future.cancel() is False
    assert await future == 64


@on_every_loop
async def test_cancel_then_device_error(case: Case) -> None:
    """What the device reported after a cancel is the context of the CancelledError."""
    future = case.start()
    error = Failed("late")
    future.cancel()
    case.later(5, case.fail, future, error)
    with pytest.raises(asyncio.CancelledError) as caught:
        await future
    assert caught.value.__context__ is error


@pytest.mark.parametrize("cancels", [1, 2, 3])
@pytest.mark.parametrize("ends_well", [True, False])
@pytest.mark.parametrize("loop_kind", sorted(LOOPS))
def test_cancelled_await(copies: Any, loop_kind: str, ends_well: bool, cancels: int) -> None:
    """However often a task is cancelled, its await ends after the native end, in CancelledError."""

    async def body(case: Case) -> None:
        future = case.start()
        error = Failed("late")
        task = asyncio.create_task(wait_for_it(future))
        await turns(1)
        for number in range(cancels):
            task.cancel(number)
            await turns(4)
            assert not task.done()
        assert case.held == [future]
        if ends_well:
            case.finish(future)
        else:
            case.fail(future, error)
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
        assert task.cancelled()
        assert task.cancelling() == cancels
        assert future.cancelled()
        assert ends_well or error in (caught.value.__context__, getattr(caught.value.__context__, "__context__", None))

    run(body, copies, loop_kind)


@on_every_loop
async def test_cancel_in_the_turn_of_the_end(case: Case) -> None:
    """Cancelled after the end but before its task ran: CancelledError at once, and the result is lost as in asyncio."""
    future = case.start()
    task = asyncio.create_task(wait_for_it(future))
    await turns(1)
    case.finish(future)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert future.result() == 64
    future = case.start()
    task = asyncio.create_task(wait_for_it(future))
    await turns(1)
    task.cancel()
    case.finish(future)
    with pytest.raises(asyncio.CancelledError):
        await task


@on_every_loop
async def test_task_cancelled_before_its_first_step(case: Case) -> None:
    """Nothing awaited the copy yet: it runs on, and drain is for that."""
    future = case.start()
    task = asyncio.create_task(wait_for_it(future))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not future.cancelled()
    case.finish(future)
    assert await future == 64


@on_every_loop
async def test_other_exceptions_are_raised_at_once(case: Case) -> None:
    """What is no CancelledError cannot wait: the copy is marked, the exception goes through."""
    future = case.start()
    it = iter(future)
    next(it)
    with pytest.raises(Failed):
        it.throw(Failed())
    assert not future.done()
    case.finish(future)
    await turns()
    assert future.cancelled()


@on_every_loop
async def test_throw_with_three_arguments(case: Case) -> None:
    """The old form of throw(), as generators on Python 3.11 use it."""
    future = case.start()
    it = iter(future)
    next(it)
    try:
        raise asyncio.CancelledError("x")
    except asyncio.CancelledError as error:
        thrown = error
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        waiter = it.throw(type(thrown), thrown, thrown.__traceback__)
    assert type(waiter) is asyncio.Future
    case.finish(future)
    await turns()
    with pytest.raises(asyncio.CancelledError) as caught:
        it.send(None)
    assert caught.value is thrown


@on_every_loop
async def test_closed_coroutine(case: Case) -> None:
    """Closing a coroutine that awaits marks the copy as cancelled."""
    future = case.start()
    coroutine = wait_for_it(future)
    coroutine.send(None)
    coroutine.close()
    assert not future.done()
    case.finish(future)
    await turns()
    assert future.cancelled()


# ---- quiescence ----


@on_every_loop
async def test_cohort_ends_together(case: Case) -> None:
    """Copies cancelled in one turn end when the last of them has let go; one of another turn by itself."""
    first, second, third = case.start_many(3)
    first.cancel()
    second.cancel()
    await turns()
    third.cancel()
    await turns()
    case.finish(first)
    case.finish(third)
    assert [future.done() for future in (first, second, third)] == [False, False, True]
    case.finish(second)
    assert first.cancelled()
    assert second.cancelled()


@on_every_loop
async def test_cohort_stays_open_for_its_turn(case: Case) -> None:
    """A member that ends within the turn waits for those that are cancelled later in it."""
    first, second = case.start_many(2)
    first.cancel()
    case.finish(first)
    assert not first.done()
    second.cancel()
    await turns()
    assert not first.done()
    case.finish(second)
    assert first.done()
    assert second.done()


@on_every_loop
async def test_timeout_around_await(case: Case) -> None:
    """asyncio.timeout raises TimeoutError when the engine has let go."""
    future = case.start()
    case.finish_later([future])
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await future
    assert case.held == []
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


@pytest.mark.parametrize("return_exceptions", [False, True])
@pytest.mark.parametrize("loop_kind", sorted(LOOPS))
def test_timeout_around_gather(copies: Any, loop_kind: str, return_exceptions: bool) -> None:
    """A timeout around a plain gather of copies is quiescent."""

    async def body(case: Case) -> None:
        futures = case.start_many(5)
        case.finish_later(futures)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await asyncio.gather(*futures, return_exceptions=return_exceptions)
        assert case.held == []

    run(body, copies, loop_kind)


@on_every_loop
async def test_wait_for_around_gather(case: Case) -> None:
    """wait_for around a gather of copies is quiescent."""
    futures = case.start_many(5)
    case.finish_later(futures)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.gather(*futures), 1e-9)
    assert case.held == []


@on_every_loop
async def test_wait_for_timed_out_then_cancelled(case: Case) -> None:
    """A cancel from outside while wait_for already waits for the copy to end."""
    future = case.start()
    task = asyncio.create_task(asyncio.wait_for(future, 1e-9))
    await turns(8)
    if sys.version_info >= (3, 12):
        task.cancel()
    case.finish_later([future])
    with pytest.raises((TimeoutError, asyncio.CancelledError)):
        await task
    assert case.held == []


@on_every_loop
async def test_task_group_that_fails(case: Case) -> None:
    """A group whose body raises cancels its tasks and is left when the engine has let go."""
    futures = case.start_many(3)

    async def fails() -> None:
        async with asyncio.TaskGroup() as group:
            for future in futures:
                group.create_task(wait_for_it(future))
            await turns(1)
            case.finish_later(futures)
            raise Failed

    with pytest.raises(ExceptionGroup):
        await fails()
    assert case.held == []


@pytest.mark.parametrize("loop_kind", sorted(LOOPS))
def test_end_of_run(copies: Any, loop_kind: str) -> None:
    """The end of asyncio.run cancels a task that awaits a copy and waits until the engine has let go."""
    ended: list[bool] = []

    async def main() -> None:
        await copies.__aenter__()
        case = Case(copies)
        future = case.start()

        async def holds() -> None:
            try:
                await future
            finally:
                ended.append(case.held == [])
                await copies.__aexit__(None, None, None)

        background.append(asyncio.create_task(holds()))
        await turns(1)
        case.finish_later([future])

    background: list[asyncio.Task[None]] = []
    with asyncio.Runner(loop_factory=LOOPS[loop_kind]) as runner:
        runner.run(main())
    assert ended == [True]
    assert background[0].cancelled()


# ---- anyio ----


class Counted:
    """Awaits a future and counts what is thrown in."""

    def __init__(self, future: Any) -> None:
        self.future = future
        self.throws = 0

    def __await__(self) -> Generator[Any, Any, Any]:
        it = iter(self.future)
        error: BaseException | None = None
        while True:
            try:
                waiter = it.send(None) if error is None else it.throw(error)
            except StopIteration as stop:
                return stop.value
            error = None
            try:
                yield waiter
            except BaseException as thrown:
                self.throws += 1
                error = thrown


@on_every_loop
async def test_anyio_scope_waits_without_a_busy_loop(case: Case) -> None:
    """anyio cancels again in every turn; the copy sees that once, and the scope still catches it."""
    future = case.start()
    counted = Counted(future)
    case.finish_later([future], after=100)
    with anyio.CancelScope() as scope:
        case.later(2, scope.cancel)
        await counted
    assert scope.cancelled_caught
    assert case.held == []
    assert counted.throws == 2
    await anyio.lowlevel.checkpoint()


@on_every_loop
async def test_anyio_task_group(case: Case) -> None:
    """An anyio group that is cancelled is left when the engine has let go, and the next await is not shielded."""
    futures = case.start_many(3)
    case.finish_later(futures)
    after: list[str] = []

    async def holds(future: Any) -> None:
        try:
            await future
        finally:
            try:
                await anyio.lowlevel.checkpoint()
            except asyncio.CancelledError:
                after.append("cancelled")
                raise

    async with anyio.create_task_group() as group:
        for future in futures:
            group.start_soon(holds, future)
        await turns(1)
        group.cancel_scope.cancel()
    assert case.held == []
    assert after == ["cancelled"] * 3


@on_every_loop
async def test_anyio_and_asyncio_cancel(case: Case) -> None:
    """A native cancel that comes while anyio's is waited out is not swallowed by the anyio scope."""
    future = case.start()

    async def holds() -> None:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await future
        raise AssertionError("the native cancel was lost")

    task = asyncio.create_task(holds())
    await turns(4)
    task.cancel("native")
    case.finish_later([future])
    with pytest.raises(asyncio.CancelledError):
        await task
    assert case.held == []


@on_every_loop
async def test_anyio_timeout_nested_in_asyncio_timeout(case: Case) -> None:
    """Scopes of both kinds around one copy; the inner scope is left properly."""
    future = case.start()
    case.finish_later([future])
    with anyio.CancelScope(deadline=-1) as scope:
        async with asyncio.timeout(60):
            await future
    assert scope.cancelled_caught
    assert case.held == []
    future = case.start()
    case.finish_later([future])
    assert await future == 64
