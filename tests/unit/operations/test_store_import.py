"""Moves from beats and delay="state" to the job store, whatever interrupts them."""

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from taskmq import TaskMQ
from taskmq.client.session import Session
from taskmq.contracts.broker import BrokerOptions
from taskmq.contracts.stores import State, WaitingMessage
from taskmq.errors import UnsupportedFeature
from taskmq.model.envelope import JSON, MSGPACK, Envelope, decode_envelope, encode_envelope, new_job_id
from taskmq.model.keys import schedule_record_key, scheduled_job_id
from taskmq.operations.store_import import Imported, import_state
from taskmq.schedules import ScheduleEntry, read_policy
from taskmq.schedules.definition import read_stored, rule_of
from taskmq.schedules.kept_records import StateRecords
from taskmq.schedules.record import ActiveRun, Counts, OccurrenceClaim, ScheduleRecord
from taskmq.schedules.record_access import change_record
from taskmq.schedules.store_records import record_of
from taskmq.schedules.triggers import DaysOff, cron, every, once
from taskmq.testing import FakeClock
from taskmq_local import forget_memory, open_memory_broker, open_memory_state
from tests.coroutines import run_by
from tests.unit.app_kit import use_session
from tests.unit.scheduler.stage import Stage, play
from tests.unit.store_kit import Database, StagedStore

START = 1_700_000_000_000


class Killed(BaseException):
    """Raised when the process dies."""


class Mortal:
    """A wrapper whose calls die: before or after their effect.

    `at` counts calls; there are twice as many deaths as calls.
    """

    def __init__(self, inner: Any, counter: "Counter") -> None:
        self._inner = inner
        self._counter = counter

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not inspect.iscoroutinefunction(found):
            return found

        async def call(*args: Any, **kwargs: Any) -> Any:
            self._counter.step()
            answer = await found(*args, **kwargs)
            self._counter.step()
            return answer

        return call


class Counter:
    def __init__(self, at: int | None) -> None:
        self.at = at
        self.steps = 0

    def step(self) -> None:
        if self.at is not None and self.steps == self.at:
            raise Killed
        self.steps += 1


class _Part:
    """A store with some of its components replaced."""

    def __init__(self, inner: Any, **parts: Any) -> None:
        self.__dict__.update(parts)
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class World:
    """A state left behind by beats, and a store.

    Args:
        open_state: in memory by default.
    """

    def __init__(self, open_state: "Callable[[BrokerOptions], State] | None" = None) -> None:
        self.name = f"import-{uuid4()}"
        self.clock = FakeClock(START)
        self.database = Database(self.clock)
        self.options = BrokerOptions(name="import", clock=self.clock)
        self.state: State = (
            open_memory_state(f"memory://{self.name}", self.options)
            if open_state is None
            else open_state(self.options)
        )

    def app(self, at: int | None = None) -> tuple[TaskMQ, Counter]:
        """Return the app of one process, which dies at the step of that number."""
        app = TaskMQ(f"memory://{self.name}", name="shop")

        @app.cron("30 2 * * MON-FRI", tz="Europe/Paris", exclude=["12-25"], jitter="5m", name="nightly")
        @app.task(name="tick", queue="work")
        async def tick(number: int = 0) -> None: ...

        app.every("1h", name="new")(tick)
        app.sessions.clock = self.clock
        counter = Counter(at)
        state: Any = _Part(
            self.state,
            schedules=Mortal(self.state.schedules, counter),
            delays=Mortal(self.state.delays, counter),
        )
        inner = StagedStore(self.database, clock=self.clock)
        store: Any = _Part(inner, schedules=Mortal(inner.schedules, counter), submit=Mortal(inner, counter).submit)
        broker = open_memory_broker(f"memory://{self.name}", self.options)
        session = Session(broker, state, send_timeout=5.0, store=store, clock=self.clock)
        use_session(app, lambda: session)
        return app, counter

    async def fill(self) -> None:
        """Store the data of a beat: two created schedules, one in code, and waiting jobs."""
        app, _ = self.app()
        kept = StateRecords(self.state.schedules, "shop", self.clock)
        await self.state.delays.put(_waiting("order-17", due=START + 60_000))
        await self.state.delays.put(_waiting(new_job_id(START, bytes(10)), due=START + 50_000, content_type=MSGPACK))
        await self.state.delays.put(
            _waiting("@acme:order-17", due=START + 90_000, queue="work.p.high", tenant="acme")
        )
        records = {
            "nightly": ScheduleRecord(mark=START - 90_000_000, rule=rule_of(app.schedules["nightly"].trigger)),
            "made": ScheduleRecord(
                mark=START - 3_600_000,
                rule=rule_of(every("10m")),
                paused=START - 60_000,
                note="not today",
                counts=Counts(fired=9, late=1, missed=2),
                active=[ActiveRun("someone", START + 9_000)],
            ),
            "left": ScheduleRecord(
                mark=START - 1_000,
                rule=rule_of(every("1s")),
                claims=[OccurrenceClaim(START - 1_000, "", "a beat that died", START - 1, "due")],
            ),
        }
        for name, trigger in (("made", every("10m")), ("left", every("1s"))):
            policy = read_policy({"overlap": "skip"} if name == "made" else {}, schedule=name)
            entry = ScheduleEntry(name, app.tasks["tick"], trigger, (3,), policy=policy, is_dynamic=True)
            assert await kept.define(name, before=None, after=kept.encode(entry))
        for name, record in records.items():

            def put(there: ScheduleRecord, record: ScheduleRecord = record) -> None:
                for field in record.__struct_fields__:
                    setattr(there, field, getattr(record, field))

            await change_record(self.state.schedules, schedule_record_key("shop", name), put)

    async def check(self) -> None:
        """Assert that everything has moved exactly once."""
        app, _ = self.app()
        assert await StateRecords(self.state.schedules, "shop", self.clock).definitions() == {}
        assert await self.state.delays.count() == 0
        store = StagedStore(self.database, clock=self.clock)
        rows = {row.name: row for row in await store.schedules.list("shop", limit=9)}
        assert sorted(rows) == ["left", "made", "nightly"]
        made, left, nightly = (record_of(rows[name]) for name in ("made", "left", "nightly"))
        assert (made.mark, made.paused, made.note) == (START - 3_600_000, START - 60_000, "not today")
        assert (made.counts.fired, made.counts.late, made.counts.missed) == (9, 1, 2)
        assert [(claim.instant, claim.until) for claim in left.claims] == [(START - 1_000, 0)]
        assert nightly.mark == START - 90_000_000
        for name, row in rows.items():
            assert row.is_code is (name == "nightly")
            own = app.schedules.get(name) if row.is_code else None
            rule = read_stored(row.definition, name=name, own=own)
            # The scheduler continues from the mark of the beat.
            assert rule_of(rule.trigger) == record_of(row).rule
        assert sorted((job.tenant, job.key, job.due - START, job.queue) for job in self.database.jobs.values()) == [
            ("", new_job_id(START, bytes(10)), 50_000, "work"),
            ("", "order-17", 60_000, "work"),
            ("acme", "order-17", 90_000, "work"),
        ]
        for job in self.database.jobs.values():
            envelope = decode_envelope(job.body)
            assert envelope.id in ("order-17", "@acme:order-17", job.id)
            assert bytes(envelope.args) == b"[7]"


def _waiting(
    job_id: str, *, due: int, content_type: str = JSON, queue: str = "work", tenant: str | None = None
) -> WaitingMessage:
    args = msgspec.Raw(b"[7]" if content_type == JSON else msgspec.msgpack.encode([7]))
    envelope = Envelope(id=job_id, task="tick", args=args, enqueued=START - 9_000, tenant=tenant)
    body = encode_envelope(envelope, content_type)
    return WaitingMessage(job_id=job_id, task="tick", queue=queue, due=due, body=body, content_type=content_type)


def _run(test: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        world = World()
        await world.fill()
        try:
            await test(world)
        finally:
            await world.state.aclose()
            forget_memory(world.name)

    asyncio.run(main())


@run_by(_run)
async def test_schedules_and_waiting_jobs_move_and_are_listed_before(world: World, /) -> None:
    app, _ = world.app()
    planned = await import_state(app, dry_run=True)
    assert world.database.jobs == {}
    assert await world.state.delays.count() == 3

    moved = await import_state(app, dry_run=False)

    assert sorted(moved, key=_by_name) == sorted(planned, key=_by_name)
    assert {each.name for each in moved if each.outcome == "moves"} == {
        "nightly", "made", "left", "order-17", "@acme:order-17", new_job_id(START, bytes(10)),
    }  # fmt: skip
    assert [each for each in moved if each.outcome == "stays"] == [
        Imported("schedule", "new", "stays", "no beat has run it; a scheduler starts it anew")
    ]
    await world.check()


def _by_name(each: Imported) -> tuple[str, str]:
    return each.what, each.name


@run_by(_run)
async def test_an_import_killed_at_any_step_and_restarted_moves_everything_once(world: World, /) -> None:
    app, counter = world.app()
    await import_state(app, dry_run=False)
    steps = counter.steps
    assert steps > 20

    for at in range(steps):
        again = World()
        await again.fill()
        dying, _ = again.app(at)
        with pytest.raises(Killed):
            await import_state(dying, dry_run=False)
        # The dead process's claims are free again after their lease.
        again.clock.advance(31)
        await import_state(again.app()[0], dry_run=False)
        await import_state(again.app()[0], dry_run=False)
        await again.check()
        await again.state.aclose()
        forget_memory(again.name)


@run_by(_run)
async def test_nothing_is_imported_while_a_beat_runs(world: World, /) -> None:
    app, _ = world.app()

    def claim(record: ScheduleRecord) -> None:
        record.claims = [OccurrenceClaim(START, "", "a beat", START + 5_000, "due")]

    await change_record(world.state.schedules, schedule_record_key("shop", "left"), claim)
    with pytest.raises(UnsupportedFeature, match="'left': a beat runs it"):
        await import_state(app, dry_run=False)


@run_by(_run)
async def test_schedules_already_started_by_a_scheduler_are_unchanged(world: World, /) -> None:
    app, _ = world.app()
    await app.schedules.aadd("made", app.tasks["tick"], every("1s"))
    store = StagedStore(world.database, clock=world.clock)
    (row,) = await store.schedules.find("shop", ["made"])
    assert row is not None
    await app.schedules._records().change(
        (await app.schedules.aall())["made"], lambda record: setattr(record, "mark", START)
    )

    found = await import_state(app, dry_run=False)

    assert Imported("schedule", "made", "exists") in found
    (after,) = await store.schedules.find("shop", ["made"])
    assert after is not None
    assert record_of(after).mark == START


@run_by(_run)
async def test_a_delayed_job_refused_by_the_store_stays_in_the_state(world: World, /) -> None:
    app, _ = world.app()
    # Another job has its id in the store, and tenant acme may submit none today.
    await app.jobs.asubmit("tick", 8, job_id="order-17", delay="1h")
    await app.pools.aset_quota("acme", a_day=0)

    found = {each.name: each for each in await import_state(app, dry_run=False) if each.what == "job"}

    assert found["order-17"].outcome == found["@acme:order-17"].outcome == "stays"
    assert "with different content" in found["order-17"].note
    assert "has reached its quota of 0 jobs per day" in found["@acme:order-17"].note
    assert found[new_job_id(START, bytes(10))].outcome == "moves"
    left = await world.state.delays.list(limit=9)
    assert {message.job_id for message in left} == {"order-17", "@acme:order-17"}


@run_by(_run)
async def test_a_delayed_job_without_a_json_form_stays_in_the_state(world: World, /) -> None:
    args = msgspec.Raw(msgspec.msgpack.encode([float("nan")]))
    envelope = Envelope(id="odd", task="tick", args=args, enqueued=START - 9_000)
    body = encode_envelope(envelope, MSGPACK)
    await world.state.delays.put(
        WaitingMessage(job_id="odd", task="tick", queue="work", due=START + 60_000, body=body, content_type=MSGPACK)
    )
    app, _ = world.app()

    found = {each.name: each for each in await import_state(app, dry_run=False) if each.what == "job"}

    assert (found["odd"].outcome, found["order-17"].outcome) == ("stays", "moves")
    assert "JSON has no NaN" in found["odd"].note


@run_by(_run)
async def test_a_long_import_names_each_remaining_job_once(world: World, /) -> None:
    app, _ = world.app()
    await app.pools.aset_quota("acme", a_day=0)

    def take_long(looked_at: int, _of: int | None) -> None:
        # Jobs claimed half a minute ago and still present may be claimed again.
        if looked_at < 20:
            world.clock.advance("31s")

    found = await import_state(app, dry_run=False, on_progress=take_long)

    assert [each.name for each in found if each.what == "job" and each.outcome == "stays"] == ["@acme:order-17"]


@run_by(_run)
async def test_the_pause_of_a_schedule_unknown_to_any_beat_moves(world: World, /) -> None:
    app, _ = world.app()

    def pause(record: ScheduleRecord) -> None:
        record.paused, record.note = START - 9_000, "not yet"

    await change_record(world.state.schedules, schedule_record_key("shop", "new"), pause)

    assert Imported("schedule", "new", "moves") in await import_state(app, dry_run=False)

    status = await app.schedules.astatus("new")
    assert status.note == "not yet"
    assert status.paused is not None


def test_possibly_sent_jobs_keep_the_id_and_key_that_workers_know() -> None:
    def define(app: TaskMQ) -> None:
        @app.task(name="tick", queue="work")
        async def tick(number: int = 0) -> None: ...

    async def test(stage: Stage) -> None:
        process = stage.start()
        await stage.pass_by(1)
        await process.app.schedules.aadd("s", process.app.tasks["tick"], every("1h"))
        await stage.pass_by(2)
        entry = (await process.app.schedules.aall())["s"]
        claim = OccurrenceClaim(START - 7, "", "a beat", 0, "due")
        records = process.app.schedules._records()
        await records.change(entry, lambda record: record.claims.append(claim))
        await stage.pass_by(2)

        (job,) = stage.database.jobs.values()
        occurrence = scheduled_job_id("shop", "s", START - 7)
        assert job.key == occurrence
        assert decode_envelope(job.body).key == occurrence

    play(test, define)


@run_by(_run)
async def test_triggers_of_every_kind_are_the_same_for_beat_and_scheduler(world: World, /) -> None:
    app, _ = world.app()
    triggers = [
        every("90s", phase="5s"),
        every("1d", start=datetime(2027, 1, 1, tzinfo=UTC), max_runs=30),
        cron("H/15 * * * *"),
        cron("0 0 1-7 * */7", tz="America/New_York", dst_gap="skip", dst_fold="both"),
        cron("5 4 L * FRI#2", exclude=[DaysOff.parse(["sat", "12-25", "2027-04-03"])]),
        once(datetime(2027, 1, 1, tzinfo=UTC)),
    ]
    for number, trigger in enumerate(triggers):
        await app.schedules.aadd(f"s{number}", app.tasks["tick"], trigger)
    kept = await app.schedules.aall()
    rows = await StagedStore(world.database, clock=world.clock).schedules.list("shop", limit=99)
    assert len(rows) == len(triggers)
    for row in rows:
        rule = read_stored(row.definition, name=row.name, own=None)
        assert rule_of(rule.trigger) == rule_of(kept[row.name].trigger)
