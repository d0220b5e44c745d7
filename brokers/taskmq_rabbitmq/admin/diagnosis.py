"""Findings of `taskmq doctor` about a RabbitMQ node, its user and its cluster. Pure: facts in, findings out.

Findings about queues are in `queue_diagnosis`; `examination` gathers the facts.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from taskmq.contracts.finding import Finding, Level
from taskmq_rabbitmq.admin.inspection import NodeFacts
from taskmq_rabbitmq.model.delay_ladder import ENTER
from taskmq_rabbitmq.model.routes import WORK

_OLDEST: Final = (3, 10)
_NEWEST: Final = (4, 3)
# Start of the time in which a series gets no fixes from the RabbitMQ team, as of November 2026. Only the latest
# series gets them.
_ENDED: Final[Mapping[tuple[int, int], str]] = {
    (3, 10): "since September 2022",
    (3, 11): "since June 2023",
    (3, 12): "since February 2024",
    (3, 13): "since September 2024",
    (4, 0): "since April 2025",
    (4, 1): "since January 2026",
    (4, 2): "since 4.3 is out",
}
# Before these, any client may pass for the owner of a client certificate (CVE-2022-37026).
_SAFE_ERLANG: Final[Mapping[int, tuple[int, ...]]] = {23: (23, 3, 4, 15), 24: (24, 3, 4, 2), 25: (25, 0, 2)}
_NEEDED_FLAGS: Final = ("quorum_queue", "stream_queue")
_NEARLY_FULL: Final = 0.8
_FULL: Final = 0.95
_MORE_HANDLES: Final = (
    "raise the node's limit of open files (LimitNOFILE, ulimit -n) and restart it, or delete unused "
    "queues: `taskmq topology diff` shows what is left over"
)
_CLOCK_WARNING_MS: Final = 2_000
_CLOCK_PROBLEM_MS: Final = 30_000


@dataclass(frozen=True, slots=True)
class Rights:
    """Permissions of a user at the broker; None: that could not be tried.

    Attributes:
        declare: may declare taskmq's objects.
        send: may publish to the exchange that leads to queues of jobs.
        delay: may publish to the delay ladder: delayed jobs and retries.
        consume: may read the queues of the app.
        operate: may read the shared queues of lost messages.
        report: may publish reports of stored jobs.
        dispatch: may publish invitations of stored jobs.
        is_fresh: none of taskmq's objects exists yet, so nothing was tried.
    """

    declare: bool | None = None
    send: bool | None = None
    delay: bool | None = None
    consume: bool | None = None
    operate: bool | None = None
    report: bool | None = None
    dispatch: bool | None = None
    is_fresh: bool = False


def version_findings(version: tuple[int, ...] | None) -> list[Finding]:
    """Return findings about the node's version."""
    if version is None:
        return [
            Finding("warning", "rabbitmq", "the node does not say its version", "taskmq is tested on 3.10 to 4.3")
        ]
    text = ".".join(map(str, version))
    series = (version[0], version[1] if len(version) > 1 else 0)
    if series < _OLDEST:
        finding = f"version {text}: dead-lettering cannot be made safe before 3.10"
        return [Finding("problem", "rabbitmq", finding, "upgrade, through 3.13, to 4.x")]
    if series > _NEWEST:
        finding = f"version {text}: taskmq is not tested on it, the newest that it is tested on is 4.3"
        return [Finding("warning", "rabbitmq", finding, "look for a newer taskmq")]
    if series in _ENDED:
        finding = f"version {text}: RabbitMQ {series[0]}.{series[1]} has had no fixes from its team {_ENDED[series]}"
        through = ", through 3.13 and 4.2," if series < (3, 13) else ", through 4.2," if series < (4, 2) else ""
        remedy = f"upgrade{through} to 4.3, or see that your distribution fixes it; nothing changes for taskmq"
        return [Finding("warning", "rabbitmq", finding, remedy)]
    return [Finding("ok", "rabbitmq", f"version {text}")]


def erlang_findings(text: str | None) -> list[Finding]:
    """Return findings about the version of Erlang, as the node reports it: "25.2.3"."""
    numbers = _numbers(text or "")
    if not numbers:
        return []
    safe = _SAFE_ERLANG.get(numbers[0])
    if numbers[0] < min(_SAFE_ERLANG) or (safe is not None and numbers < safe):
        finding = f"version {text}: any client may pass for the owner of a client certificate (CVE-2022-37026)"
        return [Finding("problem", "erlang", finding, "upgrade Erlang/OTP to the last release of its series")]
    return [Finding("ok", "erlang", f"version {text}")]


def api_findings(reason: str | None, address: str) -> list[Finding]:
    """Return findings about the availability of the HTTP API.

    Args:
        reason: why RabbitMQ's HTTP API cannot be used; None: it can.
    """
    if reason is None:
        return [Finding("ok", "management", address)]
    skipped = "alarms, nodes, policies, queue arguments, quorum members and feature flags were not looked at"
    return [Finding("warning", "management", f"{skipped}: {reason}", "make the HTTP API available to this user")]


def right_findings(rights: Rights, *, user: str, declares: bool) -> list[Finding]:
    """Return findings about the user's permissions, and the roles that they are enough for.

    Args:
        rights: the permissions that were tried.
        user: the user's name.
        declares: whether taskmq declares missing objects, which it does without `?declare=off`.
    """
    about, remedy = "permissions", "`taskmq topology permissions ROLE` prints what a role needs"
    findings: list[Finding] = []
    if rights.is_fresh:
        finding = f"what {user!r} may do was not tried: nothing of taskmq exists here yet"
        return [Finding("ok", about, finding)]
    if rights.send is False and rights.dispatch:
        return [Finding("ok", about, f"{user!r} may dispatch stored jobs and not send: enough for a scheduler")]
    if rights.send is False:
        finding = f"{user!r} may not write to the exchange {WORK!r}: it cannot send anything"
        findings.append(Finding("problem", about, finding, remedy))
    if rights.delay is False:
        finding = f"{user!r} may not write to the delay ladder ({ENTER}): no delayed jobs, no retries"
        findings.append(Finding("problem", about, finding, remedy))
    if rights.declare is False and declares:
        finding = f"{user!r} may not configure anything, and taskmq declares its queues when it starts"
        findings.append(Finding("problem", about, finding, f"add ?declare=off to the broker URL; {remedy}"))
    if findings:
        return findings
    can_send = rights.send and rights.delay is not False
    if can_send and rights.consume is False:
        return [Finding("ok", about, f"{user!r} may send and not consume: enough for a producer, not for a worker")]
    if can_send and rights.declare and rights.operate:
        return [Finding("ok", about, f"{user!r} may configure, write and read: enough for every role")]
    if can_send and rights.consume and rights.report is False:
        finding = f"{user!r} may send and read queues, and not report: enough for a server, not for a worker"
        return [Finding("ok", about, finding)]
    if can_send and rights.consume:
        return [Finding("ok", about, f"{user!r} may send and consume: enough for a worker, not for an operator")]
    if can_send and rights.consume is None:
        which = "whether it may consume was not tried: that takes a queue of the app (--app) where nothing waits"
        return [Finding("ok", about, f"{user!r} may send: enough for a producer; {which}")]
    finding = f"what {user!r} may do could not be tried"
    return [Finding("warning", about, finding, "see the other findings, and try again; `taskmq topology apply`")]


def blocked_findings(reason: str | None) -> list[Finding]:
    """Return findings about a broker that accepts no messages; `reason` is the broker's own text."""
    if reason is None:
        return []
    finding = f"the broker takes no messages: {reason or 'it does not say why'}"
    return [Finding("problem", "rabbitmq", finding, "see its memory and disk alarms: rabbitmq-diagnostics alarms")]


def node_findings(nodes: Sequence[NodeFacts]) -> list[Finding]:
    """Return findings about problems of the cluster."""
    findings: list[Finding] = []
    for node in nodes:
        if not node.running:
            findings.append(
                Finding("problem", node.name, "the node is down", "start it, or remove it from the cluster")
            )
        if node.memory_alarm:
            finding = "memory alarm: the cluster takes no messages"
            remedy = "give the node more memory, raise vm_memory_high_watermark, or have the queues drained"
            findings.append(Finding("problem", node.name, finding, remedy))
        if node.disk_alarm:
            finding = "disk alarm: the cluster takes no messages"
            findings.append(Finding("problem", node.name, finding, "free disk space, or lower disk_free_limit"))
        if node.partitions:
            finding = f"has lost sight of {', '.join(node.partitions)}: the cluster is in parts"
            remedy = "mend the network, then restart the nodes of the smaller part; see cluster_partition_handling"
            findings.append(Finding("problem", node.name, finding, remedy))
        findings += _handle_findings(node)
    if nodes and not findings:
        return [Finding("ok", "nodes", f"{len(nodes)} up, no alarms")]
    return findings


def _handle_findings(node: NodeFacts) -> Iterator[Finding]:
    """Yield findings about a node's use of descriptors, sockets and handles."""
    queues = f"{node.reserved:,} of them reserved for {node.quorum_queues:,} quorum queues"
    for used, limit, what in (
        (node.descriptors_used, node.descriptors, "file descriptors are used"),
        (node.sockets_used, node.sockets, "sockets are used"),
        (node.handles_used, node.handles, f"file handles are used, {queues}"),
    ):
        if not limit or used < limit * _NEARLY_FULL:
            continue
        finding = f"{used:,} of {limit:,} {what}: once they are used up, no connection is taken any more"
        level: Level = "problem" if used >= limit * _FULL else "warning"
        yield Finding(level, node.name, finding, _MORE_HANDLES)


def flag_findings(states: Mapping[str, str], version: tuple[int, ...] | None) -> list[Finding]:
    """Return findings about required feature flags."""
    if version is not None and version >= (4,):
        # 4.x does not start without them.
        return []
    missing = [name for name in _NEEDED_FLAGS if states.get(name, "enabled") != "enabled"]
    if not missing:
        return [Finding("ok", "feature flags", "all that are needed are enabled")]
    finding = f"{', '.join(missing)} disabled: no safe queues, or no safe dead-lettering, and so no safe delays"
    return [Finding("problem", "feature flags", finding, f"rabbitmqctl enable_feature_flag {missing[0]}")]


def clock_findings(offset_ms: int | None, error_ms: int, *, about: str) -> list[Finding]:
    """Return findings about a difference of clocks.

    Args:
        offset_ms: how far the other clock is before ours; None where that is unknown.
        error_ms: by how much that may be wrong.
        about: whose clock.
    """
    if offset_ms is None:
        return []
    seconds = max(0, abs(offset_ms) - error_ms) / 1000
    if seconds * 1000 < _CLOCK_WARNING_MS:
        return [Finding("ok", about, f"clock: within {_CLOCK_WARNING_MS / 1000:g} s of this host's")]
    level: Level = "problem" if seconds * 1000 >= _CLOCK_PROBLEM_MS else "warning"
    side = "ahead of" if offset_ms > 0 else "behind"
    finding = f"clock: at least {seconds:.0f} s {side} this host's: delays, expiry and schedules are off by that"
    return [Finding(level, about, finding, "let NTP (chrony, systemd-timesyncd) set the clock on every host")]


def _numbers(text: str) -> tuple[int, ...]:
    numbers: list[int] = []
    for part in text.split("."):
        if not part.isdecimal():
            break
        numbers.append(int(part))
    return tuple(numbers)
