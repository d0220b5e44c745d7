"""Facts about the running installation for operators: schedulers, partitions, clocks, and the size of the store."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Mapping, Sequence
from typing import Final, Literal, NamedTuple, TypeVar

from taskmq.app import TaskMQ
from taskmq.contracts.finding import Finding
from taskmq.contracts.jobs import ReplicaStatus, partition_key
from taskmq.contracts.stores import Timekeeper
from taskmq.errors import MalformedMessage, TaskMQError
from taskmq.model.commands import CommandAnswer
from taskmq.model.telemetry.scheduler_report import SCHEDULERS, SchedulerReport, decode_report
from taskmq.operations.diagnosis.doctor import CLOCK_LIMIT, examine_servers, read_replica_status
from taskmq.operations.diagnosis.health import Part, PartHealth, examine_parts
from taskmq.operations.workers import list_workers
from taskmq.version import VERSION

T = TypeVar("T")

ProcessVersion = tuple[Literal["server", "scheduler", "worker"], str, str]
"""The kind of a process, and its versions of taskmq and of the app."""

_TIMEOUT: Final = 2.0
_WORKERS_ANSWER: Final = 0.5
# Longer than the parts, since the doctor asks for much more.
_DOCTOR_TIMEOUT: Final = 4.0


class PartitionFacts(NamedTuple):
    """A partition of the store.

    Attributes:
        holder: the scheduler that holds it; None if no scheduler does.
        late: seconds since its first unfired job or retry became due.
        rate: jobs dispatched per second; None if its holder has not reported it.
    """

    number: int
    holder: str | None
    late: float
    rate: float | None


class ClockFacts(NamedTuple):
    """The clock of a host or server.

    Attributes:
        of: name of the scheduler or worker, or the kind.
        offset: seconds by which it is ahead of this host's.
        is_wrong: whether it differs too much from the store's, or without a store from this host's.
    """

    kind: Literal["store", "state", "scheduler", "worker"]
    of: str
    offset: float
    is_wrong: bool


class SystemFacts(NamedTuple):
    """Facts about the parts of an installation and their processes.

    Attributes:
        addresses: URLs of store, broker and state, without passwords.
        size: bytes of the store's database; None if unknown.
        schedulers: reports of the schedulers that run, by name.
        versions: number of processes by version; this process is the server.
        replica: the replica of the store; None if there is none.
    """

    parts: list[PartHealth]
    addresses: dict[Part, str]
    size: int | None
    schedulers: dict[str, SchedulerReport]
    partitions: list[PartitionFacts]
    clocks: list[ClockFacts]
    versions: Mapping[ProcessVersion, int]
    replica: ReplicaStatus | None


class _StoreFacts(NamedTuple):
    size: int | None
    offset: float | None
    schedulers: dict[str, SchedulerReport]
    partitions: list[PartitionFacts]


async def examine_system(app: TaskMQ) -> SystemFacts:
    """Check all parts, and read what schedulers and workers report. Returns within two seconds, and never raises.

    Facts of a part that does not answer are missing.
    """
    session = app.sessions.current()
    store, state = session.store, session.state
    parts, stored, state_offset, workers, replica = await asyncio.gather(
        examine_parts(app),
        _read_or(_StoreFacts(None, None, {}, []), _read_store(app)),
        _read_or(None, _compare_state_clock(app)),
        _read_or([], list_workers(app, within=_WORKERS_ANSWER)),
        _read_or(None, read_replica_status(store)),
    )
    addresses: dict[Part, str] = {"broker": session.broker.address}
    if store is not None:
        addresses["store"] = store.address
    if state is not None:
        addresses["state"] = state.address
    right = stored.offset or 0.0
    offsets: list[tuple[Literal["store", "state", "scheduler", "worker"], str, float | None]] = [
        ("store", "store", stored.offset),
        ("state", "state", state_offset),
        *(("scheduler", name, right + report.clock_offset) for name, report in stored.schedulers.items()),
        *(("worker", answer.worker, answer.clock_offset) for answer in workers),
    ]
    clocks = [
        ClockFacts(kind, of, round(offset, 3), abs(offset - (0.0 if kind == "store" else right)) >= CLOCK_LIMIT)
        for kind, of, offset in offsets
        if offset is not None
    ]
    return SystemFacts(
        parts,
        addresses,
        stored.size,
        stored.schedulers,
        stored.partitions,
        clocks,
        _count_versions(app, stored.schedulers, workers),
        replica,
    )


async def find_problems(app: TaskMQ) -> list[Finding]:
    """Return the doctor's problems and warnings about broker, state and store. Returns within four seconds."""
    found = await examine_servers(app, within=_DOCTOR_TIMEOUT)
    return [finding for finding in found.findings if finding.level != "ok"]


async def _read_or(default: T, read: Awaitable[T]) -> T:
    try:
        async with asyncio.timeout(_TIMEOUT):
            return await read
    except (TimeoutError, TaskMQError):
        return default


async def _read_store(app: TaskMQ) -> _StoreFacts:
    store = app.sessions.store()
    now = await store.now_ms()
    offset = (now - app.sessions.clock.now_ms()) / 1000
    reports: dict[str, SchedulerReport] = {}
    for name, member in (await store.dispatching.leases.members(SCHEDULERS)).items():
        try:
            reports[name] = decode_report(member.note)
        except MalformedMessage:
            # Another version may have written it.
            continue
    partitions: list[PartitionFacts] = []
    for number in range(store.dispatching.partitions):
        lease = await store.dispatching.leases.find(partition_key(number))
        due = await store.dispatching.due(number, until=now, limit=1)
        report = None if lease is None else reports.get(lease.owner)
        partitions.append(
            PartitionFacts(
                number,
                None if lease is None else lease.owner,
                (now - due[0].due) / 1000 if due else 0.0,
                None if report is None else report.rates.get(number),
            )
        )
    return _StoreFacts(await store.size(), offset, reports, partitions)


async def _compare_state_clock(app: TaskMQ) -> float | None:
    state = app.sessions.current().state
    if not isinstance(state, Timekeeper):
        return None
    return (await state.server_now_ms() - app.sessions.clock.now_ms()) / 1000


def _count_versions(
    app: TaskMQ, schedulers: Mapping[str, SchedulerReport], workers: Sequence[CommandAnswer]
) -> Counter[ProcessVersion]:
    found: Counter[ProcessVersion] = Counter({("server", VERSION, app.sessions.app_version): 1})
    found.update(("scheduler", report.version, report.app_version) for report in schedulers.values())
    found.update(("worker", answer.status.version, answer.status.app_version) for answer in workers)
    return found
