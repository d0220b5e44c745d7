"""The testing kit, on separate apps."""

import asyncio
import importlib
import itertools
import threading
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from taskmq import (
    Concurrency,
    Context,
    Depends,
    EncodeError,
    Ignore,
    InvalidArguments,
    JobState,
    RateLimit,
    Reject,
    ResultTimeout,
    RetryPolicy,
    Snooze,
    TaskFailed,
    TaskMQ,
    UnsupportedFeature,
    WorkQueue,
    chain,
    chord,
)
from taskmq.testing import Harness, override
from tests.unit.app_kit import Witness

START = datetime(2026, 3, 2, 8, 0, tzinfo=UTC)


@dataclass
class Size:
    width: int
    height: int = 1


SMALL = Size(1)


class Shop:
    """An app, and a record of its tasks' runs and times."""

    def __init__(self, **options: Any) -> None:
        self.done: list[Any] = []
        # Never connected to.
        self.app = app = TaskMQ("amqp://nobody:secret@localhost:1/", **options)
        self.bench = Harness(app, start=START, timeout="50s")

        @app.task(name="note")
        def note(text: str, size: Size = SMALL) -> str:
            self.done.append((text, size))
            return text

        @app.task(name="flaky", retry=RetryPolicy(max_attempts=3, base="10m", cap="1d", jitter=False))
        async def flaky(context: Context, fails: int) -> int:
            self.done.append((context.attempt, self.bench.now - START))
            if context.attempt <= fails:
                raise ValueError(f"attempt {context.attempt} fails")
            return context.attempt

        @app.task(name="parent")
        async def parent(count: int) -> None:
            for number in range(count):
                await note.options(delay="1h").asend(f"child {number}")

        self.note, self.flaky, self.parent = note, flaky, parent


@pytest.fixture
def shop() -> Iterator[Shop]:
    made = Shop()
    with made.bench:
        yield made


def test_jobs_run_on_demand_with_their_encoded_arguments(shop: Shop) -> None:
    job = shop.note.send("a", Size(2, 3))
    assert shop.done == []
    assert job.state() is JobState.QUEUED

    shop.bench.drain()

    assert shop.done == [("a", Size(2, 3))]
    assert job.result(timeout=1) == "a"
    # Not the caller's object: it was encoded and decoded.
    shop.done.clear()
    size = Size(7)
    shop.note.send("b", size)
    size.width = 8
    shop.bench.drain()
    assert shop.done == [("b", Size(7))]


def test_workflow_steps_get_the_values_of_others_as_in_a_worker(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    @shop.app.task(name="total")
    async def total(numbers: list[int], start: int) -> int:
        return sum(numbers) + start

    header = [shop.flaky.options(delay="1h").s(0), shop.flaky.s(0)]
    with Harness(shop.app, start=START, store=True) as harness:
        run = chord(header, total.options(delay="2h").s(5)).send()
        harness.drain()

        assert run.result() == 7
        assert harness.now == START + timedelta(hours=3)
    assert not caplog.records


def test_waiting_for_a_result_that_cannot_come_ends(shop: Shop) -> None:
    with Harness(shop.app, timeout=0.05, store=True):
        job = shop.note.send("a")
        with pytest.raises(ResultTimeout, match=r"drain\(\) or advance\(\)"):
            job.result()
        with pytest.raises(ResultTimeout, match=r"drain\(\) or advance\(\)"):
            asyncio.run(_started_workflow(shop))

    assert shop.app.sessions.patience is None


async def _started_workflow(shop: Shop) -> object:
    async with shop.app:
        return await (await chain(shop.note.s("a")).asend()).aresult()


def test_a_call_refused_in_production_is_refused_in_a_test(shop: Shop) -> None:
    untyped: Any = shop.note
    for send in (lambda: untyped.send(1), untyped.send, lambda: untyped.send("a", sise=1)):
        with pytest.raises(InvalidArguments):
            send()
    with pytest.raises(EncodeError):
        untyped.send("a", object())
    assert shop.bench.sent == []


def test_retries_and_their_delays_take_no_real_time(shop: Shop) -> None:
    job = shop.flaky.send(2)

    shop.bench.drain()

    assert job.result() == 3
    assert [attempt for attempt, _ in shop.done] == [1, 2, 3]
    at = [when for _, when in shop.done]
    assert at[0] == timedelta(0)
    assert timedelta(minutes=10) <= at[1] <= timedelta(minutes=11)
    assert timedelta(minutes=29) <= at[2] <= timedelta(minutes=32)
    assert shop.bench.failed == []


def test_an_error_of_a_task_is_raised_in_the_test_with_its_traceback(shop: Shop) -> None:
    shop.flaky.send(9)

    with pytest.raises(ValueError, match=r"^attempt 3 fails$") as caught:
        shop.bench.drain()

    frames = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert frames[-1] == "flaky"
    # No frame of the worker lies between the call in the test and the task.
    assert frames[-2] == "_tell"
    (failed,) = shop.bench.failed
    assert (failed.task, failed.reason, failed.attempts, failed.error) == ("flaky", "error", 3, caught.value)
    # It is reported once.
    shop.bench.drain()


def test_errors_in_threads_are_reported_too_and_other_jobs_still_run(shop: Shop) -> None:
    @shop.app.task(name="bad", retry=None)
    def bad(number: int) -> None:
        assert threading.current_thread() is not threading.main_thread()
        raise LookupError(number)

    bad.send(1)
    bad.send(2)
    shop.note.send("after")

    with pytest.raises(LookupError) as caught:
        shop.bench.drain()

    assert sorted(failed.error.args[0] for failed in shop.bench.failed) == [1, 2]
    assert "1 more jobs are dead, see Harness.failed: bad" in caught.value.__notes__[-1]
    assert shop.done == [("after", Size(1))]


def test_a_test_may_inspect_failures_itself(shop: Shop) -> None:
    job = shop.flaky.send(9)
    shop.bench.drain(raise_errors=False)

    (failed,) = shop.bench.failed
    assert (failed.job_id, str(failed.error)) == (job.id, "attempt 3 fails")
    with pytest.raises(TaskFailed, match="attempt 3 fails"):
        job.result()


def test_a_retried_job_is_not_a_failure(shop: Shop) -> None:
    @shop.app.task(name="ignored")
    async def ignored() -> None:
        raise Ignore("not today")

    @shop.app.task(name="late", expires="1h")
    async def late() -> None:
        raise AssertionError("too late")

    ignored.send()
    late.options(delay="2h").send()
    shop.bench.drain()
    assert shop.bench.failed == []


def test_a_rejection_and_a_failure_outside_of_the_task_are_reported_too(shop: Shop) -> None:
    @shop.app.task(name="refusing")
    async def refusing() -> None:
        raise Reject("no")

    @shop.app.task(name="endless", timeout=0.05, retry=None)
    async def endless() -> None:
        await asyncio.sleep(60)

    refusing.send()
    with pytest.raises(Reject, match="no"):
        shop.bench.drain()
    endless.send()
    with pytest.raises(Exception, match=r"ran longer|0\.05") as caught:
        shop.bench.drain()
    failed = shop.bench.failed[-1]
    assert (failed.task, failed.reason, failed.error) == ("endless", "timeout", caught.value)


def test_jobs_sent_by_jobs_are_run_at_their_time(shop: Shop) -> None:
    shop.parent.send(3)

    shop.bench.advance("59m")
    assert shop.done == []
    assert len(shop.bench.sent_to("note")) == 3
    shop.bench.advance(timedelta(minutes=1))
    assert sorted(text for text, _ in shop.done) == ["child 0", "child 1", "child 2"]
    assert shop.bench.now == START + timedelta(hours=1)


def test_time_moves_only_on_request_and_only_as_far_as_work_is_left(shop: Shop) -> None:
    shop.note.options(delay="30d").send("far")
    shop.note.options(eta=START + timedelta(days=365)).send("farther")

    assert shop.bench.now == START
    shop.bench.drain()

    assert [text for text, _ in shop.done] == ["far", "farther"]
    assert shop.bench.now == START + timedelta(days=365)


def test_schedules_are_emitted_as_time_passes(shop: Shop) -> None:
    @shop.app.every("10m", name="often")
    @shop.app.task(name="tick")
    async def tick(context: Context) -> None:
        shop.done.append(context.scheduled_for)

    @shop.app.cron("0 9 * * *", tz="Europe/Paris")
    @shop.app.task(name="daily")
    async def daily() -> None:
        shop.done.append("daily")

    shop.bench.drain()
    assert shop.done == []

    shop.bench.advance("30m")
    assert shop.done == [START + timedelta(minutes=minutes) for minutes in (10, 20, 30)]
    shop.done.clear()
    shop.bench.advance("2d")
    assert shop.done.count("daily") == 2
    assert len(shop.done) == 2 + 6 * 48


def test_a_sent_call_is_found_by_its_arguments_however_they_were_passed(shop: Shop) -> None:
    shop.note.send("a", size=Size(2))
    shop.note.send(text="b")
    shop.parent.options(queue="other", delay="1h", headers={"x": 1}).send(2)

    assert [str(one).partition(" to ")[0] for one in shop.bench.sent] == [
        "note(text='a', size=Size(width=2, height=1))",
        "note(text='b', size=Size(width=1, height=1))",
        "parent(count=2)",
    ]
    shop.bench.assert_sent(shop.note, "a", Size(2))
    shop.bench.assert_sent(shop.note, text="a", size=Size(2, height=1))
    assert shop.bench.assert_sent(shop.note, "b").arguments == {"text": "b", "size": Size(1)}
    sent = shop.bench.assert_sent("parent", 2)
    assert (sent.queue, sent.eta, sent.headers) == ("other", START + timedelta(hours=1), {"x": 1})
    assert shop.bench.assert_sent(shop.note) is shop.bench.sent[1]
    shop.bench.assert_not_sent(shop.note, "c")
    shop.bench.assert_not_sent(shop.flaky)
    with pytest.raises(AssertionError, match=r"^note\('c'\) was not sent; what was:\n  note\(text='a'"):
        shop.bench.assert_sent(shop.note, "c")
    with pytest.raises(AssertionError, match=r"note\(text='a'.* was sent; what was:"):
        shop.bench.assert_not_sent(shop.note, "a", Size(2))
    with pytest.raises(AssertionError, match="the app has no task 'nope'; it has flaky, note, parent"):
        shop.bench.assert_sent("nope", 1)
    with pytest.raises(InvalidArguments):
        shop.bench.assert_sent(shop.note, 1)
    # A queue that no task uses by default is served, too.
    shop.bench.drain()
    assert len(shop.done) == 4


def test_an_empty_list_of_sent_calls_says_so(shop: Shop) -> None:
    with pytest.raises(AssertionError, match=r"^note\(\) was not sent; nothing was$"):
        shop.bench.assert_sent(shop.note)


@pytest.mark.real_time
async def test_coroutines_run_on_the_loop_of_the_test() -> None:
    shop = Shop()
    loops: list[object] = []

    @shop.app.task(name="where")
    async def where() -> None:
        loops.append(asyncio.get_running_loop())

    with shop.bench as bench:
        await where.asend()
        job = await shop.flaky.asend(1)
        waiting = asyncio.create_task(job.aresult(timeout=20))
        await asyncio.sleep(0)
        await bench.adrain()
        assert await waiting == 2
        assert loops == [asyncio.get_running_loop()]
        await shop.parent.asend(1)
        await bench.aadvance("2h")
        assert shop.done[-1] == ("child 0", Size(1))
        await shop.flaky.asend(9)
        with pytest.raises(ValueError, match="attempt 3 fails"):
            await bench.adrain()
        with pytest.raises(UnsupportedFeature, match=r"await adrain\(\) or aadvance\(\)"):
            bench.drain()
        await shop.app.aclose()


def test_results_expire_by_the_clock_of_the_app(shop: Shop) -> None:
    job = shop.note.send("a")
    shop.bench.drain()
    shop.bench.advance("23h")
    assert job.result() == "a"


def test_middleware_dependencies_and_the_executor_of_the_app_are_used() -> None:
    witness = Witness()
    shop = Shop(middleware=(witness,))

    def price() -> int:
        return 3

    @shop.app.task(name="priced")
    def priced(context: Context, count: int, *, each: int = Depends(price)) -> int:
        return count * each

    @shop.app.task(name="heavy", executor="process")
    def heavy(number: int) -> int:
        return number + 1

    with shop.bench as bench:
        jobs = [priced.send(2), heavy.send(1)]
        bench.drain()
        assert [job.result() for job in jobs] == [6, 2]
        bench.assert_sent(priced, count=2)
        with override(shop.app, price, lambda: 5):
            job = priced.send(2)
            bench.drain()
            assert job.result() == 10
    assert witness.seen == [None, None, None]


def test_tests_are_independent_and_the_app_is_restored() -> None:
    shop = Shop()
    before = dict(vars(shop.app))
    for _ in range(2):
        with Harness(shop.app, start=START, timeout="50s") as bench:
            assert bench.sent == []
            assert shop.app.sessions.url.startswith("memory://")
            shop.note.send("left")
            bench.assert_sent(shop.note, "left")
    with Harness(shop.app, timeout="50s") as bench:
        bench.drain()
        assert abs(bench.now - datetime.now(UTC)) < timedelta(minutes=1)
    assert shop.done == []
    assert {name: value for name, value in vars(shop.app).items() if name != "_settings"} == {
        name: value for name, value in before.items() if name != "_settings"
    }
    assert shop.app.sessions.url == "amqp://nobody:secret@localhost:1/"


@pytest.mark.parametrize("kind", ["hang", "snooze"])
def test_an_endless_loop_of_jobs_fails_the_test_and_not_the_run(kind: str) -> None:
    shop = Shop()

    @shop.app.task(name="endless")
    async def endless() -> None:
        if kind == "snooze":
            raise Snooze("1m")
        await asyncio.sleep(3600)

    with Harness(shop.app, timeout=0.5) as bench:
        endless.send()
        with pytest.raises(AssertionError, match=r"^after 0\.5 s of real time there is still work, at 20"):
            bench.drain()


@pytest.mark.parametrize("is_stored", [False, True], ids=["sent", "stored"])
def test_an_ordered_queue_waits_for_the_retry_of_its_first_job(is_stored: bool) -> None:
    app = TaskMQ("amqp://localhost:1/", queues=[WorkQueue("steps", ordered=2)])
    seen: list[str] = []

    @app.task(name="step", queue="steps", order_key="who", retry=RetryPolicy(base="1h"))
    async def step(context: Context, who: str, number: int) -> None:
        seen.append(f"{number}.{context.attempt}")
        if number == 1 and context.attempt == 1:
            raise ValueError

    with Harness(app, timeout="50s", store=is_stored) as bench:
        for number in (1, 2, 3):
            step.send("ann", number)
        bench.drain()
    assert seen == ["1.1", "1.2", "2.1", "3.1"]


def test_jobs_that_wait_in_the_state_are_run_too() -> None:
    shop = Shop(delay="state")
    with shop.bench as bench:
        job = shop.note.options(delay="1h").send("later")
        assert [waiting.id for waiting in shop.app.jobs.list_waiting()] == [job.id]
        bench.advance("59m")
        assert shop.done == []
        assert job.reschedule(delay="2h")
        bench.drain()
        assert bench.now - START >= timedelta(hours=2, minutes=59)
        assert shop.done == [("later", Size(1))]


@pytest.mark.parametrize("count", [1, 300])
def test_a_drain_is_cheap(shop: Shop, count: int) -> None:
    shop.note.send_many([(str(number),) for number in range(count)])
    shop.bench.drain()
    assert len(shop.done) == count


def test_tasks_of_included_modules_can_be_sent_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "included_tasks.py").write_text(
        "from taskmq import task\n\n\n@task(name='double')\ndef double(number: int) -> int:\n    return 2 * number\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    double: Any = importlib.import_module("included_tasks").double

    with Harness(TaskMQ(include=["included_tasks"]), start=START) as harness:
        job = double.send(4)
        harness.drain()
        assert job.result() == 8


def _limited_app(**options: Any) -> tuple[TaskMQ, list[tuple[int, int]]]:
    """Build an app with one task, and a record of its runs: argument and instant."""
    app, ran = TaskMQ("memory://"), list[tuple[int, int]]()

    @app.task(name="push", **options)
    def push(number: int) -> None:
        ran.append((number, app.sessions.clock.now_ms()))

    return app, ran


@pytest.mark.parametrize("lane", ["broker", "store"])
def test_a_rate_limit_uses_the_time_of_the_test(lane: str) -> None:
    app, ran = _limited_app(lane=lane, rate_limit=RateLimit("20/s", strict=True))

    with Harness(app, timeout="50s") as harness:
        app.tasks["push"].send_many([(number,) for number in range(60)])
        harness.drain()

    assert sorted(number for number, _ in ran) == list(range(60))
    starts = [instant for _, instant in ran]
    # A period of 1.05 s has 20 of them; one that waited in real time would start too early.
    assert all(53 >= late - early >= 52 for early, late in itertools.pairwise(starts))


def test_runs_still_waiting_after_an_advance_start_later_and_once() -> None:
    app, ran = _limited_app(rate_limit=RateLimit("20/s", strict=True))

    with Harness(app, timeout="50s") as harness:
        app.tasks["push"].send_many([(number,) for number in range(30)])
        for _ in range(20):
            harness.advance("70ms")
        assert 20 <= len(ran) <= 29
        harness.drain()

    assert sorted(number for number, _ in ran) == list(range(30))
    starts = sorted(instant for _, instant in ran)
    assert all(late - early > 1_000 for early, late in zip(starts, starts[20:], strict=False))


def test_a_concurrency_of_one_holds_and_takes_no_real_time() -> None:
    app = TaskMQ("memory://")
    inside, most = 0, 0

    @app.task(name="push", concurrency=Concurrency(1))
    async def push(number: int) -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await asyncio.sleep(0)
        inside -= 1

    with Harness(app, timeout="50s") as harness:
        push.send_many([(number,) for number in range(50)])
        harness.drain()

    assert (inside, most) == (0, 1)
    assert len(harness.sent) == 50
