"""Changes of queues and dead letters by Python code, in the audit."""

import getpass
import logging
import socket
from datetime import timedelta
from pathlib import Path

import pytest

from taskmq import TaskMQ
from taskmq.contracts.identity import AuditFilter
from taskmq.model.identity import EVERYTHING_OF_ALL
from taskmq.operations.dead_letters import LetterSelection, Replay, Replayed
from taskmq.operations.letter_changes import purge_letters, replay_letters
from taskmq.operations.queue_moves import Moved, move_messages
from taskmq.operations.queues import find_pauses, pause_queues, purge_queue, resume_queues
from tests.unit.app_kit import new_url

pytestmark = pytest.mark.real_time


@pytest.fixture
def app(tmp_path: Path) -> TaskMQ:
    app = TaskMQ(new_url(), state="memory://", store=f"sqlite:///{tmp_path}/jobs.db")

    @app.task(name="send", queue="mail")
    def send() -> None: ...

    @app.task(name="print", queue="letters")
    def print_letter() -> None: ...

    return app


async def test_pauses_by_python_code_are_audited_with_their_user(app: TaskMQ) -> None:
    async with app:
        await pause_queues(app, ["mail"], note="the mail server moves", by="ann")
        await resume_queues(app, ["mail"])
        page = await app.sessions.store().identity.audit.entries(EVERYTHING_OF_ALL, AuditFilter(), limit=9)

    entries = [record.entry() for record in page.entries]
    assert [(one.action, one.kind, one.subject, one.user, one.note) for one in entries] == [
        ("queue.resume", "queue", "mail", getpass.getuser(), ""),
        ("queue.pause", "queue", "mail", "ann", "the mail server moves"),
    ]
    assert {(one.via, one.address) for one in entries} == {("python", socket.gethostname())}


async def test_moves_and_purges_by_python_code_are_audited_with_their_user(app: TaskMQ) -> None:
    async with app:
        await app.tasks["send"].asend()
        assert await move_messages(app, "mail", "letters", count=5, by="ann") == Moved(1, 0)
        assert await purge_queue(app, "letters") == 1
        page = await app.sessions.store().identity.audit.entries(EVERYTHING_OF_ALL, AuditFilter(), limit=9)

    entries = [record.entry() for record in page.entries]
    assert [(one.action, one.subject, one.user, one.after) for one in entries] == [
        ("queue.purge", "letters", getpass.getuser(), None),
        ("queue.move", "mail", "ann", {"to": "letters", "count": 5, "task": None}),
    ]


async def test_replays_and_purges_of_dead_letters_by_python_code_are_audited(app: TaskMQ) -> None:
    recent = LetterSelection(task="send", newer_than=timedelta(hours=1))
    async with app:
        await app.tasks["send"].asend()
        replayed = await replay_letters(app, "mail", plan=Replay(rate=50), by="ann")
        purged = await purge_letters(app, "mail", recent, limit=1)
        page = await app.sessions.store().identity.audit.entries(EVERYTHING_OF_ALL, AuditFilter(), limit=9)

    entries = [record.entry() for record in page.entries]
    plan = {"keep_attempts": False, "max_replays": 3, "rate": 50, "duplicates": False}
    assert (replayed, purged) == (Replayed(), 0)
    assert [(one.action, one.subject, one.user, one.after) for one in entries] == [
        ("dead_letters.purge", "mail", getpass.getuser(), {"task": "send", "newer_than": 3600.0, "limit": 1}),
        ("dead_letters.replay", "mail", "ann", plan),
    ]


async def test_a_queue_is_paused_while_the_audit_is_unavailable(
    app: TaskMQ, caplog: pytest.LogCaptureFixture
) -> None:
    async with app:
        await app.sessions.store().aclose()
        with caplog.at_level(logging.WARNING, "taskmq.audit"):
            await pause_queues(app, ["mail"])
        pauses = await find_pauses(app)

    assert pauses is not None
    assert "mail" in pauses
    assert "queue.pause of 'mail' is not recorded in the audit: " in caplog.text
