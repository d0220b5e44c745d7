"""Tests of registered tasks: their forms, and their first and last reports."""

import asyncio
from typing import Final

from msgspec import Raw
from msgspec.structs import replace

from taskmq.contracts.jobs import Catalogued, TaskStore
from taskmq.model.jobs.registrations import RegisteredTask, TaskFacts, TaskRegistration, encode_registration
from taskmq.testing.job_store_suite.case import JobStoreCase
from taskmq.testing.runner import case

_WHOLE: Final = TaskRegistration(
    task="mail.send",
    queue="mail",
    description="Send one. ☂",
    facts=TaskFacts(priority=7, delay=5, expires=6, timeout=1.5, max_attempts=5, ack="early", needs_code=("unique",)),
    positional=("to", "cc"),
    unnamed=1,
    rest="others",
    schema=Raw(b'{"type":"object","properties":{"to":{"type":"string"}}}'),
)
_WRITERS: Final = 10


class RegisteredTasks(JobStoreCase):
    """Every guarantee of `TaskStore`."""

    def tasks(self) -> TaskStore:
        """Return the registered tasks of a store that is closed at the end of the test."""
        store = self.store()
        assert isinstance(store, Catalogued)
        return store.tasks

    @case
    async def test_a_reported_task_is_read_back_unchanged(self) -> None:
        store = self.store()
        assert isinstance(store, Catalogued)
        before = await store.now_ms()

        await store.tasks.register([_WHOLE], origin="broker", worker="host:1 ☂")

        (found,) = await self.tasks().registrations(["mail.send"])
        assert (found.registration, found.origin, found.worker) == (_WHOLE, "broker", "host:1 ☂")
        assert before <= found.first == found.last <= await store.now_ms()

    @case
    async def test_reporting_a_task_again_keeps_one_form(self) -> None:
        tasks, other = self.tasks(), self.tasks()
        await tasks.register([_WHOLE], origin="broker", worker="host:1")
        (before,) = await tasks.registrations(["mail.send"])

        await other.register([_WHOLE, _WHOLE], origin="broker", worker="host:2")

        (after,) = await tasks.registrations(["mail.send"])
        assert (after.first, after.worker) == (before.first, "host:2")
        assert after.last >= before.last

    @case
    async def test_each_form_of_a_task_is_kept_with_its_reporter(self) -> None:
        tasks = self.tasks()
        forms = [
            _WHOLE,
            replace(_WHOLE, queue="other"),
            replace(_WHOLE, description=""),
            replace(_WHOLE, facts=TaskFacts()),
            replace(_WHOLE, positional=("cc", "to")),
            replace(_WHOLE, unnamed=0),
            replace(_WHOLE, rest=""),
            replace(_WHOLE, schema=Raw(b'{"type":"object"}')),
        ]

        await tasks.register(forms, origin="broker")
        await tasks.register([_WHOLE], origin="app")

        found = await tasks.registrations(["mail.send"])
        assert len(found) == len(forms) + 1
        assert {_form(one) for one in found} == {
            *(("broker", encode_registration(form)) for form in forms),
            ("app", encode_registration(_WHOLE)),
        }

    @case
    async def test_tasks_are_found_by_name(self) -> None:
        tasks = self.tasks()
        await tasks.register([_registration(name) for name in ("a", "b", "c")], origin="broker")

        found = await tasks.registrations(["a", "c", "c", "d", "\0", "\ud800"])

        assert sorted(one.registration.task for one in found) == ["a", "c"]
        assert await tasks.registrations([]) == []

    @case
    async def test_task_names_are_listed_in_pages(self) -> None:
        tasks = self.tasks()
        names = ["Z", "a", "a.b", "a.c", "a_b", "ö"]
        await tasks.register([_registration(name) for name in reversed(names)], origin="broker")
        await tasks.register([replace(_registration("a.b"), queue="other")], origin="app")

        assert await tasks.names() == names
        assert await tasks.names(limit=2) == ["Z", "a"]
        assert await tasks.names(after="a", limit=2) == ["a.b", "a.c"]
        assert await tasks.names(prefix="a.") == ["a.b", "a.c"]
        assert await tasks.names(prefix="a_") == ["a_b"]
        assert await tasks.names(prefix="a.", after="a.b") == ["a.c"]
        assert await tasks.names(prefix="\0") == await tasks.names(prefix="\ud800") == []

    @case
    async def test_many_workers_report_the_same_tasks_concurrently(self) -> None:
        stores = [self.tasks() for _ in range(2)]
        forms = [_registration(f"t{number}") for number in range(_WRITERS)]

        await asyncio.gather(
            *(
                stores[number % 2].register(forms[:: 1 if number % 3 else -1], origin="broker", worker=f"{number}")
                for number in range(_WRITERS)
            )
        )

        assert len(await stores[0].registrations([one.task for one in forms])) == _WRITERS

    @case
    async def test_reporting_no_tasks_succeeds(self) -> None:
        tasks = self.tasks()

        await tasks.register([], origin="broker")

        assert await tasks.names() == []


def _registration(name: str) -> TaskRegistration:
    return TaskRegistration(task=name, queue="q")


def _form(one: RegisteredTask) -> tuple[str, bytes]:
    return one.origin, encode_registration(one.registration)
