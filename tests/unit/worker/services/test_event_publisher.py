import asyncio
import uuid
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from taskmq import Context, EventStream, Ignore, JobEvent, Reject, RetryPolicy, Snooze, TaskMQ, WorkerEvent
from taskmq.contracts.broker import BrokerOptions
from taskmq.contracts.broker_abilities import Listening
from taskmq.contracts.system_clock import SystemClock
from taskmq.durable.service import ServiceGroup
from taskmq.errors import UnsupportedFeature
from taskmq.events.stream import as_broadcasting
from taskmq.model.commands import Command, command_topic, encode_command
from taskmq.model.envelope import decode_envelope
from taskmq.model.history.redaction import Redactor
from taskmq.model.jobs.registrations import TASKS_TOLD
from taskmq.model.outcome import AlreadyDone, Dead, Outcome, Parked, Succeeded
from taskmq.model.telemetry.events import (
    LONGEST_MESSAGE,
    LONGEST_TRACEBACK,
    Event,
    FailureEvent,
    decode_batch,
    encode_batch,
)
from taskmq.worker import Worker, WorkerConfig
from taskmq.worker.attempt import Attempt
from taskmq.worker.config import LogErrors
from taskmq.worker.run.stats import WorkerStats
from taskmq.worker.services.error_words import ErrorWords
from taskmq.worker.services.event_publisher import EventPublisher
from taskmq.worker.settlement.error_text import ErrorTexts
from taskmq_local import forget_memory, open_memory_broker
from tests.coroutines import run_by
from tests.servers.waiting import until
from tests.unit.model.telemetry.test_events import STATUS
from tests.unit.worker.staged import FakeDelivery

PATIENCE = 30.0


def run(test: Callable[[TaskMQ], Coroutine[Any, Any, None]]) -> None:
    name = uuid.uuid4().hex
    app = TaskMQ(f"memory://{name}")

    async def main() -> None:
        async with asyncio.timeout(30), app:
            await test(app)

    try:
        asyncio.run(main())
    finally:
        forget_memory(name)


@asynccontextmanager
async def working(app: TaskMQ, **config: Any) -> AsyncGenerator[Worker, None]:
    worker = Worker(app, WorkerConfig(name="w", **config))
    task = asyncio.create_task(worker.run())
    await worker.is_ready.wait()
    try:
        yield worker
    finally:
        worker.drain()
        await task


async def next_of(events: EventStream, *names: str) -> list[Event]:
    """Return the next events of these names, one of each, in order of arrival."""
    wanted, found = list(names), list[Event]()
    async with asyncio.timeout(PATIENCE):
        async for event in events:
            if event.event in wanted:
                wanted.remove(event.event)
                found.append(event)
            if not wanted:
                break
    return found


@run_by(run)
async def test_a_listener_follows_a_job_from_its_start_to_its_end(app: TaskMQ, /) -> None:
    @app.task(queue="images", name="double")
    async def double(n: int) -> int:
        return 2 * n

    async with working(app), app.events() as events:
        (beat,) = await next_of(events, "beat")
        job = await double.asend(21)
        started, ended = await next_of(events, "started", "succeeded")

    assert isinstance(beat, WorkerEvent)
    assert beat.status.queues == ["images"]
    assert isinstance(started, JobEvent)
    assert isinstance(ended, JobEvent)
    assert (started.event, ended.event) == ("started", "succeeded")
    for event in (started, ended):
        assert (event.worker, event.job_id, event.task, event.queue, event.attempt) == (
            "w",
            job.id,
            "double",
            "images",
            1,
        )
    assert beat.number < started.number < ended.number
    assert started.waited is not None
    assert ended.seconds is not None
    assert events.dropped == events.missed == 0


@run_by(run)
async def test_jobs_with_events_use_the_fast_path_as_well(app: TaskMQ, /) -> None:
    @app.task(queue="q", name="short", timeout=30)
    async def short() -> None:
        # A job with an attempt has left the fast path.
        ways.append((worker.stats.current is not None, len(worker.stats.running)))

    @app.task(queue="q", name="thread")
    def thread() -> None: ...

    @app.task(queue="q", name="waits")
    async def waits() -> None:
        await asyncio.sleep(0)

    ways: list[tuple[bool, int]] = []
    async with working(app, events="on") as worker, app.events("job.#") as events:
        await short.asend()
        first = await next_of(events, "started", "succeeded")
        await thread.asend()
        second = await next_of(events, "started", "succeeded")
        await waits.asend()
        third = await next_of(events, "started", "succeeded")

    assert ways == [(True, 0)]
    for name, told in (("short", first), ("thread", second), ("waits", third)):
        assert [each.event for each in told] == ["started", "succeeded"]
        assert {each.task for each in told if isinstance(each, JobEvent)} == {name}
        assert told[0].number < told[1].number


@run_by(run)
async def test_an_event_describes_the_end_of_an_attempt_and_never_its_data(app: TaskMQ, /) -> None:
    @app.task(queue="q", name="fails", retry=RetryPolicy(max_attempts=2, base=0.01, jitter=False))
    async def fails(secret: str) -> str:
        raise ValueError(secret)

    @app.task(queue="q", name="rejects")
    async def rejects(secret: str) -> None:
        raise Reject(secret)

    @app.task(queue="q", name="snoozes")
    async def snoozes(secret: str) -> str:
        if len(naps) < 1:
            naps.append(secret)
            raise Snooze(0.01)
        return secret

    naps: list[str] = []
    bodies: list[bytes] = []
    async with working(app), app.events("job.#") as events:
        listening = await as_broadcasting(app.sessions.current().broker).listen(
            ["job.#"], lambda _, body: bodies.append(body)
        )
        await fails.asend("hunter2")
        retried, dead = await next_of(events, "retried", "dead")
        await rejects.asend("hunter2")
        (rejected,) = await next_of(events, "dead")
        await snoozes.asend("hunter2")
        (snoozed,) = await next_of(events, "snoozed")
        await next_of(events, "succeeded")
        await listening.stop()

    assert isinstance(retried, JobEvent)
    assert isinstance(dead, JobEvent)
    assert (retried.error, retried.delay, retried.attempt) == ("ValueError", 0.01, 1)
    assert (dead.error, dead.reason, dead.attempt) == ("ValueError", "error", 2)
    assert isinstance(rejected, JobEvent)
    assert rejected.reason == "rejected"
    assert isinstance(snoozed, JobEvent)
    assert (snoozed.delay, snoozed.attempt) == (0.01, 1)
    assert bodies
    assert not any(b"hunter2" in body for body in bodies)


@run_by(run)
async def test_a_worker_announces_its_start_its_drain_and_its_stop(app: TaskMQ, /) -> None:
    @app.task
    async def waits(context: Context) -> None:
        started.set()
        await goes_on.wait()

    started, goes_on = asyncio.Event(), asyncio.Event()
    observer = TaskMQ(app.sessions.url)
    async with observer, observer.events("worker.*") as events:
        worker = Worker(app, WorkerConfig(name="w"))
        task = asyncio.create_task(worker.run())
        await worker.is_ready.wait()
        await waits.asend()
        await started.wait()
        worker.drain()
        online, draining = await next_of(events, "online", "draining")
        goes_on.set()
        (offline,) = await next_of(events, "offline")
        await task

    states = [event.status.state for event in (online, draining, offline) if isinstance(event, WorkerEvent)]
    assert states == ["running", "draining", "draining"]


def test_a_message_without_a_known_task_has_an_event() -> None:
    async def test(app: TaskMQ) -> None:
        from taskmq.contracts.broker import Outgoing

        @app.task(queue="q")
        async def known() -> None: ...

        async with working(app), app.events("job.parked.q") as events:
            await next_of_ready(app)
            message = Outgoing(queue="q", body=b"no task", content_type="text/plain", job_id="a", task="t")
            await app.sessions.current().broker.publish(message, timeout=PATIENCE)
            (parked,) = await next_of(events, "parked")

        assert isinstance(parked, JobEvent)
        assert (parked.job_id, parked.task, parked.queue) == ("a", "t", "q")

    async def next_of_ready(app: TaskMQ) -> None:
        async with app.events("worker.*", "job.none") as ready:
            await next_of(ready, "beat")

    run(test)


def test_events_off_announces_only_tasks_and_events_on_announces_all() -> None:
    async def test(app: TaskMQ) -> None:
        @app.task(name="t")
        async def quick() -> None: ...

        heard: list[str] = []
        async with TaskMQ(app.sessions.url) as other:
            await as_broadcasting(other.sessions.current().broker).listen(["#"], lambda topic, _: heard.append(topic))
            async with working(app, events="off"):
                await quick.asend()
                await asyncio.wait_for(idle(app), PATIENCE)
            assert set(heard) <= {TASKS_TOLD}

            again = TaskMQ(app.sessions.url)
            again.task(name="t")(quick.function)
            async with other.events("job.succeeded.#") as events, working(again, events="on", control=False):
                await again.tasks["t"].asend()
                await next_of(events, "succeeded")

    async def idle(app: TaskMQ) -> None:
        while (await app.sessions.current().broker.stats(["default"]))[0].ready:
            await asyncio.sleep(0)

    run(test)


class _Radio:
    """A `Broadcasting` that records announcements, unless it is cut."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, bytes]] = []
        self.is_cut = False

    def announce(self, topic: str, body: bytes) -> bool:
        if not self.is_cut:
            self.messages.append((topic, body))
        return not self.is_cut

    async def listen(
        self, patterns: Collection[str], receive: Callable[[str, bytes], None], **options: Any
    ) -> Listening:
        raise NotImplementedError

    def take(self) -> list[tuple[str, list[Event], int]]:
        taken, self.messages = self.messages, []
        batches = [(topic, decode_batch(topic, body)) for topic, body in taken]
        return [(topic, list(batch.events), batch.dropped) for topic, batch in batches]


def open_stage(radio: _Radio, *, beat_seconds: float = 60) -> tuple[EventPublisher, WorkerStats]:
    stats = WorkerStats()
    publisher = EventPublisher(
        radio,
        stats,
        name="w",
        status=lambda: STATUS,
        clock=SystemClock(),
        words=ErrorWords(ErrorTexts(Redactor()), "traceback"),
        beat_seconds=beat_seconds,
    )
    return publisher, stats


def attempt_of(job: str, queue: str = "q") -> Attempt:
    app = TaskMQ("memory://unused")

    @app.task(name="t")
    async def function() -> None: ...

    body = b'{"task": "t", "id": "%s"}' % job.encode()
    return Attempt(FakeDelivery(body, queue=queue), decode_envelope(body), function, job)


def once(stats: WorkerStats, attempt: Attempt, outcome: Outcome | None = None) -> None:
    stats.start(attempt, now=1.0)
    stats.end(attempt, outcome or Succeeded(None), now=2.5)


@pytest.mark.real_time
async def test_events_are_sampled_only_while_there_is_a_listener() -> None:
    radio = _Radio()
    announcer, stats = open_stage(radio)
    once(stats, attempt_of("a"))
    assert stats.on_start is None

    announcer.watch(60)
    announcer.watch(0)
    await asyncio.sleep(0)
    async with asyncio.timeout(PATIENCE):
        while stats.on_start is not None:
            await asyncio.sleep(0)

    assert (stats.on_start, stats.on_end, stats.on_park) == (None, None, None)
    once(stats, attempt_of("b"))
    announcer.close()
    assert [topic for topic, _, _ in radio.take()] == ["worker.beat"]


@pytest.mark.real_time
async def test_events_are_sent_in_batches_of_one_topic_with_starts_before_ends() -> None:
    radio = _Radio()
    announcer, stats = open_stage(radio)
    announcer.watch()
    once(stats, attempt_of("a"))
    once(stats, attempt_of("b"))
    once(stats, attempt_of("c", queue="other.p.high"))
    stats.park(FakeDelivery(b"?", queue="q"), Parked("what is it?"))
    announcer.flush()

    batches = radio.take()
    assert [(topic, [event.number for event in events]) for topic, events, _ in batches] == [
        ("job.started.q", [1, 3]),
        ("job.started.other", [5]),
        ("job.succeeded.q", [2, 4]),
        ("job.succeeded.other", [6]),
        ("job.parked.q", [7]),
    ]
    (ended, _) = batches[2][1]
    assert isinstance(ended, JobEvent)
    assert ended.seconds == 1.5
    announcer.close()


def raise_error(text: str) -> ValueError:
    try:
        raise ValueError(text)
    except ValueError as error:
        return error


@pytest.mark.real_time
async def test_an_error_message_has_its_own_topic_and_precedes_the_event() -> None:
    radio = _Radio()
    announcer, stats = open_stage(radio)
    announcer.watch()
    once(stats, attempt_of("a", queue="images"), Dead("error", raise_error("password=hunter2 is wrong")))
    announcer.flush()

    (topic, (failure,), _), *others = [batch for batch in radio.take() if batch[0] != "worker.beat"]
    assert topic == "failure.images"
    assert isinstance(failure, FailureEvent)
    assert (failure.event, failure.job_id, failure.error) == ("dead", "a", "ValueError")
    assert failure.message == "password=[redacted] is wrong"
    assert failure.traceback.endswith("ValueError: password=[redacted] is wrong\n")
    ended = [event for _, events, _ in others for event in events if event.event == "dead"]
    assert [(event.number, type(event)) for event in ended] == [(failure.number, JobEvent)]


@pytest.mark.real_time
async def test_ten_failures_of_one_kind_have_a_message_and_all_have_their_type() -> None:
    radio = _Radio()
    announcer, stats = open_stage(radio)
    announcer.watch()
    for number in range(25):
        once(stats, attempt_of(str(number)), Dead("error", raise_error("x" * 20_000)))
    announcer.flush()

    batches = radio.take()
    failures = [event for topic, events, _ in batches if topic == "failure.q" for event in events]
    dead = [event for topic, events, _ in batches if topic == "job.dead.q" for event in events]
    assert len(failures) == 10
    assert {(len(each.message), len(each.traceback)) for each in failures if isinstance(each, FailureEvent)} == {
        (LONGEST_MESSAGE, LONGEST_TRACEBACK)
    }
    assert [event.error for event in dead if isinstance(event, JobEvent)] == ["ValueError"] * 25


@pytest.mark.parametrize(("said", "expected"), [("type", None), ("message", ("no", ""))])
def test_error_messages_can_be_kept_within_the_worker(said: LogErrors, expected: tuple[str, str] | None) -> None:
    assert ErrorWords(ErrorTexts(Redactor()), said).of("t", raise_error("no")) == expected


@pytest.mark.real_time
async def test_an_answered_duplicate_is_a_separate_kind_of_run_in_events_and_counts() -> None:
    radio = _Radio()
    publisher, stats = open_stage(radio)
    publisher.watch()
    once(stats, attempt_of("a"), AlreadyDone("application/json", b"5"))
    publisher.close()

    assert [topic for topic, _, _ in radio.take()] == ["job.started.q", "job.answered.q"]
    assert stats.counts["t", "q"].outcomes == {"answered": 1}


@pytest.mark.real_time
async def test_events_are_sent_within_a_short_time() -> None:
    radio = _Radio()
    announcer, stats = open_stage(radio)
    announcer.watch()
    once(stats, attempt_of("a"))
    assert not radio.messages

    await until(lambda: len(radio.messages) >= 2)
    announcer.close()


@pytest.mark.real_time
async def test_a_large_batch_is_split() -> None:
    radio = _Radio()
    announcer, stats = open_stage(radio)
    announcer.watch()
    attempt = attempt_of("a")
    for _ in range(1_200):
        stats.start(attempt, now=1.0)
    announcer.flush()

    assert [len(events) for _, events, _ in radio.take()] == [500, 500, 200]
    announcer.close()


@pytest.mark.real_time
async def test_events_refused_by_the_broker_are_counted_in_the_next_batch() -> None:
    radio = _Radio()
    announcer, stats = open_stage(radio)
    announcer.watch()
    radio.is_cut = True
    once(stats, attempt_of("a"))
    announcer.flush()
    radio.is_cut = False
    once(stats, attempt_of("b"))
    announcer.close()

    assert [(topic, dropped) for topic, _, dropped in radio.take()] == [
        ("job.started.q", 2),
        ("job.succeeded.q", 2),
    ]


@pytest.mark.real_time
async def test_events_beyond_the_limit_are_dropped_and_counted() -> None:
    radio = _Radio()
    announcer, stats = open_stage(radio)
    announcer.watch()
    attempt = attempt_of("a")
    for _ in range(20_003):
        stats.start(attempt, now=1.0)
    stats.end(attempt, Succeeded(None), now=1.0)
    announcer.close()

    batches = radio.take()
    assert sum(len(events) for _, events, _ in batches) == 20_000
    assert {dropped for _, _, dropped in batches} == {4}


async def test_a_worker_sends_heartbeats_while_it_runs() -> None:
    radio = _Radio()
    publisher, _ = open_stage(radio, beat_seconds=10)
    async with ServiceGroup() as services:
        await services.start(publisher, "events")
        await asyncio.sleep(25)

    topics = [topic for topic, _ in radio.messages]
    assert topics == ["worker.online", "worker.beat", "worker.beat", "worker.offline"]


@run_by(run)
async def test_an_unread_stream_keeps_the_newest_events_and_counts_the_others(app: TaskMQ, /) -> None:
    broker = as_broadcasting(app.sessions.current().broker)
    radio = _Radio()
    announcer, stats = open_stage(radio)
    announcer.watch()
    for number in range(5):
        stats.start(attempt_of(str(number)), now=1.0)
    announcer.close()

    async with app.events("job.#", buffer=2) as events:
        broker.announce("job.started.q", b"what nobody can read")
        for topic, body in radio.messages:
            broker.announce(topic, body)
        first, second = await next_of(events, "started", "started")

    assert [event.number for event in (first, second)] == [4, 5]
    assert events.missed == 3
    assert [event async for event in events] == []


@run_by(run)
async def test_a_stream_sums_the_events_dropped_by_workers_since_it_was_opened(app: TaskMQ, /) -> None:
    broker = as_broadcasting(app.sessions.current().broker)
    started = JobEvent(event="started", number=1, at=1, job_id="a", task="t", queue="q")
    gone = WorkerEvent(event="offline", number=2, at=1, status=STATUS)
    async with app.events() as events:
        for worker, dropped in (("a", 5), ("b", 0), ("a", 7), ("b", 3), ("b", 3)):
            broker.announce("job.started.q", encode_batch(worker, [started], dropped=dropped))
        await next_of(events, *["started"] * 5)
        assert events.dropped == 2 + 3

        # Another process with the name of a killed one, and one with the name of a stopped one.
        broker.announce("job.started.q", encode_batch("a", [started], dropped=1))
        broker.announce("worker.offline", encode_batch("b", [gone], dropped=4))
        broker.announce("job.started.q", encode_batch("b", [started], dropped=0))
        await next_of(events, "offline", "started", "started")
        assert events.dropped == 2 + 3 + 1 + 1


@run_by(run)
async def test_a_stream_of_worker_events_requests_no_job_events(app: TaskMQ, /) -> None:
    heard: list[str] = []
    await as_broadcasting(app.sessions.current().broker).listen(
        ["worker.command.*"], lambda topic, _: heard.append(topic)
    )

    async with app.events("worker.beat"):
        pass
    async with app.events("worker.beat", "job.dead.#"):
        pass
    as_broadcasting(app.sessions.current().broker).announce(
        command_topic("ping"), encode_command(Command(id="1", name="ping"))
    )
    await until(lambda: "worker.command.ping" in heard)

    assert heard == ["worker.command.watch", "worker.command.ping"]


@pytest.mark.real_time
async def test_a_broker_without_broadcasts_has_no_events() -> None:
    from taskmq.testing import FlakyBroker

    broker = FlakyBroker(open_memory_broker("memory://none", BrokerOptions()))
    with pytest.raises(UnsupportedFeature, match="no broadcasts"):
        async with EventStream(lambda: broker):
            pass
    await broker.aclose()


@run_by(run)
async def test_the_end_of_a_timed_out_job_says_so(app: TaskMQ, /) -> None:
    @app.task(queue="images", name="double")
    async def double(n: int) -> int:
        if n < 0:
            raise Ignore("its card number is 4711")
        return 2 * n

    async with working(app, events="on"), app.events("job.#") as events:
        await double.options(expires=datetime.now(UTC) - timedelta(seconds=1)).asend(21)
        (expired,) = await next_of(events, "cancelled")
        await double.asend(-1)
        (ignored,) = await next_of(events, "cancelled")

    assert isinstance(expired, JobEvent)
    assert isinstance(ignored, JobEvent)
    assert (expired.reason, ignored.reason) == ("expired", None)
