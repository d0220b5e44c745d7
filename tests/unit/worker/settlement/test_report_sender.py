"""Reports of one queue are sent one message after the other."""

import asyncio
import uuid
from collections.abc import Callable, Coroutine
from typing import Any, Final, cast

from taskmq.contracts.broker import BrokerOptions
from taskmq.errors import TooLarge
from taskmq.model.envelope import Envelope, Invitation
from taskmq.model.history.journals import SaveRequest
from taskmq.model.jobs.reports import Report, ReportKind, decode_reports
from taskmq.model.topology import ReportQueue
from taskmq.testing import FlakyBroker, Published
from taskmq.worker.attempt import Attempt
from taskmq.worker.settlement.reports import ReportSender
from taskmq_local import forget_memory, open_memory_broker
from tests.coroutines import run_by
from tests.unit.worker.staged import FakeDelivery
from tests.virtual_time import run

_QUEUES = ("reports", "others")
_STARTED_AFTER: Final = 0.25


def _play(test: Callable[[ReportSender, FlakyBroker], Coroutine[Any, Any, None]]) -> None:
    name = uuid.uuid4().hex

    async def main() -> None:
        broker = FlakyBroker(open_memory_broker(f"memory://{name}", BrokerOptions()))
        await broker.connect(timeout=1)
        await broker.declare_reports([ReportQueue(queue) for queue in _QUEUES])
        sender = ReportSender(broker, worker="w", timeout=5, stopping=asyncio.Event())
        try:
            await test(sender, broker)
        finally:
            await broker.aclose()

    try:
        run(main())
    finally:
        forget_memory(name)


def _send(
    sender: ReportSender, job: str, queue: str = "reports", *, kind: ReportKind = "succeeded"
) -> "asyncio.Task[bool]":
    invitation = Invitation(id=job, token=1, reports=queue)
    return asyncio.create_task(sender.send(invitation, Report(id=job, token=1, kind=kind)))


def _tell(sender: ReportSender, job: str) -> FakeDelivery:
    delivery = FakeDelivery(b"")
    invitation = Invitation(id=job, token=1, reports="reports")
    sender.tell(invitation, Report(id=job, token=1, kind="succeeded"), delivery)
    return delivery


def _sent_jobs(broker: FlakyBroker) -> list[list[str]]:
    """Return the jobs of each message in order."""
    bodies = [entry.message.body for entry in broker.journal if isinstance(entry, Published)]
    return [[report.id for report in decode_reports(body)] for body in bodies]


@run_by(_play)
async def test_reports_within_two_ms_share_a_message(sender: ReportSender, broker: FlakyBroker, /) -> None:
    sent = [_send(sender, job) for job in "abc"]

    assert await asyncio.gather(*sent) == [True] * 3
    assert _sent_jobs(broker) == [["a", "b", "c"]]


@run_by(_play)
async def test_a_report_that_a_run_waits_for_is_sent_at_once(sender: ReportSender, broker: FlakyBroker, /) -> None:
    now = asyncio.get_running_loop().time
    began = now()

    await sender.send(
        Invitation(id="a", token=1, reports="reports"), Report(id="a", token=1, kind="succeeded"), is_awaited=True
    )

    assert now() - began < 0.001
    assert _sent_jobs(broker) == [["a"]]


@run_by(_play)
async def test_reports_during_a_publish_go_into_the_next_message(
    sender: ReportSender, broker: FlakyBroker, /
) -> None:
    broker.hang_publishes()
    sent = [_send(sender, "a")]
    await asyncio.sleep(0.01)
    for job in "bcd":
        sent.append(_send(sender, job))
        await asyncio.sleep(0.01)
    assert broker.hanging == 1

    broker.release_publishes()

    assert await asyncio.gather(*sent) == [True] * 4
    assert _sent_jobs(broker) == [["a"], ["b", "c", "d"]]


@run_by(_play)
async def test_the_start_of_a_run_is_reported_before_an_end_at_the_same_instant(
    sender: ReportSender, broker: FlakyBroker, /
) -> None:
    attempt = Attempt(FakeDelivery(b""), Envelope(task="job"), cast("Any", None), "a")
    invitation = Invitation(id="a", token=1, reports="reports")

    def end() -> None:
        sender.run_ends(attempt)
        _tell(sender, "a")

    sender.run_begins(attempt, invitation)
    asyncio.get_running_loop().call_later(_STARTED_AFTER, end)
    await asyncio.sleep(2 * _STARTED_AFTER)

    bodies = [entry.message.body for entry in broker.journal if isinstance(entry, Published)]
    assert [report.kind for body in bodies for report in decode_reports(body)] == ["started", "succeeded"]


@run_by(_play)
async def test_a_queue_does_not_wait_for_the_message_of_another_one(
    sender: ReportSender, broker: FlakyBroker, /
) -> None:
    broker.hang_publishes()
    sent = [_send(sender, "a"), _send(sender, "b", "others")]
    await asyncio.sleep(0.01)

    assert broker.hanging == 2

    broker.release_publishes()
    assert await asyncio.gather(*sent) == [True] * 2
    assert await _send(sender, "c")
    assert _sent_jobs(broker)[-1] == ["c"]


@run_by(_play)
async def test_a_report_that_is_too_large_returns_no_job_of_its_message(
    sender: ReportSender, broker: FlakyBroker, /
) -> None:
    # The message of all three, and that of the first.
    broker.fail_publishes(2, TooLarge(2, 1, "the message"))
    dropped = _send(sender, "a", kind="progress")
    await asyncio.sleep(0)
    ended = [_tell(sender, job) for job in "bc"]

    await sender.all_told()

    assert not await dropped
    assert [delivery.settled for delivery in ended] == ["acked"] * 2
    assert _sent_jobs(broker) == [["a", "b", "c"], ["a"], ["b"], ["c"]]


@run_by(_play)
async def test_a_report_that_cannot_be_encoded_delays_no_others(sender: ReportSender, broker: FlakyBroker, /) -> None:
    saving = SaveRequest(reply="worker.saved.w", number=1, run="r", name="\ud800")
    report = Report(id="a", token=1, kind="saving", saving=saving)
    sent = [
        asyncio.create_task(sender.send(Invitation(id="a", token=1, reports="reports"), report)),
        _send(sender, "b"),
    ]

    assert await asyncio.gather(*sent) == [False, True]
    assert _sent_jobs(broker) == [["b"]]
