"""Queues by their logical names: list, count, purge, pause and resume."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from taskmq.app import TaskMQ
from taskmq.client.queues import announce_pauses
from taskmq.contracts.broker import Broker, QueueStats
from taskmq.contracts.broker_abilities import Counting
from taskmq.contracts.jobs import Lane, PauseStore, QueueBacklog
from taskmq.contracts.stores import coordinator_required
from taskmq.errors import InvalidOption, QueueMissing, StateUnavailable, StoreUnavailable, UnsupportedFeature
from taskmq.events.control import reach_broker
from taskmq.model.commands import QueuePause
from taskmq.model.telemetry.worker_status import WorkerStatus
from taskmq.model.topology import (
    MOST_LANES,
    PARKING,
    UNROUTABLE,
    WorkQueue,
    dead_letter_queue,
    is_jobs_queue,
    lane_queue,
    logical_queue,
    slow_lane,
)
from taskmq.model.units import Duration, did_you_mean
from taskmq.operations.audit.actions import RecordAction, record_as
from taskmq.operations.workers import list_workers

_MOST_DELAYED = 10_000
MOST_WAITING = 100_000


class QueueDemand(NamedTuple):
    """The jobs of a queue that need a slot of a worker now, each in one of three places.

    Attributes:
        stored: due jobs of the store that are not dispatched yet, at most 100,000; None if the app has no store.
        ready: messages at the broker that wait for a worker.
        in_hand: messages that workers hold.
        oldest: when the first of the stored jobs became due, ms since the epoch; None if there is none.
    """

    stored: int | None
    ready: int
    in_hand: int
    oldest: int | None


class QueueList(NamedTuple):
    """Snapshot of several queues.

    Attributes:
        queues: their classes, lanes or shards and dead-letter queues, followed by the parking and unroutable queues.
            If the broker does not count unsettled messages, those that the answering workers report are added to the
            queue itself.
        delayed: delayed jobs and retries, at the broker and in the state. Covers all queues if the broker does not
            count by queue; None if it does not count at all.
    """

    queues: list[QueueStats]
    delayed: int | None


async def list_queues(app: TaskMQ, names: Sequence[str] = (), *, within: Duration = 1.0) -> QueueList:
    """Return the message counts of queues.

    Args:
        names: logical names, or names of single broker queues such as `orders.s02`; default: all queues of the app.
        within: how long to wait for the workers' answers, if they have to be asked.

    Raises:
        InvalidOption: no queue is named and the app has none, or a name is invalid.
        BrokerUnavailable: the broker could not be reached.
    """
    broker = app.sessions.current().broker
    found: list[QueueStats] = []
    queues: list[WorkQueue] = []
    parts: dict[str, InvalidOption] = {}
    for name in names:
        try:
            queues.append(app.producer.queue(name))
        except InvalidOption as error:
            # Not a logical queue, but perhaps a part of one, or a queue of taskmq's or the broker's own.
            if logical_queue(name) == name and not name.startswith(("taskmq.", "amq.")):
                raise
            parts[name] = error
    queues = queues if names else app.tasks.queues
    if not queues and not parts:
        raise InvalidOption("no queues given: name them with -Q a,b or their app with --app MODULE:ATTRIBUTE")
    await reach_broker(broker)
    for part, refusal in parts.items():
        if not (stats := await broker.stats([part])):
            raise refusal
        found += stats
    for queue in queues:
        # Former lanes of a queue without lanes are shown only in the details of that queue.
        found += await broker.stats(queue.physical) if queue.lanes is None else await find_parts(broker, queue)
        found += await broker.stats([dead_letter_queue(queue.name)])
    found += await broker.stats([PARKING, UNROUTABLE])
    if any(each.unsettled is None for each in found):
        in_hand = await broker.count_unsettled() if isinstance(broker, Counting) else None
        if in_hand is None:
            in_hand = Counter[str]()
            for answer in await list_statuses(app, within):
                in_hand.update(answer.in_hand)
        found = [
            each if each.unsettled is not None else replace(each, unsettled=in_hand.get(each.queue, 0))
            for each in found
        ]
    at_broker = (
        await broker.count_delayed() if isinstance(broker, Counting) else sum_counts(each.delayed for each in found)
    )
    delays = app.sessions.current().stores.delays
    in_state = 0 if delays is None else await delays.count()
    return QueueList(found, None if at_broker is None else at_broker + in_state)


def sum_counts(counts: Iterable[int | None]) -> int | None:
    """Return the sum; None if one of the counts is unknown."""
    known = list(counts)
    return None if None in known else sum(count or 0 for count in known)


async def measure_demands(app: TaskMQ, names: Sequence[str]) -> dict[str, QueueDemand]:
    """Count the jobs of several queues that need a slot of a worker now, in the store and at the broker.

    Raises:
        InvalidOption: no queue is named, or a name is invalid.
        BrokerUnavailable, StoreUnavailable: a part of them could not be counted.
    """
    lines: dict[str, list[QueueStats]] = {name: [] for name in names}
    for line in (await list_queues(app, names)).queues:
        name = logical_queue(line.queue)
        if name in lines and line.queue != dead_letter_queue(name):
            lines[name].append(line)
    stored = await _read_backlogs(app, names)
    return {
        name: QueueDemand(
            None if stored is None else 0 if (waiting := stored.get(name)) is None else waiting.count,
            sum(line.ready for line in work),
            sum(line.unsettled or 0 for line in work),
            None if stored is None or (waiting := stored.get(name)) is None else waiting.oldest,
        )
        for name, work in lines.items()
    }


async def find_backlogs(app: TaskMQ, names: Sequence[str]) -> dict[str, QueueBacklog] | None:
    """Return what waits in the store for these queues; None if the app has no store, or if it does not answer."""
    try:
        return await _read_backlogs(app, names)
    except StoreUnavailable:
        return None


async def count_lanes(app: TaskMQ, name: str) -> dict[Lane, int]:
    """Return the number of ready jobs of the store in each lane of a queue, of at most 100,000 of its jobs.

    Empty if the app has no store, or if it does not answer.
    """
    store = app.sessions.current().store
    try:
        return {} if store is None else await store.dispatching.count_lanes(name, most=MOST_WAITING)
    except StoreUnavailable:
        return {}


async def _read_backlogs(app: TaskMQ, names: Sequence[str]) -> dict[str, QueueBacklog] | None:
    store = app.sessions.current().store
    return None if store is None else await store.dispatching.backlog(names, most=MOST_WAITING)


async def list_statuses(app: TaskMQ, within: Duration) -> list[WorkerStatus]:
    """Return the statuses of the workers that answer; none if the broker has no broadcasts."""
    try:
        return [answer.status for answer in await list_workers(app, within=within)]
    except UnsupportedFeature:
        return []


async def count_delayed(app: TaskMQ, queue: WorkQueue, parts: Sequence[QueueStats]) -> int | None:
    """Count the delayed jobs and retries of a queue, of those in the state at most 10,000.

    Returns None if the broker holds them and does not count them by queue.
    """
    at_broker = sum_counts(each.delayed for each in parts)
    delays = app.sessions.current().stores.delays
    if app.sessions.delay == "broker" or delays is None:
        return at_broker
    in_state = len(await delays.list(limit=_MOST_DELAYED, queues=queue.physical))
    return in_state + (at_broker or 0)


async def purge_queue(app: TaskMQ, name: str, *, by: str = "", record: RecordAction | None = None) -> int:
    """Delete the waiting messages of a queue, in all its classes, lanes and shards. Returns their number.

    Invitations to stored jobs stay, because the store would take their jobs for lost and dispatch them again. Cancel
    such jobs in the store.

    Args:
        by: who purges it, for the audit; default: the system's user.
        record: writes the audit entry; default: as `by`.

    Raises:
        QueueMissing: there is no such queue.
        BrokerUnavailable: the broker could not be reached.
    """
    broker = app.sessions.current().broker
    queue = app.producer.queue(name)
    there = [entry.queue for entry in await find_parts(broker, queue) if not is_jobs_queue(entry.queue)]
    await (record or record_as(by))(app, "queue.purge", subject=name)
    # Purging raises if one of the queues that always exist is missing; other parts may be missing.
    return sum([await broker.purge(physical) for physical in dict.fromkeys((*queue.always, *there))])


async def find_parts(broker: Broker, queue: WorkQueue) -> list[QueueStats]:
    """Return the parts of a queue that exist at the broker, including lanes of an earlier definition.

    Raises:
        BrokerUnavailable: the broker could not be reached.
    """
    parts = await broker.stats(queue.physical)
    # Lanes are declared together, in order: after the first missing one there are none.
    for number in range(queue.lanes or 0, MOST_LANES):
        lane = await broker.stats([lane_queue(queue.name, number)])
        if not lane:
            return parts
        if not number:
            parts += await broker.stats([slow_lane(queue.name)])
        parts += lane
    return parts


async def find_pauses(app: TaskMQ) -> dict[str, QueuePause] | None:
    """Return the paused queues by name; None if the app has no state and no store, or if it does not answer."""
    if (store := app.sessions.current().pauses) is None:
        return None
    try:
        return await store.queue_pauses()
    except (StateUnavailable, StoreUnavailable):
        return None


async def pause_queues(
    app: TaskMQ, names: Sequence[str], *, note: str = "", by: str = "", record: RecordAction | None = None
) -> dict[str, QueuePause]:
    """Stop workers and schedulers from starting jobs of these queues; return the pauses by name.

    The state keeps the pauses, or if there is none, the job store, so they also hold for workers that start later.
    Running workers stop consuming the queues at once, or within ten seconds if they ignore commands. They return the
    deliveries that have not started; no attempt is counted. Running jobs continue. Sends, delays and retries continue
    and wait in the queue. Schedulers dispatch no stored job to a paused queue.

    Args:
        note: the reason, for people.
        by: who pauses them; shown with the pause and in the audit, where the default is the system's user.
        record: writes the audit entry of each queue; default: as `by`.

    Raises:
        InvalidOption: a queue cannot have that name.
        QueueMissing: neither the app nor the broker has a queue; nothing was paused.
        UnsupportedFeature: the app has neither a state nor a store.
        StateUnavailable, StoreUnavailable: it could not be reached; some queues may be paused.
        BrokerUnavailable: the broker could not be reached.
    """
    store = _pause_store(app)
    await _check_exist(app, names)
    pause = QueuePause(app.sessions.clock.now_ms(), note, by)
    paused: dict[str, QueuePause] = {}
    for name in names:
        await (record or record_as(by))(app, "queue.pause", subject=name, note=note)
        paused[name] = await store.pause_queue(name, pause)
    await _announce(app, store)
    return paused


async def resume_queues(
    app: TaskMQ, names: Sequence[str], *, by: str = "", record: RecordAction | None = None
) -> list[str]:
    """Resume these queues; return those that were paused.

    Takes `by` and `record` of `pause_queues` and raises its errors; a paused queue need not exist at the broker.
    """
    store = _pause_store(app)
    resumed: list[str] = []
    for name in dict.fromkeys(names):
        await (record or record_as(by))(app, "queue.resume", subject=name)
        if await store.resume_queue(name):
            resumed.append(name)
    await _check_exist(app, [name for name in names if name not in resumed])
    await _announce(app, store)
    return resumed


def _pause_store(app: TaskMQ) -> PauseStore:
    if (found := app.sessions.current().pauses) is None:
        raise coordinator_required("paused queues need")
    return found


async def _announce(app: TaskMQ, store: PauseStore) -> None:
    session = app.sessions.current()
    paused = await store.queue_pauses() if store is session.store else None
    announce_pauses(session.broker, app=app.name, paused=paused)


async def _check_exist(app: TaskMQ, names: Sequence[str]) -> None:
    known = [queue.name for queue in app.tasks.queues]
    for name in names:
        queue = app.producer.queue(name)
        if name not in known and not await app.sessions.current().broker.stats(queue.physical):
            raise missing_queue(app, name)


def missing_queue(app: TaskMQ, name: str) -> QueueMissing:
    """Build the error about a queue missing at the broker, with a remedy."""
    known = [queue.name for queue in app.tasks.queues]
    if name in known:
        return QueueMissing(name, "the app defines it; its first worker or message declares it")
    return QueueMissing(name, did_you_mean(name, known) if known else "")
