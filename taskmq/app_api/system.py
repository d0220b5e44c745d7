"""The health of the installation, for operators."""

from collections.abc import Mapping, Sequence

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
from taskmq.app_api.views import instant_text
from taskmq.contracts.finding import Finding
from taskmq.contracts.jobs import ReplicaStatus
from taskmq.operations.diagnosis.health import LOSSES, Part
from taskmq.operations.diagnosis.system import SystemFacts

_SERVERS = ("store", "broker", "state")


def system_view(
    found: SystemFacts, findings: Sequence[Finding], since: Mapping[Part, int] | None = None
) -> SystemHealth:
    """Build the API's view of the installation.

    Args:
        since: when the parts were first seen in their present status, ms since the epoch; None: unknown.
    """
    return SystemHealth(
        works=all(part.status not in {"down", "partly"} for part in found.parts),
        parts=[
            SystemPart(
                part=each.part,
                status=each.status,
                since=None if since is None else instant_text(since[each.part]),
                finding=each.finding,
                without=LOSSES[each.part],
                address=found.addresses.get(each.part),
                seconds=None if each.seconds is None or each.part not in _SERVERS else round(each.seconds, 4),
                size=found.size if each.part == "store" else None,
            )
            for each in found.parts
        ],
        schedulers=[
            SchedulerView(
                name=name,
                host=report.host,
                pid=report.pid,
                version=report.version,
                app_version=report.app_version,
                started=instant_text(report.started),
                partitions=[each.number for each in found.partitions if each.holder == name],
            )
            for name, report in found.schedulers.items()
        ],
        versions=[
            VersionView(kind=kind, version=version, app_version=app_version, processes=count)
            for (kind, version, app_version), count in sorted(found.versions.items())
        ],
        partitions=[
            PartitionView(partition=each.number, holder=each.holder, late=each.late, rate=each.rate)
            for each in found.partitions
        ],
        clocks=[
            ClockView(kind=each.kind, of=each.of, offset=each.offset, is_wrong=each.is_wrong) for each in found.clocks
        ],
        findings=[
            FindingView(level=each.level, about=each.about, finding=each.finding, remedy=each.remedy)
            for each in findings
            if each.level != "ok"
        ],
        replica=None if found.replica is None else _replica_view(found.replica),
    )


def _replica_view(status: ReplicaStatus) -> ReplicaView:
    return ReplicaView(
        address=status.address,
        age=None if status.age is None else round(status.age, 3),
        problem=status.problem or None,
        conflicts=status.conflicts,
    )
