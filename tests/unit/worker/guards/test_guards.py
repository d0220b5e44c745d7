"""The guards of a run, and their notification of its end."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from taskmq.contracts.stores import ResultRecord
from taskmq.errors import StateUnavailable
from taskmq.model.envelope import decode_envelope
from taskmq.model.outcome import AlreadyDone, Cancelled, Dead, Outcome, Retried, Snoozed, Succeeded
from taskmq.tasks.task import Task
from taskmq.testing.broker_suite.case import peek
from taskmq.worker.attempt import Attempt, Permit
from taskmq.worker.config import WorkerConfig
from taskmq.worker.guards.base import GuardRank, Guards
from taskmq.worker.guards.build import GUARDS, build_guards
from tests.unit.worker.gate import working
from tests.unit.worker.staged import StagedApp, open_staged, settle_loop
from tests.virtual_time import run


@dataclass
class StagedGuard:
    """A guard with configured answers, and a record of its calls. It is unavailable while it has `failures` left."""

    name: str = "guard"
    answer: Outcome | None = None
    counts: bool = True
    failures: int = 0
    leave_failures: int = 0
    seen: list[str] = field(default_factory=list[str])
    records: list[ResultRecord | None] = field(default_factory=list["ResultRecord | None"])
    outcomes: list[Outcome] = field(default_factory=list[Outcome])
    rank: int = 1
    tasks: set[str] = field(default_factory=set[str])

    def concerns_task(self, task: Task[..., Any]) -> bool:
        return task.name in self.tasks

    def concerns(self, attempt: Attempt) -> bool:
        return attempt.envelope.key != "none of mine"

    async def acquire(self, attempt: Attempt) -> Permit | Outcome:
        await asyncio.sleep(0)
        if self.failures:
            self.failures -= 1
            raise StateUnavailable("no state (staged)")
        self.seen.append(f"{self.name} {attempt.cancelled or 'entered'}")
        return self.answer if self.answer is not None else self

    async def release(self, outcome: Outcome, record: ResultRecord | None) -> bool:
        await asyncio.sleep(0)
        if self.leave_failures:
            self.leave_failures -= 1
            raise StateUnavailable("no state (staged)")
        self.seen.append(f"{self.name} left")
        self.outcomes.append(outcome)
        self.records.append(record)
        return self.counts


ran: list[str] = []


def _guards(*guards: StagedGuard) -> Guards:
    return Guards((guard.rank, guard) for guard in guards)


def _play(
    *guards: StagedGuard, test: Callable[[StagedApp], object] | None = None, task: str = "fine", key: str = "k"
) -> str:
    """Run one job behind `guards`; return the journal, once settled or after some loop iterations."""
    stories: list[str] = []
    ran.clear()

    async def main() -> None:
        with open_staged() as app, pytest.MonkeyPatch.context() as patch:
            patch.setattr("taskmq.worker.worker.build_guards", lambda *_, **__: _guards(*guards))
            _define(app)
            said_key = f'"{key}"' if key else "null"
            await app.put(f'{{"task":"{task}","id":"job-1","key":{said_key},"args":[]}}'.encode(), task=task)
            async with working(app):
                await settle_loop()
                if test is not None:
                    test(app)
                await asyncio.sleep(10)
                stories.append(", ".join(app.story()))

    run(main())
    return stories[0]


def _define(app: StagedApp) -> None:
    @app.task(name="fine", queue="work")
    async def fine() -> str:
        ran.append("fine")
        return "done"

    @app.task(name="quiet", queue="work", result=False)
    async def quiet() -> object:
        ran.append("quiet")
        return object()

    @app.task(name="failing", queue="work", retry=None)
    async def failing() -> None:
        raise ValueError

    @app.task(name="again", queue="work")
    async def again() -> None:
        raise ValueError


def test_a_run_passes_its_guards_in_order_and_leaves_them_in_reverse() -> None:
    first, second = StagedGuard("first"), StagedGuard("second")
    second.seen = first.seen

    story = _play(first, second)

    assert first.seen == ["first entered", "second entered", "second left", "first left"]
    assert ran == ["fine"]
    assert story == "stored succeeded, acked work"
    assert [record.value for record in first.records if record is not None] == [b'"done"']
    assert first.outcomes == second.outcomes == [Succeeded("done")]


def test_a_job_skips_gates_that_do_not_concern_it() -> None:
    guard = StagedGuard()

    assert _play(guard, key="none of mine") == "stored succeeded, acked work"
    assert guard.seen == []


def test_the_outcome_of_a_guard_is_settled_and_earlier_guards_are_released() -> None:
    first, second = StagedGuard("first"), StagedGuard("second", answer=AlreadyDone("application/json", b'"earlier"'))
    second.seen = first.seen

    story = _play(first, second)

    assert ran == []
    assert first.seen == ["first entered", "second entered", "first left"]
    assert story == "stored succeeded, acked work"


def test_a_job_sent_back_by_a_guard_waits_at_the_broker() -> None:
    guard = StagedGuard(answer=Snoozed(timedelta(seconds=30)))

    assert _play(guard) == "confirmed work, acked work"
    assert ran == []


def test_an_outcome_that_does_not_count_is_not_stored_and_its_message_is_requeued() -> None:
    guard = StagedGuard(counts=False)

    def then(_: StagedApp) -> None:
        guard.counts = True

    story = _play(guard, test=then)

    assert ran[:2] == ["fine", "fine"]
    assert story.startswith("requeued work")
    assert story.endswith("stored succeeded, acked work")
    assert story.count("stored") == 1


def test_a_pass_hears_of_every_kind_of_end() -> None:
    dead, retried, quiet = StagedGuard(), StagedGuard(), StagedGuard()

    assert _play(dead, task="failing") == "stored failed, confirmed work.dlq, acked work"
    assert _play(retried, task="again").startswith("confirmed work, acked work")
    assert _play(quiet, task="quiet") == "acked work"

    assert [type(outcome) for outcome in dead.outcomes] == [Dead]
    assert dead.records[0] is not None
    assert dead.records[0].error is not None
    assert (type(retried.outcomes[0]), retried.records[0]) == (Retried, None)
    assert quiet.records[0] is not None
    assert quiet.records[0].value == b""


def test_a_cancelled_job_passes_its_gates_without_a_run() -> None:
    guard = StagedGuard()

    async def main() -> None:
        with open_staged() as app, pytest.MonkeyPatch.context() as patch:
            patch.setattr("taskmq.worker.worker.build_guards", lambda *_, **__: _guards(guard))
            _define(app)
            await app.jobs.cancel_job("job-1", reason="not wanted", remember="1h")
            await app.put(b'{"task":"fine","id":"job-1","key":"k"}', task="fine")
            ran.clear()
            async with working(app):
                await settle_loop()

    run(main())
    assert ran == []
    assert guard.seen == ["guard not wanted", "guard left"]
    assert guard.outcomes == [Cancelled("not wanted")]


def test_an_unavailable_gate_is_asked_again() -> None:
    guard = StagedGuard(failures=3)

    assert _play(guard) == "stored succeeded, acked work"
    assert guard.seen == ["guard entered", "guard left"]


def test_a_gate_unavailable_for_long_delays_the_job_at_the_broker() -> None:
    guard = StagedGuard(failures=1000)

    assert _play(guard) == "confirmed work, acked work"
    assert ran == []


def test_releasing_is_retried_until_it_succeeds() -> None:
    guard = StagedGuard(leave_failures=3)

    assert _play(guard) == "stored succeeded, acked work"
    assert ran == ["fine"]
    assert guard.seen == ["guard entered", "guard left"]


async def test_a_worker_that_stops_during_a_failed_release_requeues_the_message() -> None:
    guard = StagedGuard(leave_failures=1000)
    stories: list[list[str]] = []

    with open_staged() as app, pytest.MonkeyPatch.context() as patch:
        patch.setattr("taskmq.worker.worker.build_guards", lambda *_, **__: _guards(guard))
        _define(app)
        await app.put(b'{"task":"fine","id":"job-1","key":"k"}', task="fine")
        async with working(app):
            await settle_loop()
        stories.append(app.story())
    assert stories == [["requeued work"]]


async def test_a_gate_that_fails_otherwise_releases_earlier_ones() -> None:
    first = StagedGuard("first", leave_failures=1)

    class Broken(StagedGuard):
        async def acquire(self, attempt: Attempt) -> Permit | Outcome:
            raise ZeroDivisionError

    with open_staged() as app:
        _define(app)
        await app.put(b'{"task":"fine","id":"job-1","key":"k"}', task="fine")
        async with peek(app.flaky, "work", limit=1) as (delivery,):
            attempt = Attempt(delivery, decode_envelope(delivery.body), app.tasks["fine"], "job-1")
            with pytest.raises(ZeroDivisionError):
                await _guards(first, StagedGuard("second"), Broken()).acquire(attempt)
            assert attempt.permits == []
    assert first.outcomes == []
    assert first.seen == ["first entered"]


def test_guards_are_passed_by_rank_in_any_order_of_creation() -> None:
    last, first = StagedGuard("last", rank=20), StagedGuard("first", rank=10)
    last.seen = first.seen

    _play(last, first)

    assert first.seen == ["first entered", "last entered", "last left", "first left"]


def test_no_two_guards_of_the_worker_have_the_same_rank() -> None:
    assert sorted(rank for rank, _ in GUARDS) == sorted(GuardRank)


def test_a_guard_of_a_task_keeps_its_runs_off_the_fast_path() -> None:
    guard = StagedGuard(tasks={"quiet"})

    assert _play(guard, task="quiet", key="") == "acked work"
    assert guard.seen == ["guard entered", "guard left"]


def test_guards_are_not_asked_about_other_tasks() -> None:
    guard = StagedGuard(tasks={"fine"})

    assert _play(guard, task="quiet", key="") == "acked work"
    assert guard.seen == []


async def test_only_tasks_with_limits_keys_or_uniqueness_concern_a_guard() -> None:
    with open_staged() as app:

        async def work(number: int) -> None: ...

        app.task(name="plain", queue="work")(work)
        app.task(name="limited", queue="work", concurrency=1)(work)
        app.task(name="keyed", queue="work", idempotency_key="number")(work)
        app.task(name="unique", queue="work", unique=True)(work)
        guards = build_guards(app, WorkerConfig(), worker="w1")

        found = {name for name, task in app.tasks.items() if guards.concern_task(task)}
        assert found == {"limited", "keyed", "unique"}
        await app.aclose()
