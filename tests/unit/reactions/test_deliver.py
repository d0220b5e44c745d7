"""Calls made by reactions keep the options of their tasks."""

import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import pytest

from taskmq import TaskMQ
from taskmq.middleware.chain import Middleware, Sending
from taskmq.model.envelope import decode_envelope
from taskmq.model.keys import reaction_job_id
from taskmq.reactions import Cause, JobEnded, ReactionDelivery, job
from taskmq.reactions.model.pending import RecordedEvent

pytestmark = pytest.mark.real_time


class _Sent(Middleware):
    """Records sends."""

    def __init__(self) -> None:
        self.sendings: list[Sending] = []

    def send(self, sending: Sending) -> None:
        self.sendings.append(sending)


def _shop(folder: Path, sent: _Sent) -> TaskMQ:
    app = TaskMQ(f"memory://{uuid.uuid4().hex}", store=f"sqlite:///{folder}/jobs.db", name="shop", middleware=[sent])

    @app.task(name="load")
    def load() -> None: ...

    @app.on(job(load), name="stored")
    @app.task(name="index", queue="later", lane="store", tenant="acme", priority=7)
    def index(ended: JobEnded) -> None: ...

    @app.on(job(load), name="only")
    @app.task(name="tidy", queue="later", unique=lambda ended: cast("JobEnded", ended).task)
    def tidy(ended: JobEnded) -> None: ...

    return app


def _end_event(name: str, *, at: int = 1) -> RecordedEvent:
    return RecordedEvent(
        name, JobEnded(job_id=name, task="load", state="succeeded", finished=datetime(2027, 1, at, tzinfo=UTC))
    )


async def test_a_call_of_a_task_of_the_store_is_one_job_there(tmp_path: Path) -> None:
    sent = _Sent()
    app = _shop(tmp_path, sent)
    reaction, name = app.reactions["stored"], reaction_job_id("shop", "stored", "j1")
    async with app:
        delivery = ReactionDelivery("shop", app.producer)
        await delivery.deliver(reaction, 0, _end_event("j1"), cause=Cause("j1", "root"))
        # The delivery was repeated, and the job ended again.
        await delivery.deliver(reaction, 0, _end_event("j1", at=2), cause=Cause("j1", "root"))

        (listed,) = (await app.jobs.alist()).jobs
        record = await app.jobs.aget(f"@acme:{name}")
    envelope = decode_envelope(record.body)
    assert (listed.id, record.task, record.queue, record.tenant, record.priority) == (
        record.id,
        "index",
        "later",
        "acme",
        7,
    )
    assert (envelope.parent, envelope.root, envelope.meta) == ("j1", "root", {"taskmq.reactions": "stored"})


async def test_a_unique_call_is_dropped_while_another_job_has_its_key(tmp_path: Path) -> None:
    sent = _Sent()
    app = _shop(tmp_path, sent)
    reaction = app.reactions["only"]
    async with app:
        delivery = ReactionDelivery("shop", app.producer)
        for event in ("j1", "j2", "j3"):
            await delivery.deliver(reaction, 0, _end_event(event), cause=Cause(event, event))
        (stats,) = await app.sessions.current().broker.stats(["later"])

    assert len(sent.sendings) == 3
    assert stats.ready == 1
