"""Large arguments outside the broker: sends, runs, and missing files."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from taskmq import BrokerUnavailable, InvalidOption, JobState, PartlySent, RetryPolicy, StateUnavailable, TaskMQ
from taskmq.client.large_values import LargeValues
from taskmq.model.envelope import REFERRING, BlobReference, Envelope, decode_envelope
from taskmq.operations.dead_letters import replay
from taskmq.testing import FakeClock
from taskmq.testing.broker_suite.case import peek
from taskmq.worker import Worker, WorkerConfig
from taskmq.worker.run import arguments as loading
from tests.unit.app_kit import message, new_url
from tests.unit.client.test_large_values import files

pytestmark = pytest.mark.real_time

BIG = "ä" * 50_000


class Shop:
    """An app that stores arguments above 1 KB in files and records the calls of its tasks."""

    def __init__(self, url: str, place: Path | None, **options: Any) -> None:
        at = None if place is None else f"file://{place}"
        if place is not None:
            options.setdefault("args_inline", "1K")
        self.app = TaskMQ(url, results_at=at, **options)
        self.calls: list[tuple[str, int]] = []
        self.failures = 0

        @self.app.task(name="print", retry=RetryPolicy(max_attempts=3, base=0.001, jitter=False))
        async def print_(text: str, *, copies: int = 1) -> int:
            self.calls.append((text, copies))
            if self.failures:
                self.failures -= 1
                raise ValueError("no paper")
            return len(text)

        @self.app.task(name="once", idempotency_key="order")
        async def once(text: str, order: int = 1) -> int:
            self.calls.append((text, 1))
            return len(text)

        self.print, self.once = print_, once

    async def work(self) -> None:
        await Worker(self.app, WorkerConfig(burst=True)).run()


async def envelopes(app: TaskMQ, queue: str) -> list[Envelope]:
    """Return the ready messages of a physical queue without removing them."""
    async with peek(app.sessions.current().broker, queue, limit=10) as deliveries:
        return [decode_envelope(each.body, each.content_type) for each in deliveries]


@pytest.mark.parametrize("content_type", ["json", "msgpack"])
async def test_large_arguments_go_to_a_file_and_small_ones_stay_in_the_message(
    tmp_path: Path, content_type: str
) -> None:
    url = new_url()
    shop, other = Shop(url, tmp_path, content_type=content_type), Shop(url, tmp_path, args_inline=None)

    await shop.print.asend("x" * 900)
    assert files(tmp_path) == []
    large = await shop.print.asend(BIG, copies=2)
    assert len(files(tmp_path)) == 1
    (_, sent) = await envelopes(shop.app, "default")
    assert sent.v == REFERRING
    assert sent.blob is not None
    assert (sent.args, sent.kwargs) == (Envelope(task="").args, Envelope(task="").kwargs)
    # An app without args_inline runs jobs of apps that set it.
    await other.work()
    assert other.calls == [("x" * 900, 1), (BIG, 2)]
    assert await large.aresult(5) == len(BIG)
    await shop.app.aclose()
    await other.app.aclose()


async def test_each_job_of_a_batch_has_its_own_file(tmp_path: Path) -> None:
    shop = Shop(new_url(), tmp_path)
    texts = [BIG, "small", BIG + "2"]

    await shop.print.asend_many([(text,) for text in texts])
    assert len(files(tmp_path)) == 2
    await shop.work()
    assert sorted(text for text, _ in shop.calls) == sorted(texts)
    await shop.app.aclose()


def test_synchronous_code_sends_large_arguments_too(tmp_path: Path) -> None:
    shop = Shop(new_url(), tmp_path)
    job = shop.print.send(BIG)

    assert message(shop.app).message_id == job.id
    assert len(files(tmp_path)) == 1
    shop.app.close()


@pytest.mark.parametrize("delay", ["broker", "state"])
async def test_a_waiting_job_keeps_its_arguments_for_the_same_time_again(tmp_path: Path, delay: str) -> None:
    clock = FakeClock()
    shop = Shop(new_url(), tmp_path, delay=delay, clock=clock, args_ttl="1d")

    await shop.print.options(delay="30d").asend(BIG)
    (file,) = files(tmp_path)
    end = datetime.fromtimestamp(clock.now_ms() / 1000, UTC) + timedelta(days=31)
    assert file.parent.name >= end.strftime("%Y%m%d%H")
    await shop.app.aclose()


async def test_every_attempt_and_every_derived_key_can_read_the_large_arguments(tmp_path: Path) -> None:
    shop = Shop(new_url(), tmp_path)
    shop.failures = 2

    job = await shop.print.asend(BIG)
    await shop.work()
    assert await job.aresult(5) == len(BIG)
    assert shop.calls == [(BIG, 1)] * 3
    twice = [await shop.once.asend(BIG) for _ in range(2)]
    await shop.work()
    assert [await one.aresult(5) for one in twice] == [len(BIG)] * 2
    assert len(shop.calls) == 4
    await shop.app.aclose()


async def test_resending_a_dead_job_uses_its_stored_arguments(tmp_path: Path) -> None:
    shop = Shop(new_url(), tmp_path)
    shop.failures = 3

    job = await shop.print.asend(BIG)
    await shop.work()
    assert (await job.aoutcome(5)).state is JobState.FAILED
    (letter,) = await envelopes(shop.app, "default.dlq")
    assert letter.blob is not None
    assert (await replay(shop.app.sessions.current().broker, "default", timeout=5)).replayed == 1
    await shop.work()
    assert shop.calls == [(BIG, 1)] * 4
    await shop.app.aclose()


@pytest.mark.parametrize(
    ("harm", "why"),
    [("gone", r"are no longer in file://"), ("changed", "differ from the sent ones")],
)
@pytest.mark.parametrize("task", ["print", "once"])
async def test_a_job_with_missing_or_changed_arguments_is_dead_and_says_so(
    tmp_path: Path, harm: str, why: str, task: str
) -> None:
    shop = Shop(new_url(), tmp_path)

    job = await getattr(shop, task).asend(BIG)
    (file,) = files(tmp_path)
    if harm == "gone":
        file.unlink()
    else:
        file.write_bytes(b"other")
    await shop.work()
    outcome = await job.aoutcome(5)
    assert outcome.state is JobState.FAILED
    assert outcome.error is not None
    assert "InvalidArguments" in outcome.error.type_name
    assert re.search(why, outcome.error.message)
    assert shop.calls == []
    await shop.app.aclose()


async def test_a_worker_without_the_file_store_refuses_the_job_and_names_the_setting(tmp_path: Path) -> None:
    url = new_url()
    shop, other = Shop(url, tmp_path), Shop(url, None)

    job = await shop.print.asend(BIG)
    await other.work()
    outcome = await job.aoutcome(5)
    assert outcome.state is JobState.FAILED
    assert "this worker needs the results_at= of the app that sent it" in str(outcome.error)
    assert other.calls == []
    await shop.app.aclose()
    await other.app.aclose()


async def test_only_small_arguments_are_sent_while_the_file_store_is_unreachable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    shop = Shop(new_url(), tmp_path / "file" / "below")

    with pytest.raises(BrokerUnavailable, match=r"nothing was sent: the arguments of job .* are too large"):
        await shop.print.asend(BIG)
    with pytest.raises(PartlySent) as caught:
        await shop.print.asend_many([(BIG,), ("small",)])
    assert [type(error) for error in caught.value.failures.values()] == [BrokerUnavailable]
    await shop.work()
    assert shop.calls == [("small", 1)]
    await shop.app.aclose()


async def test_a_job_is_retried_while_the_store_of_its_arguments_is_unreachable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "_PAUSES", (0.0,))
    monkeypatch.setattr(loading, "_LATER", (0.01, 0.02))
    shop = Shop(new_url(), tmp_path)
    fetches = 0
    fetch = LargeValues.fetch

    async def fetch_later(values: LargeValues, job_id: str, blob: BlobReference) -> bytes:
        nonlocal fetches
        fetches += 1
        if fetches < 4:
            raise StateUnavailable("away")
        return await fetch(values, job_id, blob)

    monkeypatch.setattr(LargeValues, "fetch", fetch_later)

    job = await shop.print.asend(BIG)
    await shop.work()
    assert await job.aresult(5) == len(BIG)
    # Two in each of the first two deliveries, except for the one that was answered.
    assert (fetches, shop.calls) == (4, [(BIG, 1)])
    await shop.app.aclose()


def test_a_size_limit_without_a_file_store_is_refused() -> None:
    app = TaskMQ(new_url(), args_inline="1K")
    with pytest.raises(InvalidOption, match=r"args_inline= needs a store for larger arguments: set results_at="):
        app.task(name="t")(lambda: None).send()
    with pytest.raises(InvalidOption, match="args_inline='much'"):
        TaskMQ(new_url(), args_inline="much")
    with pytest.raises(InvalidOption, match="args_ttl='long'"):
        TaskMQ(new_url(), args_ttl="long")
