"""Deliveries that could not be executed are returned with growing delays, and at once when the worker stops."""

import logging

import pytest

from taskmq.worker.intake.returns import Returns
from tests.unit.worker.staged import FakeDelivery


def delivery(message_id: str) -> FakeDelivery:
    return FakeDelivery(b"", message_id=message_id)


async def test_each_return_of_a_message_waits_longer_than_the_previous_one(caplog: pytest.LogCaptureFixture) -> None:
    returns = Returns()

    with caplog.at_level(logging.CRITICAL):
        for _ in range(8):
            returns.put(delivery("a"), ValueError("no"))
        returns.put(delivery("b"), ValueError("no"))

    pauses = [record.getMessage().rpartition(" in ")[2] for record in caplog.records]
    assert pauses == ["1 s", "2 s", "4 s", "8 s", "16 s", "32 s", "60 s", "60 s", "1 s"]
    returns.close()


async def test_waiting_messages_are_requeued_at_once_when_the_worker_stops() -> None:
    returns = Returns()
    waiting, late = delivery("a"), delivery("b")
    returns.put(waiting, ValueError("no"))
    before = waiting.settled

    returns.close()
    returns.put(late, ValueError("no"))

    assert before is None
    assert [each.settled for each in (waiting, late)] == ["requeued", "requeued"]
