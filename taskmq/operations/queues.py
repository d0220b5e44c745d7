"""Queues as people name them: what is in them, emptying them, and pausing them."""

import secrets
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from taskmq.app import TaskMQ
from taskmq.client.queues import QueuePause, pause_queue, paused_queues, resume_queue
from taskmq.contracts.broker import Broadcasting, Broker, Counting, QueueStats
from taskmq.contracts.stores import ScheduleStore, require_store
from taskmq.errors import InvalidOption, QueueMissing, StateUnavailable, UnsupportedFeature
from taskmq.model.commands import QUEUES, Command, command_topic, encode_command
from taskmq.model.telemetry.worker_status import WorkerStatus
from taskmq.model.topology import (
    MOST_LANES,
    PARKING,
    UNROUTABLE,
    WorkQueue,
    dead_letter_queue,
    is_jobs_queue,
    lane_queue,
    slow_lane,
)
from taskmq.model.units import Duration, did_you_mean
from taskmq.operations.workers import list_workers

__all__ = [
    "QueueList",
    "QueueReport",
    "find_parts",
    "find_pauses",
    "list_queues",
    "missing_queue",
    "pause_queues",
    "purge_queue",
    "report_queue",
    "resume_queues",
]

_MOST_DELAYED = 10_000


class QueueReport(msgspec.Struct, frozen=True, kw_only=True):
    """One queue as people name it, at one moment.

    Attributes:
        queue: how it is described.
        ready: messages that wait for a worker.
        in_hand: messages in workers' hands; where the broker does not tell, as the workers that answer say.
        delayed: jobs and retries that wait for their time, in the state up to 10,000 of them; None where the broker
            has them and does not tell whose they are.
        dead: dead letters; None where the queue does not exist yet.
        consumers: how many consume it at the broker: a worker counts once, whatever classes or shards there are.
        paused: since when and why it is paused; None where it is not, or that is unknown.
        tasks: of the app, that use it.
        workers: names of those that answer and consume it.
        parts: its queues at the broker that exist.
    """

    queue: WorkQueue
    ready: int
    in_hand: int
    delayed: int | None
    dead: int | None
    consumers: int
    paused: QueuePause | None
    tasks: list[str]
    workers: list[str]
    parts: list[QueueStats]


class QueueList(NamedTuple):
    """Queues at one moment.

    Attributes:
        queues: in all their priority classes or shards, and their dead-letter queues; last what no worker can run.
            Messages in workers' hands that the broker does not tell are those that answering workers say, in the
            queue itself.
        delayed: jobs and retries that wait for their time, at the broker and in the state; of all queues where the
            broker does not tell by queue; None where it does not tell at all.
    """

    queues: list[QueueStats]
    delayed: int | None


async def list_queues(app: TaskMQ, names: Sequence[str] = (), *, within: Duration = 1.0) -> QueueList:
    """What is in queues.

    Args:
        names: of queues, also of single ones at the broker such as `orders.s02`; none: all that the app knows.
        within: how long the workers have to answer, where they have to be asked.

    Raises:
        InvalidOption: no queue is named, and the app has none; or a queue cannot be called that.
        BrokerUnavailable: the broker could not be reached.
    """
    broker = app.sessions.current().broker
    found: list[QueueStats] = []
    queues: list[WorkQueue] = []
    for name in names:
        try:
            queues.append(app.producer.queue(name))
        except InvalidOption:
            # No queue of an app, but perhaps a part of one, or one of taskmq's own.
            if not (parts := await broker.stats([name])):
                raise
            found += parts
    queues = queues if names else app.tasks.queues
    if not queues and not found:
        raise InvalidOption("which queues? Name them with -Q a,b or their app with --app MODULE:ATTRIBUTE")
    for queue in queues:
        # What a queue without lanes had of them is looked for on a question for that queue.
        found += await broker.stats(queue.physical) if queue.lanes is None else await find_parts(broker, queue)
        found += await broker.stats([dead_letter_queue(queue.name)])
    found += await broker.stats([PARKING, UNROUTABLE])
    if any(each.unsettled is None for each in found):
        in_hand = await broker.unsettled() if isinstance(broker, Counting) else None
        if in_hand is None:
            in_hand = Counter[str]()
            for answer in await _workers(app, within):
                in_hand.update(answer.in_hand)
        found = [
            each if each.unsettled is not None else replace(each, unsettled=in_hand.get(each.queue, 0))
            for each in found
        ]
    at_broker = await broker.delayed() if isinstance(broker, Counting) else _sum(each.delayed for each in found)
    delays = app.sessions.current().stores.delays
    in_state = 0 if delays is None else await delays.count()
    return QueueList(found, None if at_broker is None else at_broker + in_state)


def _sum(counts: Iterable[int | None]) -> int | None:
    """None where one of them is not known."""
    known = list(counts)
    return None if None in known else sum(count or 0 for count in known)


async def _workers(app: TaskMQ, within: Duration) -> list[WorkerStatus]:
    try:
        return [answer.status for answer in await list_workers(app, within=within)]
    except UnsupportedFeature:
        # A broker without broadcasts.
        return []


async def report_queue(app: TaskMQ, name: str, *, within: Duration = 1.0) -> QueueReport:
    """What is known of one queue, from the broker, the state and the workers.

    Args:
        within: how long the workers have to answer.

    Raises:
        InvalidOption: a queue cannot be called that.
        QueueMissing: it is neither the app's nor at the broker.
        BrokerUnavailable: the broker could not be reached.
    """
    session, queue = app.sessions.current(), app.producer.queue(name)
    parts = await find_parts(session.broker, queue)
    letters = await session.broker.stats([dead_letter_queue(name)])
    tasks = sorted(task.name for task in app.tasks.values() if task.queue == name)
    if not parts and not tasks:
        raise missing_queue(app, name)
    answers = await _workers(app, within)
    unsettled = [each.unsettled for each in parts]
    return QueueReport(
        queue=queue,
        ready=sum(each.ready for each in parts),
        in_hand=(
            sum(status.in_hand.get(name, 0) for status in answers)
            if None in unsettled
            else sum(count or 0 for count in unsettled)
        ),
        delayed=await _count_delayed(app, queue, parts),
        dead=letters[0].ready if letters else 0 if parts else None,
        consumers=max((each.consumers for each in parts), default=0),
        paused=(await find_pauses(app) or {}).get(name),
        tasks=tasks,
        workers=[status.name for status in answers if name in status.queues],
        parts=parts,
    )


async def _count_delayed(app: TaskMQ, queue: WorkQueue, parts: Sequence[QueueStats]) -> int | None:
    at_broker = _sum(each.delayed for each in parts)
    delays = app.sessions.current().stores.delays
    if app.sessions.delay == "broker" or delays is None:
        return at_broker
    in_state = len(await delays.list(limit=_MOST_DELAYED, queues=queue.physical))
    return in_state + (at_broker or 0)


async def purge_queue(app: TaskMQ, name: str) -> int:
    """Delete the waiting messages of a queue, in all its priority classes or shards; how many there were.

    Invitations to jobs of the store stay: the store would take their jobs for lost, and dispatch them again.
    Those are cancelled in the store.

    Raises:
        QueueMissing: there is no such queue.
        BrokerUnavailable: the broker could not be reached.
    """
    broker = app.sessions.current().broker
    queue = app.producer.queue(name)
    there = [entry.queue for entry in await find_parts(broker, queue) if not is_jobs_queue(entry.queue)]
    # Without the others the queue is complete; without these it is missing.
    return sum([await broker.purge(physical) for physical in dict.fromkeys((*queue.always, *there))])


async def find_parts(broker: Broker, queue: WorkQueue) -> list[QueueStats]:
    """The parts of a queue that are at the broker, also the lanes that it had when it was described with more.

    Raises:
        BrokerUnavailable: the broker could not be reached.
    """
    parts = await broker.stats(queue.physical)
    # Lanes are made all at once: behind the first that is missing there is none.
    for number in range(queue.lanes or 0, MOST_LANES):
        lane = await broker.stats([lane_queue(queue.name, number)])
        if not lane:
            return parts
        if not number:
            parts += await broker.stats([slow_lane(queue.name)])
        parts += lane
    return parts


async def find_pauses(app: TaskMQ) -> dict[str, QueuePause] | None:
    """The queues that are paused, by name; None where that is unknown: no state, or none that answers."""
    store = app.sessions.current().stores.schedules
    if store is None:
        return None
    try:
        return await paused_queues(store)
    except StateUnavailable:
        return None


async def pause_queues(app: TaskMQ, names: Sequence[str], *, note: str = "", by: str = "") -> dict[str, QueuePause]:
    """Have no worker start anything of these queues until they are resumed; their pauses, by name.

    It is kept in the state, so it holds for workers that start later, too. Workers that run stop taking from the
    queues at once, or within ten seconds where they take no commands, and give back what they have taken and not
    begun, without an attempt being counted. What runs goes on; sends, delays and retries do as well, and wait in the
    queue.

    Args:
        note: why, for people.
        by: who pauses them; shown with the pause.

    Raises:
        InvalidOption: a queue cannot be called that.
        QueueMissing: a queue is neither the app's nor at the broker; nothing was paused.
        UnsupportedFeature: the app has no state.
        StateUnavailable: the state could not be reached; some may be paused.
        BrokerUnavailable: the broker could not be reached.
    """
    store = _pause_store(app)
    await _check(app, names)
    pause = QueuePause(app.sessions.clock.now_ms(), note, by)
    paused = {name: await pause_queue(store, name, pause) for name in names}
    _tell_workers(app)
    return paused


async def resume_queues(app: TaskMQ, names: Sequence[str]) -> list[str]:
    """Have workers take from these queues again; those of them that were paused.

    Raises as `pause_queues` does; a paused queue need not be there.
    """
    store = _pause_store(app)
    resumed = [name for name in dict.fromkeys(names) if await resume_queue(store, name)]
    await _check(app, [name for name in names if name not in resumed])
    _tell_workers(app)
    return resumed


def _pause_store(app: TaskMQ) -> ScheduleStore:
    return require_store(app.sessions.current().stores.schedules, "paused queues need")


async def _check(app: TaskMQ, names: Sequence[str]) -> None:
    known = [queue.name for queue in app.tasks.queues]
    for name in names:
        queue = app.producer.queue(name)
        if name not in known and not await app.sessions.current().broker.stats(queue.physical):
            raise missing_queue(app, name)


def missing_queue(app: TaskMQ, name: str) -> QueueMissing:
    """Make the error about a queue that is not at the broker, with what to do about it."""
    known = [queue.name for queue in app.tasks.queues]
    if name in known:
        return QueueMissing(name, "the app has it, and its first worker or message declares it")
    return QueueMissing(name, did_you_mean(name, known) if known else "")


def _tell_workers(app: TaskMQ) -> None:
    """Have the workers that listen look at once; the others look by themselves."""
    broker = app.sessions.current().broker
    if isinstance(broker, Broadcasting):
        broker.announce(command_topic(QUEUES), encode_command(Command(id=secrets.token_hex(8), name=QUEUES)))
