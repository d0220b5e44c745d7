"""The health of the installation, for operators: parts, schedulers, partitions, clocks, versions and findings."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Mapping, Sequence
from typing import Final, Literal, NamedTuple, TypeVar

from taskmq.api.health import (
    ClockView,
    FindingView,
    PartitionView,
    ReplicaView,
    SchedulerView,
    SystemHealth,
    SystemPart,
    VersionView,
)
from taskmq.app import TaskMQ
from taskmq.app_api.views import instant_text
from taskmq.contracts.jobs import ReplicaStatus, partition_key
from taskmq.contracts.stores import Timekeeper
from taskmq.errors import MalformedMessage, TaskMQError
from taskmq.model.commands import CommandAnswer
from taskmq.model.telemetry.scheduler_report import SCHEDULERS, SchedulerReport, decode_report
from taskmq.operations.diagnosis.doctor import CLOCK_LIMIT, examine_servers, read_replica_status
from taskmq.operations.diagnosis.health import LOSSES, Part, examine_parts
from taskmq.operations.workers import list_workers
from taskmq.version import VERSION

T = TypeVar("T")

_TIMEOUT: Final = 2.0
_WORKERS_ANSWER: Final = 0.5
# Longer than the parts, since the doctor asks for much more.
_DOCTOR_TIMEOUT: Final = 4.0
_SERVERS: Final = ("store", "broker", "state")


class _StoreFacts(NamedTuple):
    """The facts that the store reports.

    Attributes:
        size: bytes of its database; None if unknown.
        offset: seconds by which its clock is ahead of this host's; None if it did not answer.
        schedulers: reports of the schedulers that run, by name.
    """

    size: int | None
    offset: float | None
    schedulers: Mapping[str, SchedulerReport]
    partitions: Sequence[PartitionView]


async def examine_system(app: TaskMQ) -> SystemHealth:
    """Check all parts, and read what schedulers and workers report. Returns within two seconds, and never raises.

    Facts of a part that does not answer are missing. `find_problems` returns the findings, which take longer.
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
    return SystemHealth(
        works=all(part.status not in {"down", "partly"} for part in parts),
        parts=[
            SystemPart(
                part=each.part,
                status=each.status,
                since=None,
                finding=each.finding,
                without=LOSSES[each.part],
                address=addresses.get(each.part),
                seconds=None if each.seconds is None or each.part not in _SERVERS else round(each.seconds, 4),
                size=stored.size if each.part == "store" else None,
            )
            for each in parts
        ],
        schedulers=[
            SchedulerView(
                name=name,
                host=report.host,
                pid=report.pid,
                version=report.version,
                app_version=report.app_version,
                started=instant_text(report.started),
                partitions=[each.partition for each in stored.partitions if each.holder == name],
            )
            for name, report in stored.schedulers.items()
        ],
        versions=_count_versions(app, stored.schedulers, workers),
        partitions=[*stored.partitions],
        clocks=_compare_clocks(stored, state_offset, workers),
        findings=[],
        replica=None if replica is None else _replica_view(replica),
    )


async def find_problems(app: TaskMQ) -> list[FindingView]:
    """Return the doctor's problems and warnings about broker, state and store. Returns within four seconds."""
    found = await examine_servers(app, within=_DOCTOR_TIMEOUT)
    return [
        FindingView(level=each.level, about=each.about, finding=each.finding, remedy=each.remedy)
        for each in found.findings
        if each.level != "ok"
    ]


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
    partitions: list[PartitionView] = []
    for number in range(store.dispatching.partitions):
        lease = await store.dispatching.leases.find(partition_key(number))
        due = await store.dispatching.due(number, until=now, limit=1)
        report = None if lease is None else reports.get(lease.owner)
        partitions.append(
            PartitionView(
                partition=number,
                holder=None if lease is None else lease.owner,
                late=(now - due[0].due) / 1000 if due else 0.0,
                rate=None if report is None else report.rates.get(number),
            )
        )
    return _StoreFacts(await store.size(), offset, reports, partitions)


async def _compare_state_clock(app: TaskMQ) -> float | None:
    state = app.sessions.current().state
    if not isinstance(state, Timekeeper):
        return None
    return (await state.server_now_ms() - app.sessions.clock.now_ms()) / 1000


def _compare_clocks(
    stored: _StoreFacts, state_offset: float | None, workers: Sequence[CommandAnswer]
) -> list[ClockView]:
    right = stored.offset or 0.0
    offsets: list[tuple[Literal["store", "state", "scheduler", "worker"], str, float | None]] = [
        ("store", "store", stored.offset),
        ("state", "state", state_offset),
        *(("scheduler", name, right + report.clock_offset) for name, report in stored.schedulers.items()),
        *(("worker", answer.worker, answer.clock_offset) for answer in workers),
    ]
    return [
        ClockView(
            kind=kind,
            of=of,
            offset=round(offset, 3),
            is_wrong=abs(offset - (0.0 if kind == "store" else right)) >= CLOCK_LIMIT,
        )
        for kind, of, offset in offsets
        if offset is not None
    ]


def _count_versions(
    app: TaskMQ, schedulers: Mapping[str, SchedulerReport], workers: Sequence[CommandAnswer]
) -> list[VersionView]:
    found: Counter[tuple[Literal["server", "scheduler", "worker"], str, str]] = Counter()
    found["server", VERSION, app.sessions.app_version] = 1
    found.update(("scheduler", report.version, report.app_version) for report in schedulers.values())
    found.update(("worker", answer.status.version, answer.status.app_version) for answer in workers)
    return [
        VersionView(kind=kind, version=version, app_version=app_version, processes=count)
        for (kind, version, app_version), count in sorted(found.items())
    ]


def _replica_view(status: ReplicaStatus) -> ReplicaView:
    return ReplicaView(
        address=status.address,
        age=None if status.age is None else round(status.age, 3),
        problem=status.problem or None,
        conflicts=status.conflicts,
    )
