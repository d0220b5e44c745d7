"""Task registrations in the store: by a scheduler for its own app, and by workers over the broker."""

import logging

import pytest
from msgspec import Raw
from msgspec.structs import replace

from taskmq import TaskMQ
from taskmq.model.commands import command_topic, decode_command
from taskmq.model.jobs.registrations import (
    TASKS_TOLD,
    RegisteredTask,
    TaskRegistration,
    encode_told,
)
from tests.coroutines import run_by
from tests.unit.scheduler.stage import Stage, play_one, until

_TASK = TaskRegistration(task="mail.send", queue="mail", positional=("to",))


def _define(app: TaskMQ) -> None:
    @app.task(name="own", queue="work")
    async def own(number: int) -> None:
        """Return a task of the scheduler."""


def _tell(stage: Stage, *tasks: TaskRegistration, app: str = "shop", worker: str = "w1") -> None:
    for message in encode_told(app, worker, tasks):
        stage.broker.announce(TASKS_TOLD, message)


async def _forms(stage: Stage, *names: str) -> list[RegisteredTask]:
    return await stage.store.tasks.registrations(names)


async def _is_asked(stage: Stage) -> None:
    """Start a scheduler and wait until it hears workers."""
    asked: list[str] = []
    await stage.broker.listen([command_topic("tasks")], lambda _, body: asked.append(decode_command(body).name))
    stage.start()
    await until(lambda: bool(asked))


@run_by(play_one, _define)
async def test_a_scheduler_registers_the_tasks_of_its_app(stage: Stage, /) -> None:
    process = stage.start()
    await until(lambda: _is_known(stage, "own"))

    (form,) = await _forms(stage, "own")
    assert (form.origin, form.registration.queue) == ("app", "work")
    assert form.registration.description == "Return a task of the scheduler."
    await stage.pass_by(700)
    (later,) = await _forms(stage, "own")
    assert later.last > form.last
    await process.stop()


async def _is_known(stage: Stage, name: str) -> bool:
    return bool(await _forms(stage, name))


@run_by(play_one)
async def test_a_scheduler_requests_the_tasks_of_workers_and_stores_their_answers(stage: Stage, /) -> None:
    await _is_asked(stage)

    _tell(stage, _TASK)

    await until(lambda: _is_known(stage, "mail.send"))
    (form,) = await _forms(stage, "mail.send")
    assert (form.registration, form.origin, form.worker) == (_TASK, "broker", "w1")


@pytest.mark.nightly(
    "tests/unit/scheduler/test_registrar.py::test_a_scheduler_requests_the_tasks_of_workers_and_stores_their_answers"
)
@run_by(play_one)
async def test_answers_of_many_workers_are_written_once_in_five_minutes(stage: Stage, /) -> None:
    await _is_asked(stage)
    _tell(stage, _TASK)
    await until(lambda: _is_known(stage, "mail.send"))
    (first,) = await _forms(stage, "mail.send")

    await stage.pass_by(10)
    _tell(stage, _TASK, worker="w2")
    _tell(stage, replace(_TASK, queue="other"), worker="w2")
    await until(lambda: _has_forms(stage, 2))
    assert first in await _forms(stage, "mail.send")
    await stage.pass_by(300)
    _tell(stage, _TASK, worker="w3")
    await until(lambda: _is_registered_by(stage, "w3"))


async def _has_forms(stage: Stage, count: int) -> bool:
    return len(await _forms(stage, "mail.send")) == count


async def _is_registered_by(stage: Stage, worker: str) -> bool:
    return worker in {form.worker for form in await _forms(stage, "mail.send")}


def test_answers_of_another_app_and_invalid_ones_are_ignored(caplog: pytest.LogCaptureFixture) -> None:
    async def test(stage: Stage) -> None:
        await _is_asked(stage)
        remote = Raw(b'{"type":"object","$ref":"http://example.org/schema"}')

        _tell(stage, replace(_TASK, task="foreign"), app="other")
        _tell(stage, replace(_TASK, task="remote", schema=remote), replace(_TASK, task="remote", schema=remote))
        _tell(stage, replace(_TASK, task="no name"), replace(_TASK, task="x" * 500))
        stage.broker.announce(TASKS_TOLD, b"nothing")
        stage.broker.announce(TASKS_TOLD, b"\xff\0")
        _tell(stage, _TASK)

        await until(lambda: _is_known(stage, "mail.send"))
        assert await stage.store.tasks.names() == ["mail.send"]

    with caplog.at_level(logging.WARNING, logger="taskmq.scheduler"):
        play_one(test)
    said = [record.getMessage() for record in caplog.records]
    assert sum("'remote'" in text and "http://example.org/schema" in text for text in said) == 1
    assert sum("refusing" in text for text in said) == 3


def test_the_number_of_stored_forms_is_bounded(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("taskmq.scheduler.catalogue.registrar._MOST_FORMS", 2)

    async def test(stage: Stage) -> None:
        await _is_asked(stage)
        for number in range(4):
            _tell(stage, replace(_TASK, queue=f"q{number}"))
        await until(lambda: _has_forms(stage, 2))
        await stage.pass_by(1)
        assert await _has_forms(stage, 2)

    with caplog.at_level(logging.WARNING, logger="taskmq.scheduler"):
        play_one(test)
    assert "too many tasks are registered" in caplog.text


def test_reports_received_during_an_outage_of_the_store_are_written_afterwards(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test(stage: Stage) -> None:
        await _is_asked(stage)
        (process,) = stage.processes
        await until(lambda: _is_known(stage, "own"))
        process.store.is_reachable = False

        _tell(stage, _TASK)
        await stage.pass_by(3)
        assert not await _is_known(stage, "mail.send")
        process.store.is_reachable = True

        await until(lambda: _is_known(stage, "mail.send"))

    play_one(test, _define)
    assert caplog.text.count("will register tasks later") == 1
