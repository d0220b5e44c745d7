"""Locks: one holder at a time, who is notified of the loss."""

import asyncio
import threading
import time
import uuid
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest

from taskmq import Context, InvalidOption, LockLost, LockTimeout, StateUnavailable, TaskMQ, UnsupportedFeature
from taskmq.client.portal import Portal
from taskmq.contracts.stores import Lease
from taskmq.model.keys import lock_key
from taskmq.run.locks import Lock, OwnLeases
from taskmq.worker import Worker, WorkerConfig
from taskmq_local import forget_memory
from tests.unit.worker.staged import settle_loop


@pytest.fixture
def app() -> Iterator[TaskMQ]:
    name = uuid.uuid4().hex
    with TaskMQ(f"memory://{name}") as app:
        yield app
    forget_memory(name)


def loop_time() -> float:
    return asyncio.get_running_loop().time()


class Flaky(OwnLeases):
    """Leases that fail as configured.

    Attributes:
        is_down: every call fails without an effect.
        loses: number of further acquisitions that take effect and then fail.
    """

    def __init__(self) -> None:
        super().__init__(loop_time)
        self.is_down = False
        self.loses = 0

    async def acquire(self, key: str, *, owner: str, seconds: float, note: str = "") -> int | Lease:
        self._check()
        answer = await super().acquire(key, owner=owner, seconds=seconds, note=note)
        if self.loses:
            self.loses -= 1
            await asyncio.sleep(3600)
        return answer

    async def renew(self, key: str, *, token: int, seconds: float, note: str | None = None) -> bool:
        self._check()
        return await super().renew(key, token=token, seconds=seconds, note=note)

    async def release(self, key: str, *, token: int) -> None:
        self._check()
        await super().release(key, token=token)

    def _check(self) -> None:
        if self.is_down:
            raise StateUnavailable("no state (staged)")


def lock_on(leases: OwnLeases, **options: Any) -> Lock:
    return Lock("name", leases=lambda: leases, call=asyncio.run, owner="me", monotonic=loop_time, **options)


@pytest.mark.real_time
async def test_one_holder_at_a_time_has_a_lock_and_tokens_grow(app: TaskMQ) -> None:
    inside, most, tokens = 0, 0, list[int]()

    async def holder() -> None:
        nonlocal inside, most
        async with app.lock("account:7") as lock:
            inside += 1
            most = max(most, inside)
            tokens.append(lock.token)
            await asyncio.sleep(0.002)
            inside -= 1

    await asyncio.gather(*(holder() for _ in range(10)))
    await app.aclose()
    assert most == 1
    assert tokens == sorted(set(tokens))


@pytest.mark.real_time
async def test_threads_and_coroutines_share_a_lock(app: TaskMQ) -> None:
    inside, most = 0, 0
    guard = threading.Lock()

    def step(change: int) -> None:
        nonlocal inside, most
        with guard:
            inside += change
            most = max(most, inside)

    def holder() -> None:
        with app.lock("name") as lock:
            assert lock.token
            assert not lock.is_lost
            step(1)
            time.sleep(0.01)
            step(-1)

    threads = [asyncio.to_thread(holder) for _ in range(4)]

    async def other() -> None:
        async with app.lock("name"):
            step(1)
            await asyncio.sleep(0.01)
            step(-1)

    await asyncio.gather(*threads, other(), other())
    await app.aclose()
    assert most == 1


def test_other_names_are_other_locks(app: TaskMQ) -> None:
    with app.lock("a") as first, app.lock("b", timeout=0) as second:
        assert (first.is_lost, second.is_lost) == (False, False)


def test_a_lock_timeout_names_the_holder(app: TaskMQ) -> None:
    def other() -> None:
        began = time.monotonic()
        with (
            pytest.raises(LockTimeout, match="'name' could not be acquired in time") as caught,
            app.lock("name", timeout=0.1),
        ):
            pass
        assert time.monotonic() - began > 0.09
        assert str(caught.value.owner) in str(caught.value)
        with pytest.raises(TimeoutError), app.lock("name", timeout=0):
            pass

    with app.lock("name"):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    with app.lock("name", timeout=0):
        pass


def test_taking_a_held_lock_again_in_one_task_is_refused(app: TaskMQ) -> None:
    with app.lock("name") as lock:
        with pytest.raises(InvalidOption, match="'name' is held by this task"), app.lock("name"):
            pass
        with pytest.raises(InvalidOption, match="it is held already"), lock:
            pass
    with lock:
        assert lock.token


async def test_a_lock_is_renewed_while_its_block_runs() -> None:
    leases = OwnLeases(loop_time)
    async with lock_on(leases, lease=1) as lock:
        await asyncio.sleep(2.5)
        lock.check()
        held = await leases.find("lock:name")
        assert held is not None
        assert held.token == lock.token
    assert await leases.find("lock:name") is None


async def test_a_lock_that_cannot_be_renewed_is_lost_after_its_time() -> None:
    leases = Flaky()
    loop = asyncio.get_running_loop()
    began = loop.time()
    with pytest.raises(LockLost, match="'name'") as caught:  # noqa: PT012 - the block's end raises
        async with lock_on(leases, lease=1) as lock:
            leases.is_down = True
            lock.check()
            assert await lock.wait_lost()
            assert loop.time() - began == pytest.approx(1, abs=0.1)
            assert lock.is_lost
            with pytest.raises(LockLost):
                lock.check()
            leases.is_down = False
    assert caught.value.token == 1


async def test_a_lock_survives_a_short_outage_of_the_state() -> None:
    leases = Flaky()
    async with lock_on(leases, lease=1.5) as lock:
        leases.is_down = True
        await asyncio.sleep(0.8)
        leases.is_down = False
        await asyncio.sleep(1.0)
        lock.check()


async def test_a_lock_taken_by_another_holder_is_lost_at_the_next_renewal() -> None:
    leases = OwnLeases(loop_time)
    with pytest.raises(LockLost):  # noqa: PT012 - the block's end raises
        async with lock_on(leases, lease=1) as lock:
            await leases.release("lock:name", token=lock.token)
            assert isinstance(await leases.acquire("lock:name", owner="other", seconds=60), int)
            assert await lock.wait_lost()
    held = await leases.find("lock:name")
    assert held is not None
    assert held.owner == "other"


async def test_a_watcher_of_a_lock_is_notified_when_its_block_ends() -> None:
    async with lock_on(OwnLeases(loop_time)) as lock:
        watching = asyncio.create_task(lock.wait_lost())
        await settle_loop()
    assert await watching is False


async def test_an_error_of_a_block_is_not_hidden_by_the_loss_of_its_lock() -> None:
    leases = Flaky()
    with pytest.raises(KeyError):  # noqa: PT012 - the block's end comes after
        async with lock_on(leases, lease=1) as lock:
            leases.is_down = True
            await lock.wait_lost()
            raise KeyError


async def test_a_lock_is_not_acquired_if_the_state_cannot_be_asked() -> None:
    leases = Flaky()
    leases.is_down = True
    with pytest.raises(StateUnavailable):
        async with lock_on(leases):
            raise AssertionError


async def test_a_lock_that_cannot_be_released_expires(caplog: pytest.LogCaptureFixture) -> None:
    leases = Flaky()
    async with lock_on(leases):
        leases.is_down = True
    assert "lock 'name' ends within 30 s" in caplog.text


async def test_a_cancelled_wait_leaves_no_lock_behind() -> None:
    leases = Flaky()
    leases.loses = 1

    async def wait() -> None:
        async with lock_on(leases):
            raise AssertionError

    waiting = asyncio.create_task(wait())
    await settle_loop()
    assert await leases.find("lock:name") is not None
    waiting.cancel()
    await asyncio.wait((waiting,))
    assert waiting.cancelled()
    assert await leases.find("lock:name") is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": ""}, "1 to 255 bytes"),
        ({"name": "x" * 256}, "1 to 255 bytes"),
        ({"name": "a", "lease": 0.5}, "at least a second"),
        ({"name": "a", "timeout": "soon"}, "is not a duration"),
    ],
)
def test_impossible_locks_are_refused(app: TaskMQ, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        app.lock(**options)


def test_an_app_without_a_state_has_no_locks() -> None:
    with pytest.raises(UnsupportedFeature, match="locks need a state"):
        TaskMQ("amqp://nowhere").lock("name")


def test_a_lock_shows_its_status(app: TaskMQ) -> None:
    lock = app.lock("name")
    assert repr(lock) == "<Lock name (not held)>"
    with lock:
        assert repr(lock) == f"<Lock name (held, token {lock.token})>"
    assert lock.token == 0


@pytest.mark.real_time
async def test_tasks_take_locks_through_their_context(app: TaskMQ) -> None:
    seen: list[tuple[str, int]] = []

    @app.task
    async def slow(context: Context) -> None:
        async with context.lock("account:7") as lock:
            held = await leases().find("lock:account:7")
            assert held is not None
            assert held.owner == f"job {context.job_id}"
            seen.append(("async", lock.token))

    @app.task
    def threaded(context: Context) -> None:
        with context.lock("account:7") as lock:
            seen.append(("thread", lock.token))

    def leases() -> Any:
        state = app.sessions.current().state
        assert state is not None
        return state.leases

    async def main() -> None:
        async with app:
            for job in [await slow.asend() for _ in range(3)] + [await threaded.asend() for _ in range(3)]:
                await job.aresult(timeout=20)

    worker = Worker(app, WorkerConfig(burst=False))
    running = asyncio.create_task(worker.run())
    await worker.is_ready.wait()
    await asyncio.to_thread(asyncio.run, main())
    worker.drain()
    await running
    assert sorted(kind for kind, _ in seen) == ["async"] * 3 + ["thread"] * 3
    assert len({token for _, token in seen}) == 6


def test_a_task_called_as_a_function_has_its_own_locks() -> None:
    context = Context.create_detached("task")

    with context.lock("name") as lock:
        assert lock.token
        assert not lock.is_lost


def test_a_missing_lock_store_is_refused_with_a_remedy() -> None:
    class Desk: ...

    context = Context.create_detached("task")
    context._writer = Desk()  # type: ignore[assignment]

    with pytest.raises(UnsupportedFeature, match=r"use `with app\.lock"):
        context.lock("name")


async def test_waiting_for_a_lock_polls_less_and_less_often() -> None:
    looks = 0

    class Counting(OwnLeases):
        async def acquire(self, key: str, *, owner: str, seconds: float, note: str = "") -> int | Lease:
            nonlocal looks
            looks += 1
            return Lease(owner="other", token=1, left=3600)

    with pytest.raises(LockTimeout):
        async with Lock("name", leases=Counting, call=asyncio.run, owner="me", timeout=0.6, monotonic=loop_time):
            pass
    assert looks < 15


def test_an_interrupted_wait_ends() -> None:
    leases, portal = OwnLeases(), Portal()
    asyncio.run(leases.acquire(lock_key("name"), owner="another", seconds=3600))
    calls = list[Coroutine[Any, Any, Any]]()

    def interrupt(call: Coroutine[Any, Any, Any]) -> Any:
        calls.append(call)
        if len(calls) > 1:
            return portal.call(lambda: call)
        asyncio.run_coroutine_threadsafe(call, portal.loop)
        raise KeyboardInterrupt

    async def tasks() -> int:
        return len(asyncio.all_tasks())

    with (
        pytest.raises(KeyboardInterrupt),
        Lock("name", leases=lambda: leases, call=interrupt, owner="me"),
    ):
        pytest.fail("the block has begun")

    # Only the member that counts.
    assert portal.call(tasks) == 1
    portal.stop()


def test_a_lock_acquired_during_an_interrupt_is_released() -> None:
    leases = Flaky()

    with asyncio.Runner() as runner:

        def interrupt(call: Coroutine[Any, Any, Any]) -> Any:
            runner.run(call)
            if not lock.token:
                return
            raise KeyboardInterrupt

        lock = Lock("name", leases=lambda: leases, call=interrupt, owner="me")
        with pytest.raises(KeyboardInterrupt), lock:
            pytest.fail("the block has begun")

        assert runner.run(leases.find(lock_key("name"))) is None
