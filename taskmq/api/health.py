"""The health of the installation: of its parts for everyone, and in detail for operators."""

from typing import Literal

import msgspec


class PartView(msgspec.Struct, frozen=True, kw_only=True):
    """The health of one part of the installation.

    Attributes:
        status: `works`; `partly`; `down`; `unknown` if it could not be checked; `absent` if the app has none.
        since: when this server first saw the current status, uninterrupted.
        finding: what was found, without names, addresses and numbers.
        without: what does not work without this part.
    """

    part: Literal["store", "broker", "state", "schedulers", "workers"]
    status: Literal["works", "partly", "down", "unknown", "absent"]
    since: str | None
    finding: str
    without: str


class HealthReport(msgspec.Struct, frozen=True, kw_only=True):
    """The health of the installation.

    Attributes:
        works: whether no part is down, fully or partly.
    """

    works: bool
    parts: list[PartView]


class SystemPart(PartView, frozen=True, kw_only=True):
    """A part of the installation, as operators see it.

    Attributes:
        address: its URL without a password; None for schedulers and workers, and if the app has none.
        seconds: how long its check took; None if it failed, or for schedulers and workers.
        size: bytes of the store's database; None for the other parts.
    """

    address: str | None
    seconds: float | None
    size: int | None


class SchedulerView(msgspec.Struct, frozen=True, kw_only=True):
    """A scheduler that runs.

    Attributes:
        name: host, process and a random part.
        version: the version of taskmq.
        app_version: the version of the app's code; "" if it has none.
        partitions: the partitions of the store that it holds.
    """

    name: str
    host: str
    pid: int
    version: str
    app_version: str
    started: str | None
    partitions: list[int]


class VersionView(msgspec.Struct, frozen=True, kw_only=True):
    """The processes of one kind that run the same versions.

    Attributes:
        version: the version of taskmq.
        app_version: the version of the app's code; "" if it has none.
        processes: their number; of servers, the one that answers.
    """

    kind: Literal["server", "scheduler", "worker"]
    version: str
    app_version: str
    processes: int


class PartitionView(msgspec.Struct, frozen=True, kw_only=True):
    """A share of the store's queues and timers.

    Attributes:
        holder: the name of the scheduler that holds it; None if no scheduler does.
        late: seconds since its first unfired job or retry became due; 0 if none is overdue.
        rate: jobs dispatched per second, over the last ten seconds; None if the holder has not reported it.
    """

    partition: int
    holder: str | None
    late: float
    rate: float | None


class ClockView(msgspec.Struct, frozen=True, kw_only=True):
    """The clock of one host or server.

    Attributes:
        of: `store`, `state`, or the name of a scheduler or worker.
        offset: seconds by which it is ahead of the clock of the process that answers; negative if it is behind.
        is_wrong: whether it differs from the store's clock by two seconds or more; without a store, from the clock of
            the process that answers.
    """

    kind: Literal["store", "state", "scheduler", "worker"]
    of: str
    offset: float
    is_wrong: bool


class FindingView(msgspec.Struct, frozen=True, kw_only=True):
    """A finding of `taskmq doctor`.

    Attributes:
        level: `problem` if jobs are lost, late or refused; `warning` if they may be.
        about: a queue, a node, or a part of the installation.
        remedy: what to do, with the command.
    """

    level: Literal["warning", "problem"]
    about: str
    finding: str
    remedy: str


class ReplicaView(msgspec.Struct, frozen=True, kw_only=True):
    """The replica of the store, as this server sees it.

    Attributes:
        address: its URL without a password.
        age: seconds by which it may be behind; None if unknown.
        problem: why the store answers in its place; null if it is read.
        conflicts: reads that it cancelled, as they hindered its recovery.
    """

    address: str
    age: float | None
    problem: str | None
    conflicts: int


class SystemHealth(msgspec.Struct, frozen=True, kw_only=True):
    """The health of the installation in detail.

    Attributes:
        works: whether no part is down, fully or partly.
        schedulers: the schedulers that run, by name.
        versions: versions of the processes, by kind and version.
        partitions: all partitions of the store.
        clocks: clocks of the servers, schedulers and workers.
        findings: problems and warnings of `taskmq doctor`.
        replica: the replica of the store; null if there is none.
    """

    works: bool
    parts: list[SystemPart]
    schedulers: list[SchedulerView]
    versions: list[VersionView]
    partitions: list[PartitionView]
    clocks: list[ClockView]
    findings: list[FindingView]
    replica: ReplicaView | None = None
