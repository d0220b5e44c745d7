import asyncio
import logging
import threading
import uuid
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Generator, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from taskmq import TaskMQ
from taskmq.contracts.broker import Broker
from taskmq.contracts.broker_abilities import Listening
from taskmq.durable.service import ServiceGroup
from taskmq.errors import AccessDenied, BrokerUnavailable, UnsupportedFeature
from taskmq.events.control import command_workers, reach_broker
from taskmq.events.stream import as_broadcasting
from taskmq.model.commands import Command, CommandAnswer, Preemption, command_topic, encode_command
from taskmq.model.telemetry.worker_status import WorkerStatus
from taskmq.testing import FlakyBroker
from taskmq.worker import Worker, WorkerConfig
from taskmq.worker.host.stacks import stacks
from taskmq.worker.services.commands import CommandService
from taskmq_local import forget_memory
from tests.coroutines import run_by
from tests.unit.model.telemetry.test_events import STATUS

PATIENCE = 30.0


def run(test: Callable[[TaskMQ], Coroutine[Any, Any, None]]) -> None:
    name = uuid.uuid4().hex
    operator = TaskMQ(f"memory://{name}")

    async def main() -> None:
        async with asyncio.timeout(30), operator:
            await test(operator)

    try:
        asyncio.run(main())
    finally:
        forget_memory(name)


def shop(url: str) -> TaskMQ:
    app = TaskMQ(url)

    @app.task(queue="images")
    async def quick() -> None: ...

    @app.task(queue="images", name="long")
    async def long() -> None:
        await asyncio.get_running_loop().create_future()

    return app


@asynccontextmanager
async def working(operator: TaskMQ, name: str, **config: Any) -> AsyncGenerator[Worker, None]:
    worker = Worker(shop(operator.sessions.url), WorkerConfig(name=name, **config))
    task = asyncio.create_task(worker.run())
    await worker.is_ready.wait()
    try:
        yield worker
        worker.drain()
    finally:
        await task


async def tell(operator: TaskMQ, name: str, *to: str, within: float = PATIENCE, **facts: Any) -> list[CommandAnswer]:
    command = Command(id="", name=name, to=to or ("*",), **facts)
    return list(await command_workers(operator.sessions.current().broker, command, within=within))


async def tell_all(operator: TaskMQ, name: str, count: int, *, to: str = "*") -> list[CommandAnswer]:
    """Collect all answers: waiting for all takes a second, which is too short on a busy machine."""
    async with asyncio.timeout(PATIENCE):
        while len(answers := await tell(operator, name, to, within=0.2)) < count:
            pass
    return answers


@run_by(run)
async def test_every_worker_answers_a_ping_with_its_status(operator: TaskMQ, /) -> None:
    async with working(operator, "a", concurrency=3), working(operator, "b"):
        answers = await tell_all(operator, "ping", 2)

    assert [(answer.worker, answer.verdict) for answer in answers] == [("a", "done"), ("b", "done")]
    status = answers[0].status
    assert (status.name, status.queues, status.state, status.slots) == ("a", ["images"], "running", 3)


@run_by(run)
async def test_only_the_named_worker_drains(operator: TaskMQ, /) -> None:
    async with working(operator, "a") as one, working(operator, "b") as other:
        (answer,) = await tell(operator, "drain", "b")

        assert (answer.worker, answer.status.state) == ("b", "draining")
        assert other.is_dismissed
        assert not one.is_dismissed
        assert one.status().state == "running"


@run_by(run)
async def test_a_drain_has_a_deadline_after_which_runs_are_requeued(operator: TaskMQ, /) -> None:
    async with working(operator, "a", grace=3600) as worker:
        await shop(operator.sessions.url).tasks.by_name["long"].asend()
        while not worker.status().running:
            await asyncio.sleep(0)
        (refused,) = await tell(operator, "drain", "a", seconds=-1.0)
        (answer,) = await tell(operator, "drain", "a", seconds=0.2)
        # A draining worker keeps its grace period.
        (again,) = await tell(operator, "drain", "a", seconds=60.0)

    assert (refused.verdict, refused.detail) == ("refused", "seconds: 0 or more")
    said = "1 running: after 0.2 s what still runs goes back to its queue"
    assert [(each.verdict, each.detail) for each in (answer, again)] == [("done", said)] * 2
    assert worker.stats.counts["long", "images"].outcomes == {"interrupted": 1}


@run_by(run)
async def test_a_command_to_a_host_reaches_only_its_workers(operator: TaskMQ, /) -> None:
    async with working(operator, "a") as worker:
        host = worker.status().host
        (answer,) = await tell_all(operator, "ping", 1, to=f"@{host}")
        assert answer.worker == "a"
        assert await tell(operator, "ping", "@elsewhere", within=0.1) == []


@run_by(run)
async def test_concurrency_can_be_changed_and_below_1_is_refused_with_a_message(operator: TaskMQ, /) -> None:
    async with working(operator, "a", concurrency=2) as worker:
        (changed,) = await tell(operator, "concurrency", "a", number=5)
        (refused,) = await tell(operator, "concurrency", "a", number=0)

        assert (changed.verdict, changed.detail, changed.status.slots) == ("done", "2 -> 5", 5)
        assert refused.verdict == "refused"
        assert "at least 1" in refused.detail
        assert worker.status().slots == 5


@run_by(run)
async def test_a_paused_worker_says_so_and_a_draining_one_cannot_be_paused(operator: TaskMQ, /) -> None:
    async with working(operator, "a") as worker:
        (paused,) = await tell(operator, "pause", "a")
        (resumed,) = await tell(operator, "resume", "a")
        await shop(operator.sessions.url).tasks.by_name["long"].asend()
        while not worker.status().running:
            await asyncio.sleep(0)
        await tell(operator, "drain", "a", seconds=0.2)
        (refused,) = await tell(operator, "pause", "a")

    assert [(each.verdict, each.status.state) for each in (paused, resumed)] == [
        ("done", "paused"),
        ("done", "running"),
    ]
    assert (refused.verdict, refused.detail) == (
        "refused",
        "a worker that is draining cannot be paused or resumed",
    )


@pytest.mark.parametrize(("before", "after"), [("error", "debug"), ("debug", "critical"), ("critical", "error")])
@run_by(run)
async def test_the_change_of_a_log_level_is_logged_whatever_the_levels_are(
    operator: TaskMQ, /, before: str, after: str, caplog: pytest.LogCaptureFixture
) -> None:
    root = logging.getLogger()
    level = root.level
    try:
        root.setLevel(before.upper())
        async with working(operator, "a"):
            await tell(operator, "log_level", "a", level=after)
    finally:
        root.setLevel(level)

    assert f"log level changed from {before} to {after} on operator command" in caplog.messages


@run_by(run)
async def test_the_log_level_can_be_changed_and_an_unknown_one_is_refused(operator: TaskMQ, /) -> None:
    root = logging.getLogger()
    before = root.level
    try:
        root.setLevel(logging.INFO)
        async with working(operator, "a"):
            (changed,) = await tell(operator, "log_level", "a", level="debug")
            assert root.level == logging.DEBUG
            (refused,) = await tell(operator, "log_level", "a", level="loud")

        assert (changed.verdict, changed.detail) == ("done", "info -> debug")
        assert (refused.verdict, root.level) == ("refused", logging.DEBUG)
        assert "unknown level 'loud'" in refused.detail
    finally:
        root.setLevel(before)


@run_by(run)
async def test_a_command_of_a_later_version_is_answered_as_unknown(operator: TaskMQ, /) -> None:
    async with working(operator, "a"):
        (answer,) = await tell(operator, "dance", "a")

    assert answer.verdict == "unknown"
    assert "'dance'" in answer.detail


@run_by(run)
async def test_a_worker_without_commands_still_publishes_events(operator: TaskMQ, /) -> None:
    async with working(operator, "deaf", control=False) as worker:
        assert await tell(operator, "ping", within=0.2) == []
        await tell(operator, "drain", within=0.1)
        assert not worker.is_dismissed
        async with asyncio.timeout(PATIENCE), operator.events() as events:
            assert (await anext(events)).worker == "deaf"


def test_a_worker_without_control_and_events_consumes_neither() -> None:
    control = CommandService(_Refusing(), _Worker(), watch=None, obeys=False)

    assert control.topics == []


def test_an_invalid_command_is_ignored(caplog: pytest.LogCaptureFixture) -> None:
    async def test(operator: TaskMQ) -> None:
        broker = as_broadcasting(operator.sessions.current().broker)
        async with working(operator, "a"):
            broker.announce(command_topic("drain"), b"{}")
            broker.announce(command_topic("watch"), b'{"id": "1", "name": "watch", "seconds": -1}')
            broker.announce(command_topic("watch"), b'{"id": "1", "name": "watch"}')
            (answer,) = await tell(operator, "ping", "a")
            assert answer.status.state == "running"

    run(test)
    assert "not a command" in caplog.text


@run_by(run)
async def test_watching_and_revoking_need_a_subject(operator: TaskMQ, /) -> None:
    async with working(operator, "a", events="off"):
        (no_events,) = await tell(operator, "watch", "a", seconds=1.0)
        (no_job,) = await tell(operator, "revoke", "a")
        (revoked,) = await tell(operator, "revoke", "a", job_id="job-1")

    assert (no_events.verdict, no_job.verdict, revoked.verdict) == ("refused", "refused", "done")


class _Worker:
    name = "w"

    def __init__(self) -> None:
        self.said: list[object] = []

    def status(self) -> WorkerStatus:
        return STATUS

    def dismiss(self, grace: float | None = None) -> float:
        raise RuntimeError("a bug")

    def set_concurrency(self, concurrency: int) -> None:
        self.said.append(concurrency)

    def set_paused(self, *, is_paused: bool) -> None:
        self.said.append(is_paused)

    def on_revoked(self, job_id: str, reason: str) -> None:
        self.said.append((job_id, reason))

    def preempt(self, jobs: Sequence[Preemption]) -> None:
        self.said.append(jobs)

    def look_at_pauses(self) -> None:
        self.said.append("pauses")

    def tell_tasks(self) -> None:
        self.said.append("tasks")


class _Refusing:
    """A `Broadcasting` that refuses all listeners at first."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.announced: list[tuple[str, bytes]] = []
        self.is_heard = asyncio.Event()

    def announce(self, topic: str, body: bytes) -> bool:
        self.announced.append((topic, body))
        return True

    async def listen(
        self, patterns: Collection[str], receive: Callable[[str, bytes], None], **options: Any
    ) -> Listening:
        if self.errors:
            raise self.errors.pop(0)
        self.is_heard.set()
        return self

    async def stop(self) -> None:
        self.is_heard.clear()


def test_revoked_jobs_are_passed_to_the_worker() -> None:
    worker = _Worker()
    CommandService(_Refusing(), worker, watch=None, obeys=True).receive(
        "worker.command.revoke", b'{"id": "1", "name": "revoke", "job_id": "j", "reason": "not needed"}'
    )

    assert worker.said == [("j", "not needed")]


def test_a_failing_command_is_refused_and_the_next_one_is_executed(caplog: pytest.LogCaptureFixture) -> None:
    radio = _Refusing()
    control = CommandService(radio, _Worker(), watch=None, obeys=True)

    control.receive("t", b'{"id": "1", "name": "drain", "reply": "r"}')
    control.receive("t", b'{"id": "2", "name": "ping", "reply": "r"}')

    assert [b'"refused"' in radio.announced[0][1], b'"done"' in radio.announced[1][1]] == [True, True]
    assert "a bug" in caplog.text


@pytest.mark.real_time
async def test_a_worker_that_cannot_consume_commands_logs_it_once_and_retries(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        radio = _Refusing(AccessDenied("not you"), AccessDenied("not you"))
        async with ServiceGroup() as services:
            control = CommandService(radio, _Worker(), watch=None, obeys=True, pause=0.001)
            await services.start(control, "commands")
            await asyncio.wait_for(radio.is_heard.wait(), PATIENCE)
        assert not radio.is_heard.is_set()

    assert caplog.text.count("not you") == 1


@run_by(run)
async def test_a_broker_without_broadcasts_accepts_no_commands(operator: TaskMQ, /) -> None:
    with pytest.raises(UnsupportedFeature, match="no broadcasts"):
        await command_workers(FlakyBroker(operator.sessions.current().broker), Command(id="", name="ping"))


def test_stacks_show_the_position_of_threads_and_coroutines_and_no_values() -> None:
    async def inner(secret: str) -> str:
        await waiting.wait()
        return secret

    async def outer() -> None:
        await inner("hunter2")

    def block(secret: str) -> str:
        leave.wait(PATIENCE)
        return secret

    async def main() -> str:
        task = asyncio.create_task(outer(), name="the job")
        await asyncio.sleep(0)
        try:
            return stacks(limit=100_000)
        finally:
            task.cancel()

    waiting, leave = asyncio.Event(), threading.Event()
    thread = threading.Thread(target=block, args=("hunter2",), name="the thread")
    thread.start()
    try:
        text = asyncio.run(main())
    finally:
        leave.set()
        thread.join()

    task = text.partition("task the job\n")[2].partition("\n\n")[0]
    assert task.index(".inner") < task.index(".outer")
    assert ".block" in text.partition("thread the thread\n")[2].partition("\n\n")[0]
    assert "hunter2" not in text


def test_stacks_follow_a_manually_driven_coroutine() -> None:
    class ByHand:
        def __await__(self) -> Generator[Any, Any, None]:
            piece = waits()
            yield piece.send(None)
            piece.close()

    async def waits() -> None:
        await asyncio.get_running_loop().create_future()

    async def drives() -> None:
        await ByHand()

    async def main() -> str:
        task = asyncio.create_task(drives(), name="the job")
        await asyncio.sleep(0)
        text = stacks(limit=100_000)
        task.cancel()
        return text

    task = asyncio.run(main()).partition("task the job\n")[2].partition("\n\n")[0]

    assert task.index(".waits") < task.index(".__await__") < task.index(".drives")


def test_long_stacks_are_truncated() -> None:
    def deep(levels: int) -> str:
        return deep(levels - 1) if levels else asyncio.run(main())

    async def main() -> str:
        return stacks(limit=500)

    text = deep(80)

    assert len(text) < 600
    assert "more characters" in text


@pytest.mark.parametrize(("is_unanswered", "waits"), [(False, [2.0]), (True, [2.0, 8.0])])
async def test_only_a_broker_that_has_not_answered_yet_gets_more_time(
    is_unanswered: bool, waits: list[float]
) -> None:
    asked: list[float] = []

    class _Silent:
        async def connect(self, *, timeout: float) -> None:
            asked.append(timeout)
            error = BrokerUnavailable("no connection")
            error.is_unanswered = is_unanswered
            raise error

    with pytest.raises(BrokerUnavailable):
        await reach_broker(cast("Broker", _Silent()))
    assert asked == waits


def test_a_worker_returns_jobs_on_request() -> None:
    worker, jobs = _Worker(), (Preemption(job="j", token=7, reason="preempted by pool acme", grace=30.0),)
    command = encode_command(Command(id="1", name="preempt", jobs=jobs))
    CommandService(_Refusing(), worker, watch=None, obeys=True).receive("worker.command.preempt", command)

    assert worker.said == [jobs]


def test_a_worker_lists_its_tasks_on_request() -> None:
    worker = _Worker()
    CommandService(_Refusing(), worker, watch=None, obeys=True).receive(
        "worker.command.tasks", b'{"id": "1", "name": "tasks"}'
    )

    assert worker.said == ["tasks"]
