"""Signals of schedulers over the broker: ready jobs, free partitions, live workers and known tasks.

Signals are hints that may get lost: nothing waits for one longer than half a second, and without reports of workers a
window of a fixed size is used.
Silence of a worker means that it is gone only if the scheduler can hear it. A listener does not report that it is cut
off, nor a broker that it drops messages. The scheduler therefore sends itself a message every 4 s, and counts as deaf
if that does not arrive.
"""

import asyncio
import logging
import uuid
from collections.abc import Callable, Collection
from typing import Final

from taskmq.contracts.broker import Broker
from taskmq.contracts.broker_abilities import Broadcasting
from taskmq.contracts.jobs import READY_TOPIC, RUNS_TOPIC, decode_lanes
from taskmq.durable.announcements import listen
from taskmq.durable.service import pause
from taskmq.errors import MalformedMessage
from taskmq.model.commands import PAUSES_ASKED, QUEUES, TASKS, Command, command_topic, encode_command
from taskmq.model.jobs.registrations import TASKS_TOLD
from taskmq.model.telemetry.events import WORKER_EVENTS, WorkerEvent, decode_batch
from taskmq.model.telemetry.worker_status import WorkerStatus
from taskmq.scheduler.pauses import PausedQueues
from taskmq.scheduler.wakeups import DUE_TOPIC, FREED_TOPIC, Wakeups

_log = logging.getLogger("taskmq.scheduler")

_ECHO: Final = "store.echo."
_WORKER: Final = "worker."
_PAUSES_CHANGED: Final = command_topic(QUEUES)
_TOPICS: Final = (
    f"{READY_TOPIC}*",
    f"{DUE_TOPIC}*",
    FREED_TOPIC,
    RUNS_TOPIC,
    WORKER_EVENTS,
    TASKS_TOLD,
    PAUSES_ASKED,
    _PAUSES_CHANGED,
)
# Workers report every ten seconds.
_SILENT: Final = 35.0
# A killed worker does not report its end, and its successor has another name.
_FORGOTTEN: Final = 600.0
_MOST_LEFT: Final = 1_000
_ECHO_EVERY: Final = 4.0
# Long enough to lose one echo; at most one report of each worker is missed in this time.
_DEAF: Final = 10.0


class LiveWorkers:
    """The workers that reported lately, and their capacities."""

    def __init__(self) -> None:
        self._heard: dict[str, tuple[float, WorkerStatus]] = {}
        # When workers said that they end, by name: ms since the epoch, by their clocks.
        self._left: dict[str, int] = {}
        self._slots: dict[str, int] = {}
        self._counted = 0.0
        self._since: float | None = None
        self._proven = 0.0

    def __len__(self) -> int:
        """Return the number of remembered workers."""
        return len(self._heard)

    def start_hearing(self) -> None:
        """Record that workers can be heard now."""
        if self._listening_seconds() is None:
            self._since = _now()
        self._proven = _now()

    def stop_hearing(self) -> None:
        """Record that workers can no longer be heard."""
        self._since = None

    def hear(self, event: WorkerEvent) -> None:
        """Record an event of a worker."""
        # Two workers may have the same name.
        name = f"{event.worker} {event.status.host}:{event.status.pid}"
        # Keeps the dictionary ordered by the last report.
        self._heard.pop(name, None)
        if event.event != "offline":
            self._heard[name] = (_now(), event.status)
        else:
            self._left.pop(event.status.name, None)
            self._left[event.status.name] = event.at
            if len(self._left) > _MOST_LEFT:
                del self._left[next(iter(self._left))]
        while self._heard and _now() - next(iter(self._heard.values()))[0] > _FORGOTTEN:
            del self._heard[next(iter(self._heard))]
        self._counted = 0.0

    def slots_of(self, queue: str) -> int | None:
        """Return the slots of the workers that consume a queue; None if no such worker is known."""
        now = _now()
        if now - self._counted > 1.0 or not self._counted:
            self._slots = {}
            for status in self._list_consuming():
                for name in status.queues:
                    self._slots[name] = self._slots.get(name, 0) + status.slots
            self._counted = now
        return self._slots.get(queue)

    def queues(self) -> set[str]:
        """Return the queues that workers consume."""
        return {name for status in self._list_consuming() for name in status.queues}

    def count_of(self, queue: str) -> int:
        """Return the number of workers that consume a queue, without paused and draining ones."""
        return sum(queue in status.queues for status in self._list_consuming())

    def count_unpacking(self, queue: str) -> int:
        """Return the number of workers that consume a queue; 0 if one of them does not unpack parcels."""
        parcels = [status.parcels for status in self._list_consuming() if queue in status.queues]
        return len(parcels) if all(parcels) else 0

    def versions_of(self, queue: str) -> set[str]:
        """Return the versions of the app that workers of a queue run; "" for a worker without one.

        If no known worker consumes the queue, its jobs may go to any worker: return the versions of all.
        """
        consuming = self._list_consuming()
        own = [status for status in consuming if queue in status.queues]
        return {status.app_version for status in own or consuming}

    @property
    def knows_all(self) -> bool:
        """Whether it has listened long enough to have heard every live worker."""
        listens = self._listening_seconds()
        return listens is not None and listens >= _SILENT

    def have_in_hand(self, queue: str) -> bool:
        """Whether a live worker reports that it holds deliveries of a queue."""
        return any(status.in_hand.get(queue, 0) for status in self._list_live())

    def is_absent(self, worker: str, *, seconds: float, since: int | None = None) -> bool:
        """Return whether a worker has been silent for this long, although it would have been heard.

        Args:
            since: start of the run, ms since the epoch; a later process of the same name is another worker.
        """
        listens = self._listening_seconds()
        if listens is None or listens < seconds:
            return False
        return all(_now() - at >= seconds for at in self._heard_of(worker, since))

    def was_heard(self, worker: str, *, since: int | None) -> bool:
        """Return whether a worker was heard lately; `since` as in `is_absent`."""
        return bool(self._heard_of(worker, since))

    def has_left(self, worker: str, *, since: int | None) -> bool:
        """Return whether a worker announced its end after an instant (ms since the epoch)."""
        return self._left.get(worker, -1) >= (since or 0)

    def has_missed(self, queue: str, *, since: float) -> bool:
        """Return whether a worker of the queue was alive shortly before an instant and has been silent since.

        Args:
            since: an instant of the loop's clock, so long ago that each live worker would have been heard.
        """
        return any(since - _SILENT < at <= since and queue in status.queues for at, status in self._heard.values())

    def _heard_of(self, worker: str, since: int | None) -> list[float]:
        return [
            at
            for at, status in self._heard.values()
            if status.name == worker and (since is None or status.started <= since)
        ]

    def _listening_seconds(self) -> float | None:
        """Return the seconds of listening; None if it is deaf, even if that was not noticed yet."""
        if self._since is None or _now() - self._proven >= _DEAF:
            return None
        return _now() - self._since

    def _list_consuming(self) -> list[WorkerStatus]:
        return [status for status in self._list_live() if status.state not in ("draining", "paused")]

    def _list_live(self) -> list[WorkerStatus]:
        oldest = _now() - _SILENT
        return [status for at, status in self._heard.values() if at >= oldest]


class Signals:
    """A service that receives the signals for one scheduler.

    Args:
        on_free: called when partitions may be free.
        on_runs: called with the ids of runs that have something to do.
        on_tasks: called with a worker's report of its tasks; workers are asked for it at the start.
        on_worker: called with each event of a worker.
    """

    def __init__(
        self,
        broker: Broker,
        workers: LiveWorkers,
        wakeups: Wakeups,
        pauses: PausedQueues,
        *,
        on_free: Callable[[], None],
        on_runs: Callable[[Collection[str]], None],
        on_tasks: Callable[[bytes], None],
        on_worker: Callable[[WorkerEvent], None],
    ) -> None:
        self._broker = broker
        self._workers = workers
        self._wakeups = wakeups
        self._pauses = pauses
        self._on_free = on_free
        self._on_runs = on_runs
        self._on_tasks = on_tasks
        self._on_worker = on_worker
        self._echo = f"{_ECHO}{uuid.uuid4().hex}"
        self._is_stopping = asyncio.Event()

    def stop(self) -> None:
        """See `Service`."""
        self._is_stopping.set()

    async def run(self) -> None:
        """Receive signals until `stop`."""
        if not isinstance(self._broker, Broadcasting):
            return
        listening = await listen(
            self._broker, (*_TOPICS, self._echo), self._receive, stop=self._is_stopping, complain=_complain
        )
        if listening is None:
            return
        self._workers.start_hearing()
        self._announce(command_topic(TASKS), encode_command(Command(id=uuid.uuid4().hex, name=TASKS)))
        try:
            while not await pause(self._is_stopping, _ECHO_EVERY):
                self._announce(self._echo)
        finally:
            self._workers.stop_hearing()
            await listening.stop()

    def _receive(self, topic: str, body: bytes) -> None:
        partition = topic.rpartition(".")[2]
        if topic.startswith(READY_TOPIC):
            if partition.isdecimal():
                self._wakeups.wake_here(int(partition), decode_lanes(body))
        elif topic.startswith(DUE_TOPIC):
            if partition.isdecimal() and body.isdigit():
                self._wakeups.expect_here(int(partition), int(body) / 1000)
        elif topic == FREED_TOPIC:
            self._on_free()
        elif topic == RUNS_TOPIC:
            self._on_runs(body.decode(errors="replace").split())
        elif topic == self._echo:
            self._workers.start_hearing()
        elif topic == TASKS_TOLD:
            self._on_tasks(body)
        elif topic == PAUSES_ASKED:
            self._pauses.wake()
        elif topic == _PAUSES_CHANGED:
            self._pauses.hear(body)
        elif topic.startswith(_WORKER):
            self._hear_workers(topic, body)

    def _hear_workers(self, topic: str, body: bytes) -> None:
        try:
            batch = decode_batch(topic, body)
        except MalformedMessage as error:
            _log.debug("topic %r: %s", topic, error)
            return
        for event in batch.events:
            if isinstance(event, WorkerEvent):
                self._workers.hear(event)
                self._on_worker(event)

    def _announce(self, topic: str, body: bytes = b"") -> None:
        if isinstance(self._broker, Broadcasting):
            self._broker.announce(topic, body)


def _complain(error: Exception) -> None:
    _log.warning("no signals of new jobs are received, polling for them: %s", error)


def _now() -> float:
    return asyncio.get_running_loop().time()
