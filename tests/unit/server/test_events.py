"""Live events: selection, gaps, and the end of streams."""

import asyncio
import json
import sqlite3
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from taskmq import TaskMQ
from taskmq.events.stream import as_broadcasting
from taskmq.model.states import JobState
from taskmq.model.telemetry.events import JobEvent, WorkerEvent, encode_batch, job_topic
from taskmq.server.live.hub import EventHub, EventInbox
from taskmq.server.live.store_events import StoreEvents
from taskmq.server.live.stream import EventFilter, event_lines
from taskmq.testing import FakeClock
from taskmq.testing.job_store_suite.driver import HOUR, JobDriver, after
from taskmq_sql.sqlite.file import schema
from taskmq_sql.sqlite.jobs import records
from tests.coroutines import run_by
from tests.unit.app_kit import new_url
from tests.unit.model.telemetry.test_events import STATUS
from tests.unit.server.kit import Site
from tests.unit.store_kit import StagedStore

pytestmark = pytest.mark.real_time


def _event(number: int, **facts: Any) -> JobEvent:
    given: dict[str, Any] = {"event": "dead", "job_id": f"j{number}", "task": "t", "queue": "q", **facts}
    return JobEvent(number=number, at=1_800_000_000_000 + number, **given)


def _run(test: Callable[[TaskMQ, EventHub], Awaitable[None]]) -> None:
    async def main() -> None:
        async with TaskMQ(new_url()) as app, asyncio.timeout(20):
            hub = EventHub(app)
            try:
                await test(app, hub)
            finally:
                await hub.aclose()

    asyncio.run(main())


async def _tell(app: TaskMQ, *events: JobEvent) -> None:
    broker = as_broadcasting(app.sessions.current().broker)
    for event in events:
        broker.announce(job_topic(event.event, event.queue), encode_batch("w1", [event], dropped=0))


async def _take(subscription: EventInbox, last: str) -> list[str]:
    """Return the jobs of the events up to this job's, without `j0`."""
    found: list[str] = []
    while last not in found:
        found += [one.event.job_id for one in await subscription.take(10) if isinstance(one.event, JobEvent)]
    return [name for name in found if name != "j0"]


async def _listens(app: TaskMQ, subscription: EventInbox) -> None:
    """Wait until the hub hears the broker: publish an event until it arrives."""
    while not await subscription.take(0.01):
        await _tell(app, _event(0))


@run_by(_run)
async def test_every_stream_gets_its_matching_events_from_one_subscription(app: TaskMQ, hub: EventHub, /) -> None:
    async with AsyncExitStack() as stack:
        everything, _ = await stack.enter_async_context(hub.subscribe("ann", lambda _: True))
        only, _ = await stack.enter_async_context(
            hub.subscribe("bob", lambda event: isinstance(event, JobEvent) and event.job_id == "j2")
        )
        await _listens(app, everything)

        await _tell(app, _event(1), _event(2), _event(3))

        assert await _take(everything, "j3") == ["j1", "j2", "j3"]
        assert await _take(only, "j2") == ["j2"]
        assert (hub.streams_of("ann"), hub.streams_of("bob"), hub.streams_of("eve")) == (1, 1, 0)


@run_by(_run)
async def test_a_resumed_stream_gets_its_missed_events(app: TaskMQ, hub: EventHub, /) -> None:
    async with hub.subscribe("bob", lambda _: True):
        for number in (1, 2, 3):
            hub._publish(_event(number))

        async with hub.subscribe("ann", lambda _: True, last_id=f"{hub.name}-1") as (subscription, has_gap):
            assert not has_gap
            assert await _take(subscription, "j3") == ["j2", "j3"]


@pytest.mark.parametrize("last_id", ["another-1", "nonsense", "-", "{hub}-x", "{hub}-" + "9" * 40, "{hub}-100"])
@run_by(_run)
async def test_a_late_or_foreign_resumption_reports_a_gap(app: TaskMQ, hub: EventHub, /, last_id: str) -> None:
    async with hub.subscribe("bob", lambda _: True):
        for number in range(1_200):
            hub._publish(_event(number))

        name = last_id.replace("{hub}", hub.name)
        async with hub.subscribe("ann", lambda _: True, last_id=name) as (_, has_gap):
            assert has_gap


@run_by(_run)
async def test_events_without_a_listener_are_a_gap(app: TaskMQ, hub: EventHub, /) -> None:
    async with hub.subscribe("ann", lambda _: True):
        hub._publish(_event(1))

    async with hub.subscribe("ann", lambda _: True, last_id=f"{hub.name}-1") as (_, has_gap):
        assert has_gap


@run_by(_run)
async def test_events_without_a_listener_remain_a_gap_after_another_listener_arrives(
    app: TaskMQ, hub: EventHub, /
) -> None:
    async with hub.subscribe("ann", lambda _: True):
        hub._publish(_event(1))
    last_id = f"{hub.name}-{hub._last[-1].number if hub._last else hub._number}"

    async with (
        hub.subscribe("bob", lambda _: True),
        hub.subscribe("ann", lambda _: True, last_id=last_id) as (_, has_gap),
    ):
        assert has_gap


@run_by(_run)
async def test_a_tenant_with_fewer_streams_takes_one_from_the_tenant_with_most(
    app: TaskMQ, idle: EventHub, /
) -> None:
    await idle.aclose()
    hub = EventHub(app, most=6)

    async def follow(tenant: str) -> AsyncGenerator[bytes] | None:
        lines = event_lines(
            hub, f"{tenant}-{hub.streams}", lambda _: True, tenant=tenant, last_id=None, most=10, is_allowed=_always
        )
        return lines if await anext(lines) == b"retry: 3000\n\n" else None

    greedy = [await follow("greedy") for _ in range(6)]
    assert not hub.has_room("greedy")
    assert await follow("greedy") is None

    first = [await follow("small") for _ in range(3)]

    assert all(first)
    # Each has three now: neither has more than the other.
    assert [hub.has_room(tenant) for tenant in ("greedy", "small", "third")] == [False, False, True]
    for ended in greedy[3:]:
        assert ended is not None
        assert [line async for line in ended] == []
    third = await follow("third")
    hub._publish(_event(1))
    for stream in (third, greedy[0]):
        assert stream is not None
        assert b'"job_id":"j1"' in await anext(stream)
    await hub.aclose()


@run_by(_run)
async def test_a_gap_is_reported_once_the_broker_is_connected(app: TaskMQ, hub: EventHub, /) -> None:
    """A client that reads everything again on the gap misses no later event."""

    lines = event_lines(
        hub, "ann", lambda _: True, tenant=None, last_id="another-1", most=10, is_allowed=_always, heartbeat=60
    )
    while b"event: gap" not in await anext(lines):
        pass

    await _tell(app, _event(1))

    assert b'"job_id":"j1"' in await anext(lines)
    await lines.aclose()


@run_by(_run)
async def test_a_stream_opened_while_the_last_one_ends_hears_the_broker(app: TaskMQ, hub: EventHub, /) -> None:
    async with hub.subscribe("ann", lambda _: True) as (first, _):
        await _listens(app, first)
    async with hub.subscribe("bob", lambda _: True) as (second, _):
        await _listens(app, second)

        await _tell(app, _event(1))

        assert await _take(second, "j1") == ["j1"]


@run_by(_run)
async def test_a_slow_stream_loses_the_oldest_events_and_counts_them(app: TaskMQ, hub: EventHub, /) -> None:
    async with hub.subscribe("ann", lambda _: True) as (subscription, _):
        for number in range(1_010):
            hub._publish(_event(number))

        assert subscription.missed == 10
        assert (await _take(subscription, "j1009"))[0] == "j10"


@run_by(_run)
async def test_streams_end_when_the_server_stops_including_new_ones(app: TaskMQ, hub: EventHub, /) -> None:
    async with hub.subscribe("ann", lambda _: True) as (subscription, _):
        hub.close()
        assert subscription.is_over
        assert await subscription.take(10) == []
    async with hub.subscribe("ann", lambda _: True) as (late, _):
        assert late.is_over


@run_by(_run)
async def test_a_stream_consists_of_server_sent_events(app: TaskMQ, hub: EventHub, /) -> None:
    fits = EventFilter(queue="q", kinds=frozenset({"dead"}))
    lines = event_lines(hub, "ann", fits, last_id="old-7", tenant=None, most=10, is_allowed=_always)
    found = [await anext(lines), await anext(lines)]
    for event in (_event(1), _event(2, event="retried"), _event(3, queue="other"), None):
        hub._publish(event, is_connected=event is not None)
    hub.close()
    found += [line async for line in lines]

    told = [line.decode() for line in found]
    assert told[:2] == ["retry: 3000\n\n", 'event: gap\ndata: {"after":"old-7"}\n\n']
    assert told[2].startswith(f"id: {hub.name}-1\nevent: job\ndata: ")
    assert '"job_id":"j1"' in told[2]
    assert told[3] == f'id: {hub.name}-4\nevent: broker\ndata: {{"is_connected":false}}\n\n'
    assert len(told) == 4


@run_by(_run)
async def test_a_slow_stream_is_told_the_number_of_lost_events(app: TaskMQ, hub: EventHub, /) -> None:
    lines = event_lines(hub, "ann", lambda _: True, last_id=None, tenant=None, most=10, is_allowed=_always)
    await anext(lines)
    for number in range(1_007):
        hub._publish(_event(number))

    assert await anext(lines) == b'event: missed\ndata: {"count":7}\n\n'
    await lines.aclose()


@run_by(_run)
async def test_a_digest_counts_any_number_of_events(app: TaskMQ, hub: EventHub, /) -> None:
    lines = event_lines(hub, "ann", lambda _: True, last_id=None, tenant=None, most=10, is_allowed=_always, every=1)
    await anext(lines)
    for number in range(2_500):
        hub._publish(_event(number))

    assert await anext(lines) == f'id: {hub.name}-2500\nevent: digest\ndata: {{"job":2500}}\n\n'.encode()
    await lines.aclose()


@run_by(_run)
async def test_a_digest_of_many_streams_sends_heartbeats_and_ends_with_its_user(
    app: TaskMQ, hub: EventHub, /
) -> None:
    is_signed_in = True

    async def is_allowed() -> bool:
        return is_signed_in

    lines = event_lines(
        hub, "ann", lambda _: True, last_id=None, tenant=None, most=10, is_allowed=is_allowed, every=3_600,
        heartbeat=0.01,
    )  # fmt: skip
    await anext(lines)
    hub._publish(_event(1))
    assert b"digest" in await anext(lines)
    is_signed_in = False

    assert {line async for line in lines} == {b": here\n\n"}


@run_by(_run)
async def test_a_digest_reports_the_number_of_events_at_an_interval(app: TaskMQ, hub: EventHub, /) -> None:
    lines = event_lines(
        hub, "ann", lambda _: True, last_id=None, tenant=None, most=10, is_allowed=_always, every=3_600
    )
    await anext(lines)
    for number in range(1, 4):
        hub._publish(_event(number))
    assert await anext(lines) == f'id: {hub.name}-3\nevent: digest\ndata: {{"job":3}}\n\n'.encode()

    hub._publish(_event(4))
    hub._publish(WorkerEvent(event="online", worker="w1", number=1, at=1, status=STATUS))
    hub._publish(None, is_connected=False)
    hub.close()

    # Not before the hour is over, unless the server stops.
    assert [line async for line in lines] == [
        f'id: {hub.name}-6\nevent: broker\ndata: {{"is_connected":false}}\n\n'.encode(),
        f'id: {hub.name}-6\nevent: digest\ndata: {{"job":1,"worker":1}}\n\n'.encode(),
    ]


@run_by(_run)
async def test_streams_with_the_same_filter_share_a_counter(app: TaskMQ, hub: EventHub, /) -> None:
    def wants() -> EventFilter:
        return EventFilter(queue="q")

    async with hub.subscribe("ann", wants(), is_counting=True) as (first, _):
        hub._publish(_event(1))
        async with hub.subscribe("bob", wants(), is_counting=True) as (second, _):
            hub._publish(_event(2))
            hub._publish(_event(3, queue="other"))

            assert first.counter is second.counter is not None
            assert (first.take_counts(), second.take_counts()) == ({"job": 2}, {"job": 1})
        hub._publish(_event(4))

        assert first.take_counts() == {"job": 1}
    assert not hub._counters


@run_by(_run)
async def test_a_digest_counts_the_events_missed_while_its_client_was_away(app: TaskMQ, hub: EventHub, /) -> None:
    wants = EventFilter()
    async with hub.subscribe("bob", wants, is_counting=True) as (there, _):
        for number in range(1, 4):
            hub._publish(_event(number))
        async with hub.subscribe("ann", wants, last_id=f"{hub.name}-1", is_counting=True) as (back, has_gap):
            hub._publish(_event(4))

            assert (has_gap, back.take_counts(), there.take_counts()) == (False, {"job": 3}, {"job": 4})
            assert back.number == there.number == 4


@run_by(_run)
async def test_a_counting_stream_wakes_at_the_next_event(app: TaskMQ, hub: EventHub, /) -> None:
    async with hub.subscribe("ann", EventFilter(), is_counting=True) as (inbox, _):
        waiting = asyncio.create_task(inbox.take(20))
        await asyncio.sleep(0)
        hub._publish(_event(1))

        assert await waiting == []
        assert inbox.take_counts() == {"job": 1}
        # A closed stream is not woken.
        assert await inbox.take(0) == []
        assert inbox.counter is not None
        assert not inbox.counter._waiting


@run_by(_run)
async def test_a_stream_ends_once_its_caller_loses_access(app: TaskMQ, hub: EventHub, /) -> None:
    async def never() -> bool:
        return False

    lines = event_lines(
        hub, "ann", lambda _: True, last_id=None, tenant=None, most=10, is_allowed=never, heartbeat=0.01
    )

    assert [line async for line in lines] == [b"retry: 3000\n\n", b": here\n\n"]
    assert hub.streams_of("ann") == 0


@run_by(_run)
async def test_streams_opened_simultaneously_respect_the_limit_of_the_user(app: TaskMQ, hub: EventHub, /) -> None:
    streams = [
        event_lines(hub, "ann", lambda _: True, last_id=None, tenant=None, most=10, is_allowed=_always)
        for _ in range(30)
    ]
    begun = await asyncio.gather(*(anext(lines) for lines in streams))
    refused = [lines for lines, line in zip(streams, begun, strict=True) if line == b"retry: 5000\n\n"]

    assert (hub.streams_of("ann"), len(refused)) == (10, 20)
    for lines in refused:
        assert [line async for line in lines] == []
    for lines in streams:
        await lines.aclose()
    assert hub.streams_of("ann") == 0


async def _always() -> bool:
    return True


@pytest.mark.parametrize(
    ("tenant", "job_id", "expected"),
    [
        ("acme", None, ["order-1", "j2"]),
        ("acme", "order-1", ["order-1"]),
        ("other", None, ["order-1"]),
        ("other", "@acme:order-1", []),
        ("", None, ["j5"]),
        (None, "@acme:order-1", ["@acme:order-1"]),
        (None, None, ["@acme:order-1", "j2", "@other:order-1", "j5"]),
    ],
)
@run_by(_run)
async def test_a_tenant_hears_of_its_own_jobs_by_their_own_names(
    app: TaskMQ, hub: EventHub, /, tenant: str | None, job_id: str | None, expected: list[str]
) -> None:
    fits = EventFilter(tenant=tenant, job_id=job_id)
    lines = event_lines(hub, "ann", fits, last_id=None, tenant=tenant, most=10, is_allowed=_always)
    await anext(lines)
    for event in (
        _event(1, job_id="@acme:order-1", tenant="acme"),
        _event(2, tenant="acme"),
        _event(3, job_id="@other:order-1", tenant="other"),
        WorkerEvent(event="beat", number=4, at=4, status=STATUS),
        _event(5),
    ):
        hub._publish(event)
    hub.close()
    told = [json.loads(line.partition(b"data: ")[2]) async for line in lines]

    assert [one["job_id"] for one in told if "job_id" in one] == expected
    assert len(told) - len(expected) == (tenant is None and job_id is None)


def test_a_user_has_a_limited_number_of_streams(site: Site) -> None:
    site.hub._users["all-viewer"] = 10

    assert site("GET", "/events", by="all-viewer").status_code == 429


async def test_changes_of_stored_jobs_are_read_once_and_in_order() -> None:
    store = StagedStore(clock=FakeClock())
    driver, events = JobDriver(store), StoreEvents(store)
    await driver.submit()

    assert await events.poll() == []
    assert await events.poll() == []
    job = await driver.submit(tenant="acme", due=HOUR)
    await driver.expect_update(await driver.expect_update(job, priority=3), JobState.HELD, kind="hold")
    found = await events.poll()

    assert [one.event for one in found] == ["submitted", "changed", "held"]
    assert {(one.job_id, one.tenant, one.task, one.queue, one.is_stored) for one in found} == {
        (job.id, "acme", job.task, job.queue, True)
    }
    assert await events.poll() == []


async def test_store_events_identify_jobs_like_run_events_do() -> None:
    store = StagedStore(clock=FakeClock())
    driver, events = JobDriver(store), StoreEvents(store)
    await events.poll()
    await driver.expect_update(await driver.submit(tenant="acme", key="arch-1", due=HOUR), JobState.HELD, kind="hold")
    await driver.submit(key="arch-2")

    found = await events.poll()

    assert sorted((one.event, one.job_id) for one in found) == [
        ("held", "@acme:arch-1"),
        ("submitted", "@acme:arch-1"),
        ("submitted", "arch-2"),
    ]
    wanted = EventFilter(tenant="acme", job_id="arch-1")
    assert [one.event for one in found if wanted(one)] == ["submitted", "held"]


async def test_ends_without_a_run_are_read_once_with_the_names_of_their_states() -> None:
    clock = FakeClock()
    store = StagedStore(clock=clock)
    driver, events = JobDriver(store), StoreEvents(store)
    expired = await driver.submit(queue="short", expires=HOUR)
    failed, unwanted = await driver.dispatch_new(queue="broken"), await driver.dispatch_new(queue="unwanted")
    follower = await driver.submit(detail=after(failed))
    optional = await driver.submit(detail=after(unwanted, condition="failed"))
    await driver.request_cancel(await driver.read(unwanted))
    await events.poll()
    clock.advance(3_600)
    await driver.try_dispatch(queue="short")
    await driver.fail(failed, reason="too large")
    await driver.undispatch(unwanted)
    await driver.release()

    found = {one.job_id: one.event for one in await events.poll()}
    assert found == {
        expired.id: "expired",
        failed.id: "failed",
        unwanted.id: "cancelled",
        follower.id: "upstream_failed",
        optional.id: "skipped",
    }
    assert await events.poll() == []


async def test_changes_during_an_outage_of_the_store_are_read_afterwards() -> None:
    clock = FakeClock()
    store = StagedStore(clock=clock)
    driver, events = JobDriver(store), StoreEvents(store)
    await events.poll()
    job = await driver.submit()
    clock.advance(3_600)

    # An hour without a successful poll.
    assert [(one.event, one.job_id) for one in await events.poll()] == [("submitted", job.id)]


def test_recent_changes_in_a_file_are_found_by_its_keys(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)) as connection:
        schema.JOB_STORE.create(connection)
        plan = connection.execute(f"EXPLAIN QUERY PLAN {records._ACTIONS}", (0, 1)).fetchall()

    steps = [step[3] for step in plan]
    assert [step for step in steps if "SCAN" in step] == ["SCAN e"], steps
    assert any("event_at" in step for step in steps), steps


async def test_streams_get_changes_of_stored_jobs(tmp_path: Path) -> None:
    app = TaskMQ(new_url(), store=f"sqlite:///{tmp_path}/store.db")

    @app.task(name="report")
    async def report() -> None: ...

    async with app, asyncio.timeout(20):
        hub = EventHub(app)
        async with hub.subscribe("ann", EventFilter(kinds=frozenset({"submitted", "cancelled"}))) as (inbox, _):
            await hub.wait_until_ready()
            job = await app.jobs.asubmit(report)
            await app.jobs.acancel(job.id)

            found: list[str] = []
            while len(found) < 2:
                found += [one.event.event for one in await inbox.take(10) if one.event is not None]
            assert found == ["submitted", "cancelled"]
        await hub.aclose()
