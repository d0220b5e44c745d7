import asyncio
import json
from collections.abc import Callable, Coroutine, Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import fields

from taskmq import TaskMQ
from taskmq.client.delayed import WaitingJob, due_instant, reschedule, to_outgoing, to_waiting
from taskmq.contracts.broker import BrokerOptions, Outgoing
from taskmq.contracts.stores import DelayStore, WaitingMessage
from taskmq.errors import InvalidOption, JobCancelled, ResultTimeout, UnsupportedFeature
from taskmq.model.envelope import decode_envelope
from taskmq.model.states import Cancellation, JobState
from taskmq.model.units import LAST_INSTANT, Duration
from taskmq.testing import FakeClock
from taskmq.testing.broker_suite.case import peek
from taskmq_local import forget_memory, open_memory_state

_NOW = 1_700_000_000_000


@pytest.fixture
def url() -> Iterator[str]:
    name = str(uuid4())
    yield f"memory://{name}"
    forget_memory(name)


def shop(url: str, **options: Any) -> TaskMQ:
    app = TaskMQ(url, delay="state", clock=FakeClock(_NOW), **options)

    @app.task(name="resize", queue="images")
    async def resize(number: int) -> None: ...

    @app.task(name="silent", queue="images", result=False)
    async def silent(number: int) -> None: ...

    @app.task(name="urgent", queue="urgent", priority=9)
    async def urgent(number: int) -> None: ...

    return app


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def run_with_timeout() -> None:
        async with asyncio.timeout(30):
            await main()

    asyncio.run(run_with_timeout())


def test_a_waiting_message_has_every_field_of_a_message() -> None:
    assert {field.name for field in fields(Outgoing)} == set(WaitingMessage.__struct_fields__)


@given(
    st.builds(
        Outgoing,
        due=st.integers(0, LAST_INSTANT),
        headers=st.dictionaries(st.text(), st.text() | st.integers(-(2**63), 2**63 - 1)),
    )
)
def test_a_message_survives_its_wait(message: Outgoing) -> None:
    assert message.due is not None

    waiting = to_waiting(message, due=message.due)

    assert waiting.due == message.due
    assert to_outgoing(waiting) == Outgoing(
        **{field.name: getattr(message, field.name) for field in fields(Outgoing) if field.name != "due"}
    )


@pytest.mark.parametrize(
    ("delay", "eta", "due"),
    [
        ("5m", None, _NOW + 300_000),
        (0, None, _NOW),
        (timedelta(microseconds=1), None, _NOW + 1),
        ("1000000w", None, LAST_INSTANT),
        (None, datetime(2030, 1, 1, tzinfo=UTC), 1_893_456_000_000),
        (None, datetime(2030, 1, 1, tzinfo=timezone(timedelta(hours=1))), 1_893_452_400_000),
        (None, datetime(1960, 1, 1, tzinfo=UTC), 0),
    ],
)
def test_a_time_is_a_delay_from_now_or_an_instant(delay: Duration | None, eta: datetime | None, due: int) -> None:
    assert due_instant(delay=delay, eta=eta, now=_NOW) == due


@pytest.mark.parametrize(
    ("delay", "eta", "words"),
    [
        (None, None, "either delay or eta"),
        ("5m", datetime(2030, 1, 1, tzinfo=UTC), "either delay or eta"),
        (None, datetime(2030, 1, 1), "give a datetime with a time zone"),  # noqa: DTZ001 - that is what is refused
        (-1, None, "delay=-1 is not a duration"),
    ],
)
def test_an_ambiguous_time_is_refused(delay: Duration | None, eta: datetime | None, words: str) -> None:
    with pytest.raises(InvalidOption, match=words):
        due_instant(delay=delay, eta=eta, now=_NOW)


def test_delayed_jobs_wait_in_the_state_and_others_go_to_the_broker(url: str) -> None:
    app = shop(url)

    with app:
        app.tasks["resize"].options(delay="1h", job_id="late").send(1)
        app.tasks["resize"].options(job_id="now").send(2)
        app.tasks["urgent"].options(delay="30m", job_id="urgent").send(3)
        app.tasks["resize"].options(eta=datetime(2020, 1, 1, tzinfo=UTC), job_id="past").send(4)
        waiting = app.jobs.list_waiting()

    assert waiting == [
        WaitingJob("urgent", "urgent", "urgent", _instant(1800), _instant(0)),
        WaitingJob("late", "resize", "images", _instant(3600), _instant(0)),
    ]
    assert _ready(app, "images") == ["now", "past"]


def test_delayed_jobs_of_a_batch_wait_in_the_state_too(url: str) -> None:
    app = shop(url)

    with app:
        jobs = app.tasks["resize"].options(delay="1h").send_many([(number,) for number in range(1_500)])
        assert {job.id for job in app.jobs.list_waiting(limit=2_000)} == {job.id for job in jobs}

    assert _ready(app, "images") == []


def test_waiting_jobs_are_listed_by_task_queue_and_number(url: str) -> None:
    app = shop(url)

    with app:
        for number, name in enumerate(("resize", "urgent", "resize", "silent")):
            app.tasks[name].options(delay=60 + number, job_id=f"{number}").send(number)

        def list_waiting(**options: Any) -> list[str]:
            return [job.id for job in app.jobs.list_waiting(**options)]

        assert list_waiting() == ["0", "1", "2", "3"]
        assert list_waiting(limit=2) == ["0", "1"]
        assert list_waiting(task="resize") == ["0", "2"]
        # Listed by its public name, though the job is in the queue of its priority class.
        assert list_waiting(queue="urgent") == ["1"]
        assert list_waiting(queue="images", task="silent") == ["3"]
        assert list_waiting(queue="empty") == []
        with pytest.raises(InvalidOption, match=r"queue name 'images.dlq'"):
            list_waiting(queue="images.dlq")


def test_a_cancelled_job_is_removed_and_its_waiters_are_notified(url: str) -> None:
    app = shop(url)

    with app:
        job = app.tasks["resize"].options(delay="1h").send(1)

        assert app.job(job.id).state() is JobState.SCHEDULED
        assert job.cancel() is Cancellation.CANCELLED
        assert job.cancel() is Cancellation.ENDED

        assert app.jobs.list_waiting() == []
        assert job.state() is JobState.CANCELLED
        with pytest.raises(JobCancelled, match="cancelled by its sender"):
            job.result(timeout=10)


def test_a_cancelled_job_of_a_task_without_results_leaves_no_result(url: str) -> None:
    app = shop(url)

    with app:
        job = app.tasks["silent"].options(delay="1h").send(1)

        assert job.cancel()
        with pytest.raises(ResultTimeout):
            app.job(job.id).result(timeout=0)


def test_a_job_outside_the_state_cannot_be_rescheduled(url: str) -> None:
    app = shop(url)

    with app:
        job = app.tasks["resize"].send(1)

        for handle in (job, app.job("unknown")):
            assert not handle.reschedule(delay=1)

    assert _ready(app, "images") == [job.id]


def test_a_rescheduled_job_runs_at_its_new_time_with_its_own_body(url: str) -> None:
    app = shop(url)

    with app:
        job = app.tasks["resize"].options(delay="1h", job_id="a", meta={"by": "me"}).send(1)
        other = app.tasks["resize"].options(delay="2h", job_id="b").send(2)

        assert job.reschedule(delay="3h")
        assert other.reschedule(eta=_instant(60))

        assert [(job.id, job.due) for job in app.jobs.list_waiting()] == [
            ("b", _instant(60)),
            ("a", _instant(10_800)),
        ]
        with pytest.raises(InvalidOption, match="either delay or eta"):
            job.reschedule()

    async def look() -> None:
        async with app:
            message = await _delays(app).find("a")
            assert message is not None
            envelope = decode_envelope(message.body, message.content_type)
            assert envelope.eta == message.due == _NOW + 10_800_000
            assert json.loads(message.body)["meta"] == {"by": "me"}

    run(look)


def test_a_job_replaced_during_its_rescheduling_keeps_the_replacement(url: str) -> None:
    class Interfering:
        """A store in which another caller replaces the job once, between the read and the change."""

        def __init__(self, inner: DelayStore) -> None:
            self.inner = inner
            self.left = 1

        def __getattr__(self, name: str) -> Any:
            return getattr(self.inner, name)

        async def find(self, job_id: str) -> WaitingMessage | None:
            found = await self.inner.find(job_id)
            if self.left:
                self.left -= 1
                await self.inner.put(_message(b'{"task": "t", "attempt": 2}'))
            return found

    async def main() -> None:
        state = open_memory_state(url, BrokerOptions())
        await state.delays.put(_message(b'{"task": "t"}'))

        assert await reschedule(Interfering(state.delays), "job", due=_NOW + 5)

        found = await state.delays.find("job")
        assert found is not None
        assert found.due == _NOW + 5
        assert json.loads(found.body) == {"task": "t", "attempt": 2, "eta": _NOW + 5}
        taken = await state.delays.take(now=_NOW + 5, limit=1, lease=60)
        assert not await reschedule(state.delays, "job", due=_NOW + 9)
        await state.delays.mark_done(taken)
        assert not await reschedule(state.delays, "job", due=_NOW + 9)

    run(main)


def test_the_delay_option_is_broker_or_state() -> None:
    with pytest.raises(InvalidOption, match="delay='redis': must be 'broker' or 'state'"):
        TaskMQ("memory://", delay="redis")  # type: ignore[arg-type]


@pytest.mark.parametrize("delay", ["broker", "state"])
def test_delays_in_the_state_need_a_state(delay: Any) -> None:
    app = TaskMQ("amqp://localhost", delay=delay)

    @app.task
    async def task() -> None: ...

    with pytest.raises(UnsupportedFeature, match="needs a state"):
        app.job("a").cancel()
    calls: list[Callable[[], object]] = [app.jobs.list_waiting]
    if delay == "state":
        calls.append(task.send)
    for call in calls:
        with pytest.raises(UnsupportedFeature, match="delay='state' needs a state"):
            call()


def _instant(seconds: float) -> datetime:
    return datetime.fromtimestamp(_NOW / 1000 + seconds, UTC)


def _message(body: bytes) -> WaitingMessage:
    return WaitingMessage(job_id="job", task="t", queue="q", due=_NOW, body=body, content_type="application/json")


def _delays(app: TaskMQ) -> DelayStore:
    delays = app.sessions.current().delays
    assert delays is not None
    return delays


def _ready(app: TaskMQ, queue: str) -> list[str | None]:
    found: list[str | None] = []

    async def look() -> None:
        async with app, peek(app.sessions.current().broker, queue, limit=100) as deliveries:
            found.extend(delivery.message_id for delivery in deliveries)

    run(look)
    return found
