"""A task sent by its name behaves like its own `send`."""

import asyncio
from datetime import date
from typing import Any

import pytest
from msgspec import Raw

from taskmq import DuplicateJob, InvalidArguments, InvalidOption, TaskMQ, Unroutable, WorkQueue
from taskmq.errors import UnknownTask
from taskmq.middleware.chain import Middleware, Sending
from taskmq.operations.send import SentCall, send_by_name
from tests.unit.app_kit import messages, new_url

_NONE = Raw(b"{}")


class _Stamps(Middleware):
    """Middleware that marks sent messages."""

    def send(self, sending: Sending) -> None:
        sending.headers["x-stamp"] = "seen"


@pytest.fixture
def app() -> TaskMQ:
    app = TaskMQ(new_url(), middleware=[_Stamps()])

    @app.task(name="shop.bill", queue="bills", priority=7, idempotency_key="{day}", tenant="north")
    def bill(day: date) -> str:
        return day.isoformat()

    @app.task(name="shop.tidy", queue="bills", unique=True)
    def tidy(room: int) -> None: ...

    return app


def _send(app: TaskMQ, task: str, args: bytes = b"[]", **options: Any) -> SentCall:
    async def main() -> SentCall:
        async with app:
            await app.sessions.current().declare([WorkQueue("bills"), WorkQueue("default")])
            return await send_by_name(app, task, args=Raw(args), kwargs=_NONE, **options)

    return asyncio.run(main())


def test_a_known_task_uses_its_own_queue_priority_key_and_tenant(app: TaskMQ) -> None:
    sent = _send(app, "shop.bill", b'["2026-03-01"]')

    (message,) = messages(app, "bills.p.high")
    assert (sent.queue, sent.job.id) == ("bills.p.high", message.envelope.id)
    assert message.envelope.priority == 7
    assert message.envelope.tenant == "north"
    assert message.envelope.key == app.tasks["shop.bill"].sending(date(2026, 3, 1)).envelope.key


def test_arguments_that_do_not_match_a_known_task_are_refused(app: TaskMQ) -> None:
    with pytest.raises(InvalidArguments):
        _send(app, "shop.bill", b'["someday"]')

    assert messages(app, "bills") == []


def test_a_unique_task_is_unique_when_sent_by_name_too(app: TaskMQ) -> None:
    _send(app, "shop.tidy", b"[1]")

    with pytest.raises(DuplicateJob):
        _send(app, "shop.tidy", b"[1]")


def test_an_unknown_task_uses_the_given_options(app: TaskMQ) -> None:
    _send(app, "else.run", b"[1, {}]", queue="bills", priority=2, idempotency_key="k", tenant="south", force=True)

    (message,) = messages(app, "bills.p.low")
    assert message.headers["x-stamp"] == "seen"
    envelope = message.envelope
    assert (envelope.task, bytes(envelope.args)) == ("else.run", b"[1, {}]")
    assert (envelope.priority, envelope.key, envelope.tenant) == (2, "k", "south")


def test_a_missing_queue_is_not_created(app: TaskMQ) -> None:
    for task, args in (("shop.tidy", b"[1]"), ("else.run", b"[]")):
        with pytest.raises(Unroutable, match="bils"):
            _send(app, task, args, queue="bils", force=True)


def test_an_unknown_task_is_refused_unless_the_app_has_no_tasks(app: TaskMQ) -> None:
    with pytest.raises(UnknownTask, match=r"no task 'shop\.bil': did you mean 'shop\.bill'\? \(--force"):
        _send(app, "shop.bil")

    assert _send(TaskMQ(new_url()), "shop.bil").queue == "default"


@pytest.mark.parametrize("task", ["", "no such name"])
def test_an_invalid_name_is_refused(app: TaskMQ, task: str) -> None:
    with pytest.raises(InvalidOption, match="task name"):
        _send(app, task)
