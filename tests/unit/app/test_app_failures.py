"""Failing sends: the error for the caller, and the view of middleware."""

import asyncio
from collections.abc import Callable, Generator, Iterator
from importlib.metadata import EntryPoint, EntryPoints

import pytest

from taskmq import (
    BrokerBlocked,
    BrokerUnavailable,
    InvalidArguments,
    PartlySent,
    PublishRejected,
    PublishUnknown,
    SendError,
    TaskMQ,
    TooLarge,
    TopologyMismatch,
    Unroutable,
)
from taskmq.client import plugins
from taskmq.contracts.broker import BrokerOptions
from taskmq.testing import FlakyBroker
from taskmq_local import forget_memory, open_memory_broker
from tests.unit.app_kit import Witness, messages

pytestmark = pytest.mark.real_time

_faults: list[Callable[[FlakyBroker], object]] = []
_opened: list[FlakyBroker] = []


def open_flaky(url: str, options: BrokerOptions) -> FlakyBroker:
    """Open `flaky://`: a memory broker with the faults that the test configured."""
    broker = FlakyBroker(open_memory_broker(f"memory://{url}", options))
    for fault in _faults:
        fault(broker)
    _opened.append(broker)
    return broker


@pytest.fixture(autouse=True)
def _patch_plugins(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Patch the installed packages: they belong to the environment, not to our code."""
    known = EntryPoints([EntryPoint("flaky", f"{__name__}:open_flaky", "taskmq.brokers")])
    monkeypatch.setattr(plugins, "entry_points", lambda *, group: known if group == "taskmq.brokers" else [])
    yield
    _faults.clear()
    _opened.clear()
    forget_memory("flaky://")


@pytest.fixture
def witness() -> Witness:
    return Witness()


@pytest.fixture
def app(witness: Witness) -> Iterator[TaskMQ]:
    with TaskMQ("flaky://", middleware=[witness], send_timeout=20) as app:
        yield app


def sell(item: str | int | None = None) -> None: ...


_ERRORS: list[SendError] = [
    Unroutable("default"),
    BrokerUnavailable("gone"),
    BrokerBlocked("alarm"),
    PublishRejected("full"),
    PublishUnknown("no confirm"),
    TooLarge(2, 1, "it"),
]


@pytest.mark.parametrize("error", _ERRORS, ids=lambda error: type(error).__name__)
def test_a_send_ends_with_the_error_of_the_broker_and_middleware_sees_it(
    app: TaskMQ, witness: Witness, error: SendError
) -> None:
    defined = app.task(sell)
    _faults.append(lambda broker: broker.fail_publishes(1, error))

    with pytest.raises(type(error)) as caught:
        defined.send()
    defined.send()

    assert caught.value is error
    assert witness.seen == [error, None]


@pytest.mark.parametrize("error", _ERRORS, ids=lambda error: type(error).__name__)
async def test_an_asend_ends_with_the_error_of_the_broker_and_middleware_sees_it(
    app: TaskMQ, witness: Witness, error: SendError
) -> None:
    defined = app.task(sell)
    _faults.append(lambda broker: broker.fail_publishes(1, error))

    async with app:
        with pytest.raises(type(error)):
            await defined.asend()
        await defined.asend()

    assert witness.seen == [error, None]


def test_the_next_send_declares_a_queue_that_could_not_be_declared_before(app: TaskMQ) -> None:
    defined = app.task(sell)
    _faults.append(lambda broker: broker.fail_calls("declare", 2, BrokerUnavailable("gone")))

    for _ in range(2):
        with pytest.raises(BrokerUnavailable):
            defined.send()
    defined.send()

    assert len(messages(app)) == 1


def test_send_many_reports_which_calls_were_not_sent(app: TaskMQ, witness: Witness) -> None:
    defined = app.task(sell)
    rejected, unknown = PublishRejected("full"), PublishUnknown("no confirm")
    _faults.extend(
        [lambda broker: broker.fail_publishes(1, rejected), lambda broker: broker.lose_confirms(1, unknown)]
    )

    with pytest.raises(PartlySent, match=r"^2 of 5 calls were not sent; number 0: full$") as caught:
        defined.send_many([(i,) for i in range(5)])

    assert caught.value.failures == {0: rejected, 1: unknown}
    assert caught.value.sent == 3
    assert witness.seen == [rejected, unknown, None, None, None]


def test_positions_span_all_chunks_and_nothing_is_sent_after_a_failure(app: TaskMQ, witness: Witness) -> None:
    defined = app.task(sell)
    taken: list[int] = []

    def calls() -> Generator[tuple[int], None, None]:
        for i in range(5000):
            taken.append(i)
            if i == 2500:
                _until_arrived(app)
                _opened[0].fail_publishes(1, PublishRejected("full"))
            if i == 3000:
                _until_arrived(app)
            yield (i,)

    with pytest.raises(PartlySent, match=r"^1 of 3000 calls were not sent; number 2500: full$") as caught:
        defined.send_many(calls())

    failed = caught.value
    assert list(failed.failures) == [2500]
    assert (failed.sent, failed.tried, len(failed.job_ids)) == (2999, 3000, 2999)
    # One more chunk was built in the meantime; it was not sent, and the middleware knows.
    assert len(taken) == 3500
    assert [each.message_id for each in messages(app)] == failed.job_ids
    assert [type(error) for error in witness.seen] == [
        *[type(None)] * 2500,
        PublishRejected,
        *[type(None)] * 499,
        *[PartlySent] * 500,
    ]


def _until_arrived(app: TaskMQ) -> None:
    """Wait until no chunk is in transit."""

    async def wait() -> None:
        chunks = [task for task in asyncio.all_tasks() if "_publish_chunk" in repr(task.get_coro())]
        await asyncio.gather(*chunks)

    app.sessions.portal("").call(wait)


async def test_asend_many_reports_which_calls_were_not_sent(app: TaskMQ, witness: Witness) -> None:
    defined = app.task(sell)
    _faults.append(lambda broker: broker.fail_publishes(1, PublishRejected("full")))

    async with app:
        with pytest.raises(PartlySent) as caught:
            await defined.asend_many([(1,), (2,)])
        assert list(caught.value.failures) == [0]


def test_an_unreachable_broker_fails_every_call_of_the_chunk(app: TaskMQ, witness: Witness) -> None:
    defined = app.task(sell)
    gone = BrokerUnavailable("gone")
    _faults.append(lambda broker: broker.fail_calls("declare", 1, gone))

    with pytest.raises(PartlySent) as caught:
        defined.send_many([(1,), (2,)])

    assert caught.value.failures == {0: gone, 1: gone}
    assert caught.value.sent == 0
    assert witness.seen == [gone, gone]


def test_middleware_sees_the_end_of_each_call_even_if_none_was_tried(app: TaskMQ, witness: Witness) -> None:
    defined = app.task(sell)
    mismatch = TopologyMismatch("another queue")
    _faults.append(lambda broker: broker.fail_calls("declare", 2, mismatch))

    async def main() -> None:
        async with app:
            await defined.asend_many([(1,), (2,)])

    with pytest.raises(TopologyMismatch):
        defined.send_many([(1,), (2,)])
    with pytest.raises(TopologyMismatch):
        asyncio.run(main())

    assert witness.seen == [mismatch] * 4
    assert witness.open == 0


def test_middleware_sees_the_end_of_calls_that_precede_an_invalid_one(app: TaskMQ, witness: Witness) -> None:
    defined = app.task(sell)

    with pytest.raises(InvalidArguments):
        defined.send_many([(1,), (2,), (3, 4)])

    assert [type(error) for error in witness.seen] == [InvalidArguments] * 2
    assert witness.open == 0


async def test_middleware_sees_the_cancellation_of_a_sender(app: TaskMQ, witness: Witness) -> None:
    defined = app.task(sell)
    _faults.append(FlakyBroker.hang_publishes)

    async with app, asyncio.timeout(30):
        one = asyncio.create_task(defined.asend(1))
        many = asyncio.create_task(defined.asend_many([(2,), (3,)]))
        while not _opened or _opened[-1].hanging < 3:
            await asyncio.sleep(0)
        for each in (one, many):
            each.cancel()
        await asyncio.wait([one, many])
        assert one.cancelled()
        assert many.cancelled()

    assert [type(error) for error in witness.seen] == [asyncio.CancelledError] * 3
    assert witness.open == 0


def test_a_call_too_large_for_the_broker_is_not_sent_and_the_others_are(app: TaskMQ) -> None:
    defined = app.task(sell)

    with pytest.raises(PartlySent) as caught:
        defined.send_many([("a",), ("x" * (17 << 20),), ("b",)])

    assert type(caught.value.failures[1]) is TooLarge
    assert [bytes(each.envelope.args) for each in messages(app)] == [b'["a"]', b'["b"]']
