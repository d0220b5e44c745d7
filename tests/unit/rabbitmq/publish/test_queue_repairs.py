"""Messages that wait until their queue exists."""

import asyncio
from typing import cast

import pytest

from taskmq.contracts.broker import Outgoing
from taskmq.errors import AccessDenied, BrokerUnavailable, QueueMissing, SendError, TaskMQError, TopologyMismatch
from taskmq_rabbitmq.declare.declarations import Declarations
from taskmq_rabbitmq.publish.pending import Pending
from taskmq_rabbitmq.publish.queue_repairs import QueueRepairs


class FailingDeclarations:
    """Declarations that fail as configured, then succeed."""

    def __init__(self, *failures: TaskMQError) -> None:
        self.failures = list(failures)
        self.asked: list[str] = []

    async def restore(self, queue: str) -> None:
        self.asked.append(queue)
        if self.failures:
            raise self.failures.pop(0)


class Stage:
    def __init__(self, *failures: TaskMQError) -> None:
        self.declarations = FailingDeclarations(*failures)
        self.unconfirmed: dict[int, Pending] = {}
        self.refused: list[tuple[str, SendError]] = []
        self.sent: list[str] = []
        self.restored: list[bool] = []
        self.repairs = QueueRepairs(
            cast("Declarations", self.declarations),
            asyncio.get_running_loop(),
            unconfirmed=self.unconfirmed,
            refuse=lambda pending, error: self.refused.append((pending.message.job_id, error)),
            resume=self._resume,
        )

    def _resume(self, waiting: list[Pending]) -> None:
        self.sent += [f"{pending.message.job_id} to {pending.message.queue}" for pending in waiting]
        self.restored += [pending.restored for pending in waiting]

    def return_message(self, job: str, queue: str = "q.p.high") -> None:
        pending = returned_message(job, queue)
        pending.restored = True
        self.repairs.restore(pending)


def returned_message(job: str, queue: str = "q.p.high") -> Pending:
    message = Outgoing(queue=queue, body=b"{}", content_type="application/json", job_id=job, task="t")
    return Pending(message, None, 10.0)


async def test_later_messages_wait_behind_returned_ones_however_late_they_return() -> None:
    stage = Stage()
    stage.unconfirmed[2] = returned_message("second")
    stage.return_message("first")
    assert stage.repairs.is_behind(returned_message("third"))
    assert not stage.repairs.is_behind(returned_message("other", "other"))
    await asyncio.sleep(0.1)
    assert stage.declarations.asked == [], "declared now, the queue could get the second one first"

    del stage.unconfirmed[2]
    stage.return_message("second")
    stage.repairs.on_answer()
    await asyncio.sleep(0.1)

    assert stage.sent == ["first to q.p.high", "second to q.p.high", "third to q.p.high"]
    assert stage.declarations.asked == ["q.p.high"]
    assert not stage.repairs.waiting
    assert list(stage.repairs.messages()) == []


async def test_unanswered_messages_do_not_block_forever() -> None:
    stage = Stage()
    stage.unconfirmed[2] = returned_message("lost")
    stage.return_message("first")
    await asyncio.sleep(2)

    assert stage.sent == ["first to q.p.high"]


async def test_a_repair_asks_the_broker_each_time_the_message_is_returned() -> None:
    stage = Stage(BrokerUnavailable("away"))
    stage.return_message("first")
    await asyncio.sleep(1)

    assert stage.sent == ["first to q.p.high"]
    assert stage.restored == [False]


@pytest.mark.parametrize(
    ("queue", "expected"), [("q.p.high", ["one to q", "two to q"]), ("q.p.low", ["one to q", "two to q"])]
)
async def test_jobs_of_an_undeclarable_class_go_to_the_queue_itself(queue: str, expected: list[str]) -> None:
    stage = Stage(QueueMissing(queue))
    stage.return_message("one", queue)
    assert stage.repairs.is_behind(returned_message("two", queue))
    await asyncio.sleep(0.1)

    assert stage.sent == expected
    # If that one is missing too, it is repaired separately.
    assert stage.restored == [False, False]


@pytest.mark.parametrize(
    ("failure", "words"),
    [
        (QueueMissing("q", "run `taskmq topology apply`"), "run `taskmq topology apply`"),
        (QueueMissing("q"), "start a worker for it"),
        (AccessDenied("no"), "no"),
        (TopologyMismatch("queue limit reached"), "nothing was sent: queue limit reached"),
    ],
)
async def test_an_undeclarable_queue_is_refused_with_the_reason(failure: TaskMQError, words: str) -> None:
    stage = Stage(failure)
    stage.return_message("one", "q")
    await asyncio.sleep(0.1)

    ((job, error),) = stage.refused
    assert job == "one"
    assert words in str(error)
    assert stage.sent == []


async def test_messages_for_other_queues_wait_for_their_exchange_too() -> None:
    stage = Stage()
    stage.repairs.restore_exchange(returned_message("first", "q"))

    assert stage.repairs.is_behind(returned_message("second", "other"))
    assert not stage.repairs.is_behind(returned_message("invitation", "other.jobs")), "another exchange leads to it"
    await asyncio.sleep(0.1)

    assert stage.declarations.asked == ["q"]
    assert stage.sent == ["first to q", "second to other"]
    assert not stage.repairs.is_behind(returned_message("third", "other"))


async def test_an_undeclarable_queue_loses_no_message_of_another_queue() -> None:
    stage = Stage(QueueMissing("q"))
    stage.repairs.restore_exchange(returned_message("first", "q"))
    assert stage.repairs.is_behind(returned_message("second", "other"))
    await asyncio.sleep(0.1)

    assert [job for job, _ in stage.refused] == ["first"]
    assert stage.sent == ["second to other"]


async def test_a_closing_publisher_stops_repairing() -> None:
    stage = Stage()
    stage.unconfirmed[2] = returned_message("never")
    stage.return_message("first")
    await stage.repairs.close()

    assert stage.sent == []
