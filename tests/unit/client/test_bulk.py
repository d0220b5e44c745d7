import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from taskmq import InvalidArguments, InvalidOption, Job, TaskMQ
from taskmq.client.bulk import Batches
from taskmq.contracts.broker import Outgoing
from taskmq.errors import PartlySent, PublishRejected
from taskmq.middleware.chain import Sending, send_chain
from taskmq.model.envelope import Envelope
from taskmq.model.topology import WorkQueue
from taskmq.testing import FakeClock
from tests.unit.app_kit import Witness, messages, new_url, stats


def message_of(sending: Sending) -> tuple[WorkQueue, Outgoing]:
    if sending.content_type == "spoilt":
        raise ValueError("spoilt")
    job_id = sending.envelope.id
    return WorkQueue(sending.queue), Outgoing(
        queue=sending.queue, body=b"", content_type=sending.content_type, job_id=job_id, task="t"
    )


def sendings(count: int, *, spoilt: int | None = None) -> Iterator[Sending]:
    for i in range(count):
        kind = "spoilt" if i == spoilt else "application/json"
        yield Sending(Envelope(id=str(i), task="t"), "even" if i % 2 == 0 else "odd", kind)


@pytest.fixture
def witness() -> Witness:
    return Witness()


@pytest.fixture
def batches(witness: Witness) -> Batches:
    return Batches(open_send=send_chain([witness]), message_of=message_of)


def test_a_chunk_has_at_most_five_hundred_calls_and_names_each_queue_once(batches: Batches) -> None:
    with batches:
        full = [batches.add(sending) for sending in sendings(500)]
        chunk = batches.take()
        assert chunk is not None
        assert batches.settle([None] * 500) == [str(i) for i in range(500)]

    # On a machine that stalls, a chunk may be full earlier.
    assert full[-1]
    queues, made = chunk
    assert queues == [WorkQueue("even"), WorkQueue("odd")]
    assert [message.queue for message in made[:4]] == ["even", "odd", "even", "odd"]
    assert len(batches) == 0


def test_a_slow_producer_of_calls_does_not_wait_for_a_full_chunk() -> None:
    with Batches(open_send=send_chain([]), message_of=message_of, linger=0.1) as batches:
        first, second = sendings(2)
        assert not batches.add(first)
        time.sleep(0.11)
        assert batches.add(second)
        batches.take()
        batches.settle([None, None])


def test_contexts_stay_open_until_the_outcome_of_their_call_is_known(batches: Batches, witness: Witness) -> None:
    with batches:
        for number, sending in enumerate(sendings(5)):
            batches.add(sending)
            if number in (1, 3):
                batches.take()
        assert witness.open == 5
        assert batches.settle([None, PublishRejected("full")]) == ["0"]
        assert witness.open == 3
        assert batches.settle([None, None]) == ["2", "3"]
        assert witness.open == 1
        with pytest.raises(PartlySent) as caught:
            batches.check()

    assert list(caught.value.failures) == [1]
    assert (caught.value.sent, caught.value.tried) == (3, 4)
    assert witness.open == 0


def test_an_invalid_message_ends_the_batch_and_open_contexts_see_the_reason(
    batches: Batches, witness: Witness
) -> None:
    def use() -> None:
        with batches:
            for sending in sendings(5, spoilt=2):
                batches.add(sending)

    with pytest.raises(ValueError, match=r"^spoilt$") as caught:
        use()

    assert witness.seen == [caught.value] * 3
    assert witness.open == 0


def test_an_error_reaches_all_unsettled_contexts_and_no_others(batches: Batches, witness: Witness) -> None:
    def use() -> None:
        with batches:
            for sending in sendings(3):
                batches.add(sending)
                batches.take()
            batches.settle([None])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        use()

    assert [type(error) for error in witness.seen] == [type(None), KeyboardInterrupt, KeyboardInterrupt]
    # A call read later would have no consumer.
    assert batches.take() is None


def test_a_missing_outcome_is_reported_as_a_bug(batches: Batches) -> None:
    with batches:
        for sending in sendings(2):
            batches.add(sending)
        batches.take()
        with pytest.raises(ValueError, match=r"zip\(\) argument 3 is shorter"):
            batches.settle([None])


def shop(url: str, **options: Any) -> TaskMQ:
    app = TaskMQ(url, **options)

    @app.task(name="sell")
    def sell(item: str, /, count: int = 1, *, gift: bool = False) -> str:
        return item

    @app.task(name="count")
    def count(number: int = 0, *, of: int = 0) -> int:
        return number

    return app


@pytest.mark.parametrize(("calls", "ids"), [(0, 0), (1, 1), (499, 499), (500, 500), (501, 501), (2500, 2500)])
def test_calls_are_sent_in_order(calls: int, ids: int) -> None:
    with shop(new_url()) as app:
        jobs = app.tasks["count"].send_many((number,) for number in range(calls))

        assert len(jobs) == ids
        if calls:
            assert [each.message_id for each in messages(app)] == [job.id for job in jobs]


def test_a_call_may_use_keyword_arguments() -> None:
    with shop(new_url()) as app:
        app.tasks["count"].send_many([{"number": 1, "of": 2}, (3,), {}, [4]])

        assert [(bytes(each.envelope.args), bytes(each.envelope.kwargs)) for each in messages(app)] == [
            (b"[]", b'{"number":1,"of":2}'),
            (b"[3]", b"{}"),
            (b"[]", b"{}"),
            (b"[4]", b"{}"),
        ]


@pytest.mark.parametrize("call", ["abc", b"abc", {"item": "hat"}, {"number": 1}, (1, 2, 3, 4)])
def test_an_invalid_call_is_refused_and_earlier_chunks_are_sent(
    call: Any,
) -> None:
    # However long this machine takes to build a chunk, five hundred calls are one.
    with shop(new_url()) as app:
        app.sessions.clock = FakeClock()
        stream = app.tasks["sell"].send_stream([("a",)] * 1000 + [call])

        with pytest.raises(InvalidArguments):
            list(stream)
        assert stats(app).ready == 1000


def test_a_batch_cannot_share_one_id() -> None:
    with shop(new_url()) as app:
        call = app.tasks["count"].options(job_id="one")
        for send in (call.send_many, call.send_stream):
            with pytest.raises(InvalidOption, match="task count: job_id names one call, not many"):
                send([(1,)])

        async def main() -> None:
            with pytest.raises(InvalidOption, match="job_id names one call"):
                await call.asend_many(asynchronous(1))
            await app.aclose()

        asyncio.run(main())


async def asynchronous(count: int) -> AsyncGenerator[tuple[int], None]:
    for number in range(count):
        await asyncio.sleep(0)
        yield (number,)


def test_an_async_iterator_may_produce_the_calls() -> None:
    app = shop(new_url())

    async def main() -> None:
        async with app:
            jobs = await app.tasks["count"].asend_many(asynchronous(1500))
            assert len({job.id for job in jobs}) == 1500
            streamed = [job async for job in app.tasks["count"].asend_stream(asynchronous(1500))]
            assert len(streamed) == 1500

    asyncio.run(main())
    assert stats(app).ready == 3000


def test_a_stream_yields_confirmed_handles_and_reads_at_most_three_chunks_ahead() -> None:
    taken = 0

    def endless() -> Generator[tuple[int], None, None]:
        nonlocal taken
        while True:
            taken += 1
            yield (taken,)

    with shop(new_url()) as app:
        stream = app.tasks["count"].send_stream(endless())
        for given, job in enumerate(stream, 1):
            assert isinstance(job, Job)
            assert taken - given <= 1500
            if given == 3500:
                break
        del stream

        # Calls in transit at the end have arrived.
        assert 3500 <= stats(app).ready <= 6000


def test_an_async_stream_ends_when_it_is_closed() -> None:
    app = shop(new_url(), middleware=(witness := Witness(),))

    async def endless() -> AsyncGenerator[dict[str, int], None]:
        number = 0
        while True:
            number += 1
            yield {"number": number}

    async def main() -> None:
        async with app:
            stream = app.tasks["count"].asend_stream(endless())
            assert isinstance(await anext(stream), Job)
            await stream.aclose()

    asyncio.run(main())
    assert witness.open == 0
    # The chunk that was yielded and those in transit.
    assert witness.seen == [None] * stats(app).ready


def test_calls_of_a_slow_producer_are_confirmed_in_the_meantime() -> None:
    made: list[int] = []
    with shop(new_url()) as app:

        def slow() -> Generator[tuple[int], None, None]:
            for number in range(8):
                made.append(number)
                yield (number,)
                time.sleep(0.06)

        stream = app.tasks["count"].send_stream(slow())
        next(stream)
        assert len(made) < 8
        assert len(list(stream)) == 7


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
@pytest.mark.parametrize("send", [lambda task, calls: task.send_stream(calls)])
def test_a_hundred_thousand_calls_need_the_memory_of_one_chunk(
    tmp_path: Path, send: Callable[[Any, Any], Iterator[Job[Any]]]
) -> None:
    with shop(f"local://{tmp_path}/queue") as app:
        task = app.tasks["count"]
        for _ in send(task, ((number,) for number in range(5_000))):
            pass
        before = resident()

        assert sum(1 for _ in send(task, ((number,) for number in range(100_000)))) == 100_000

        assert resident() - before < 25_000_000
