"""Examination of an installation: problems of settings, broker, state and job store, each with a remedy."""

import asyncio
import platform
from collections.abc import AsyncIterator
from typing import Final, NamedTuple

from taskmq.app import TaskMQ
from taskmq.contracts.broker import Broker, QueueStats
from taskmq.contracts.broker_abilities import Diagnosable
from taskmq.contracts.finding import Finding
from taskmq.contracts.jobs import JobStore, ReplicaStatus, Replicated
from taskmq.contracts.stores import DiagnosableState, Timekeeper
from taskmq.errors import BrokerUnavailable, StateUnavailable, StoreMismatch, StoreUnavailable
from taskmq.model.jobs.filters import JobFilter
from taskmq.model.states import JobState
from taskmq.model.topology import PARKING, UNROUTABLE, WorkQueue, dead_letter_queue, lane_queue, shard_queue
from taskmq.model.units import Duration, parse_seconds
from taskmq.operations.diagnosis.health import find_schedulers, measure_schedule_delay

_TIMEOUT: Final = 10.0
CLOCK_LIMIT: Final = 2.0
"""Seconds by which clocks may differ."""
_CLOCK_PROBLEM: Final = 30.0
_LATE_SECONDS: Final = 30.0
_MANY: Final = 1_000
_MOST_PARTS: Final = 100
_URL_KEYS: Final = ("url", "state", "store", "store_replica")


class Examination(NamedTuple):
    """Findings of the doctor.

    Attributes:
        is_complete: whether broker, state and store could be reached.
    """

    findings: list[Finding]
    is_complete: bool

    @property
    def has_problem(self) -> bool:
        return any(finding.level == "problem" for finding in self.findings)


async def examine(app: TaskMQ, *, watch: Duration = 0) -> Examination:
    """Examine an app's settings, broker, state, store and queues without changing anything.

    A part that does not answer is reported as a problem and raises nothing; the others are examined all the same.

    Args:
        watch: time after which to examine the broker again, to find messages that are stuck in a queue.
    """
    async with app:
        found = await examine_servers(app, watch=watch)
    general = [Finding("ok", "python", platform.python_version()), *_list_settings(app)]
    return Examination([*general, *found.findings], is_complete=found.is_complete)


async def examine_servers(app: TaskMQ, *, watch: Duration = 0, within: Duration | None = None) -> Examination:
    """Examine broker, state and store of a connected app concurrently, as `examine` does.

    Args:
        watch: see `examine`.
        within: the time limit for each of them; its findings up to then are kept.
    """
    limit = None if within is None else parse_seconds(within, what="within")
    # Half of the time, so that a part that is down is a problem, and one that is slow is not.
    patience = _TIMEOUT if limit is None else limit / 2
    parts = await asyncio.gather(
        _collect("broker", _examine_broker(app, parse_seconds(watch, what="watch"), patience), limit, "--url"),
        _collect("state", _examine_state(app, patience), limit, "--state"),
        _collect("store", _examine_store(app, patience), limit, "--store"),
    )
    return Examination(
        [finding for part in parts for finding in part.findings],
        is_complete=all(part.is_complete for part in parts),
    )


async def _collect(part: str, looks: AsyncIterator[Finding], limit: float | None, option: str) -> Examination:
    findings: list[Finding] = []
    remedy = f"is it running, and is the URL right? {option}"
    try:
        async with asyncio.timeout(limit):
            async for finding in looks:
                findings.append(finding)  # noqa: PERF401 - keep the findings from before an error
    except TimeoutError:
        text = f"examined in part: it took longer than {limit:g} s"
        findings.append(Finding("warning", part, text, "`taskmq doctor` examines it without a limit"))
    except (BrokerUnavailable, StateUnavailable, StoreUnavailable) as error:
        findings.append(Finding("problem", part, str(error), remedy))
    else:
        return Examination(findings, is_complete=True)
    return Examination(findings, is_complete=False)


def _list_settings(app: TaskMQ) -> list[Finding]:
    origin = app.sessions.settings.origin
    return [
        Finding("ok", "settings", f"{key} comes from {source}" if key in _URL_KEYS else f"{key}: {source}")
        for key, source in origin.items()
    ] or [Finding("ok", "settings", "none given: the embedded broker in .taskmq")]


async def _examine_broker(app: TaskMQ, watch: float, patience: float) -> AsyncIterator[Finding]:
    broker = app.sessions.current().broker
    await broker.connect(timeout=patience)
    yield Finding("ok", "broker", broker.address)
    if isinstance(broker, Diagnosable):
        hands_over = app.sessions.state_url is not None
        for finding in await broker.diagnose(_longest_runs(app), watch=watch, hands_over=hands_over):
            yield finding
    for entry in await broker.stats([PARKING, UNROUTABLE]):
        if entry.ready:
            yield Finding(
                "problem",
                entry.queue,
                f"{entry.ready} messages that no worker can run",
                f"taskmq dlq list {entry.queue}; once its cause is gone, taskmq dlq replay {entry.queue}",
            )
    for queue in app.tasks.queues:
        stats = {entry.queue: entry for entry in await broker.stats([*queue.physical, dead_letter_queue(queue.name)])}
        letters = stats.pop(dead_letter_queue(queue.name), None)
        if letters and letters.ready:
            yield Finding("warning", queue.name, f"{letters.ready} dead letters", f"taskmq dlq groups {queue.name}")
        if not stats:
            yield Finding("warning", queue.name, "the queue does not exist yet", "start a worker")
        elif sum(entry.consumers for entry in stats.values()) == 0:
            waiting = sum(entry.ready for entry in stats.values())
            yield Finding(
                "problem" if waiting else "warning",
                queue.name,
                f"no consumer, {waiting} messages wait",
                "start a worker",
            )
        async for entry in _find_former_parts(broker, queue):
            if entry.ready and not entry.consumers:
                text = f"{entry.ready} messages wait without a consumer: the definition of {queue.name!r} has changed"
                remedy = "run a worker with the former definition until it is empty"
                yield Finding("problem", entry.queue, text, remedy)


async def _find_former_parts(broker: Broker, queue: WorkQueue) -> AsyncIterator[QueueStats]:
    """Yield existing broker queues that belong to another definition of `queue`, not to the present one."""
    usual = [name for name in WorkQueue(queue.name).physical if name not in queue.physical]
    for entry in await broker.stats(usual):
        yield entry
    # Lanes and shards are declared together, in order: after the first missing one there are none. RabbitMQ logs a
    # line for each request about a missing queue.
    for name_of, first in ((lane_queue, queue.lanes or 0), (shard_queue, queue.ordered or 0)):
        for number in range(first, _MOST_PARTS):
            found = await broker.stats([name_of(queue.name, number)])
            if not found:
                break
            yield found[0]


async def _examine_state(app: TaskMQ, patience: float) -> AsyncIterator[Finding]:
    state = app.sessions.current().state
    if state is None:
        yield Finding("warning", "state", "none: no results, no beat", "TaskMQ(..., state=...) or $TASKMQ_STATE")
        return
    try:
        async with asyncio.timeout(patience):
            await state.results.get("doctor")
    except (StateUnavailable, TimeoutError) as error:
        raise StateUnavailable(f"{state.address}: {str(error) or 'no answer'}") from error
    yield Finding("ok", "state", state.address)
    if isinstance(state, DiagnosableState):
        for finding in await state.diagnose():
            yield finding
    if isinstance(state, Timekeeper):
        yield _compare_clocks(await state.server_now_ms() - app.sessions.clock.now_ms())


async def _examine_store(app: TaskMQ, patience: float) -> AsyncIterator[Finding]:
    store = app.sessions.current().store
    if store is None:
        return
    try:
        async with asyncio.timeout(patience):
            await store.check()
    except StoreMismatch as error:
        yield Finding("problem", "store", str(error), "taskmq store upgrade, with the taskmq that the app runs")
        return
    except TimeoutError:
        raise StoreUnavailable(f"{store.address}: no answer") from None
    yield Finding("ok", "store", store.address)
    for finding in await store.diagnose():
        yield finding
    if (replica := await read_replica_status(store)) is not None:
        yield _judge_replica(replica)
    now = await store.now_ms()
    yield _compare_clocks(now - app.sessions.clock.now_ms(), of="store")
    yield await _examine_schedulers(store)
    if (late := await measure_schedule_delay(store, now=now)) >= _LATE_SECONDS:
        text = f"the latest schedule has been due for {late:.0f} s"
        yield Finding(
            "problem", "schedules", text, "`taskmq status` shows which partitions have no scheduler, or are late"
        )


async def read_replica_status(store: JobStore | None) -> ReplicaStatus | None:
    """Return the status of the store's replica; None if there is none."""
    if not isinstance(store, Replicated):
        return None
    return await store.replica_status()


def _judge_replica(status: ReplicaStatus) -> Finding:
    if status.is_promoted:
        return Finding(
            "problem",
            "replica",
            f"{status.address}: {status.problem}",
            "stop the server that is not the primary, and name a standby in store_replica",
        )
    if status.problem:
        text = f"{status.address} is not read, the store answers in its place: {status.problem}"
        return Finding("warning", "replica", text, "check that it runs, streams from the store, and replays in time")
    behind = "it may be behind by an unknown time" if status.age is None else f"at most {status.age:.1f} s behind"
    cancelled = f"; it cancelled {status.conflicts} reads for its recovery" if status.conflicts else ""
    return Finding("ok", "replica", f"{status.address}: {behind}{cancelled}")


async def _examine_schedulers(store: JobStore) -> Finding:
    found = await find_schedulers(store)
    if not found.free:
        return Finding("ok", "store", f"{found.owners} scheduler(s) hold its {found.partitions} partitions")
    waiting = await store.count_jobs(JobFilter(states=frozenset({JobState.QUEUED})), cap=_MANY)
    ready = f"over {_MANY:,}" if waiting > _MANY else waiting
    text = f"{found.free} of {found.partitions} partitions have no scheduler; ready jobs: {ready}"
    return Finding("problem" if waiting else "warning", "store", text, "start `taskmq scheduler`")


def _compare_clocks(offset: int, *, of: str = "state") -> Finding:
    seconds = abs(offset) / 1000
    if seconds < CLOCK_LIMIT:
        return Finding("ok", of, f"clock: within {CLOCK_LIMIT:g} s of this host's")
    side = "ahead of" if offset > 0 else "behind"
    return Finding(
        "problem" if seconds >= _CLOCK_PROBLEM else "warning",
        of,
        f"clock: {seconds:.0f} s {side} this host's: expiry, schedules and leases are off by as much",
        "let NTP (chrony, systemd-timesyncd) set the clock on every host",
    )


def _longest_runs(app: TaskMQ) -> dict[WorkQueue, float | None]:
    """Return how long a worker may hold messages of each queue; None if one of its tasks has no time limit."""
    loads: dict[WorkQueue, float | None] = {}
    for queue in app.tasks.queues:
        limits = [task.plan.timeout for task in app.tasks.values() if task.queue == queue.name]
        known = [limit for limit in limits if limit is not None]
        loads[queue] = max(known) if known and len(known) == len(limits) else None
    return loads
