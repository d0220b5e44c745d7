"""Gathering what `taskmq doctor` wants to know about RabbitMQ: by AMQP, and by the HTTP API where it answers.

Nothing is changed. What a user may do is found out by doing it in a way that has no effect: declaring what is there,
publishing to where no queue is, and taking a message from a queue that has none.
"""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from taskmq.contracts.broker import Broker
from taskmq.contracts.broker_abilities import HANDED_OVER
from taskmq.contracts.finding import Finding
from taskmq.contracts.topology_plan import Topology
from taskmq.errors import AccessDenied, QueueMissing
from taskmq.model.clock import Clock
from taskmq.model.topology import PARKING, WorkQueue
from taskmq_rabbitmq.admin.diagnosis import (
    Rights,
    api_findings,
    blocked_findings,
    clock_findings,
    erlang_findings,
    flag_findings,
    node_findings,
    right_findings,
    version_findings,
)
from taskmq_rabbitmq.admin.http_api import Management, ManagementRefused, ManagementUnavailable
from taskmq_rabbitmq.admin.inspection import QueueFacts, fetch_nodes, fetch_queues
from taskmq_rabbitmq.admin.queue_diagnosis import (
    comparison_findings,
    is_passage,
    letter_findings,
    member_findings,
    orphan_findings,
    policy_findings,
    stuck_findings,
    timeout_findings,
)
from taskmq_rabbitmq.amqp.channels import ChannelRefused, OpenChannel
from taskmq_rabbitmq.amqp.pika_types import BasicProperties
from taskmq_rabbitmq.connect.connection import Connection
from taskmq_rabbitmq.connect.handshake import OPEN_SECONDS
from taskmq_rabbitmq.model import delay_ladder as delay
from taskmq_rabbitmq.model.access_refused import ACCESS_REFUSED, NOT_FOUND
from taskmq_rabbitmq.model.entities import Exchange, shared_entities
from taskmq_rabbitmq.model.routes import DEAD_LETTERS, INVITATIONS, REPORTS, WORK
from taskmq_rabbitmq.model.url import Endpoint

Step = Callable[[OpenChannel], Awaitable[None]]

_NOWHERE: Final = "taskmq.doctor."
_DATE_MS: Final = 1_000
_PATIENCE: Final = 3.0
_CLOSE_SECONDS: Final = 1.0


async def diagnose(
    broker: Broker,
    *,
    endpoint: Endpoint,
    connection: Connection,
    separate: Callable[[str], Connection],
    management: Management,
    topology: Topology,
    loads: Mapping[WorkQueue, float | None],
    watch: float,
    hands_over: bool,
    clock: Clock,
) -> list[Finding]:
    """Return all findings; `loads`, `watch` and `hands_over` as in `taskmq.contracts.broker.Diagnosable`.

    Raises:
        BrokerUnavailable: the broker could not be reached.
    """
    version = connection.server_version
    findings = version_findings(version)
    queues, reason = await _queues(management)
    findings += api_findings(reason, management.address)
    rights, blocked = await _rights(broker, connection, separate, loads)
    findings += blocked_findings(blocked)
    findings += right_findings(rights, user=endpoint.user, declares=endpoint.declare == "auto")
    if reason is None:
        findings += await _by_api(management, version, clock)
        findings += policy_findings(queues)
        findings += member_findings(queues)
        findings += await _stuck(management, queues, watch)
        findings += orphan_findings(queues, loads)
        findings += letter_findings(queues, loads)
    # Where nothing of taskmq is there, all of it is missing: that is no news.
    if loads or await _has_ladder(connection):
        findings += comparison_findings(await topology.compare())
    limit = endpoint.consumer_timeout
    handed_over = limit * HANDED_OVER if hands_over and limit is not None else None
    findings += timeout_findings(loads, queues, version, handed_over=handed_over)
    return findings


async def _queues(management: Management) -> tuple[list[QueueFacts], str | None]:
    try:
        return await fetch_queues(management), None
    except (ManagementUnavailable, AccessDenied, ManagementRefused) as error:
        return [], str(error)


async def _by_api(management: Management, version: tuple[int, ...] | None, clock: Clock) -> list[Finding]:
    findings: list[Finding] = []
    overview: Any = await management.get("overview")
    findings += erlang_findings(overview.get("erlang_version"))
    try:
        findings += node_findings(await fetch_nodes(management))
        flags = {str(flag["name"]): str(flag["state"]) for flag in await management.get("feature-flags")}
        findings += flag_findings(flags, version)
    except (AccessDenied, ManagementRefused) as error:
        remedy = "give the user the tag `monitoring`"
        findings.append(
            Finding("warning", "nodes", f"alarms, nodes and feature flags were not looked at: {error}", remedy)
        )
    began = time.monotonic()
    if (date := await management.clock_ms()) is not None:
        travel = int((time.monotonic() - began) * 1000)
        # The date is cut to whole seconds, and is from some moment of the request.
        offset = date + _DATE_MS // 2 - (clock.now_ms() - travel // 2)
        findings += clock_findings(offset, _DATE_MS // 2 + travel // 2, about="rabbitmq")
    return findings


async def _stuck(management: Management, queues: list[QueueFacts], watch: float) -> list[Finding]:
    first = [queue for queue in queues if is_passage(queue.name) or queue.dead_letters]
    if not watch:
        return stuck_findings(first, None, seconds=0)
    await asyncio.sleep(watch)
    return stuck_findings(first, await fetch_queues(management), seconds=watch)


async def _has_ladder(connection: Connection) -> bool:
    return await _may(connection, _look_for(DEAD_LETTERS, "direct")) is not None


async def _rights(
    broker: Broker,
    connection: Connection,
    separate: Callable[[str], Connection],
    loads: Mapping[WorkQueue, float | None],
) -> tuple[Rights, str | None]:
    """Return the permissions of the user, and the reason if the broker accepts no messages."""
    has_ladder = await _has_ladder(connection)
    # A broker that is short of memory or disk listens no more to a connection that has published.
    publishing = separate("doctor")
    try:
        await publishing.wait_open(OPEN_SECONDS)
        may: dict[str, bool | None] = {}
        for exchange in (WORK, delay.ENTER, REPORTS, INVITATIONS) if has_ladder else ():
            if publishing.blocked is None:
                may[exchange] = await _may_within(publishing, _publish_nowhere(exchange))
        blocked = publishing.blocked
    finally:
        await publishing.close(_CLOSE_SECONDS)
    rights = Rights(
        declare=await _may(connection, _declare_again) if has_ladder else None,
        send=may.get(WORK),
        delay=may.get(delay.ENTER),
        consume=await _may_read(broker, [name for queue in loads for name in queue.physical]),
        operate=await _may_take(broker, PARKING) if has_ladder else None,
        report=may.get(REPORTS),
        dispatch=may.get(INVITATIONS),
        is_fresh=not has_ladder,
    )
    return rights, blocked


async def _may_within(connection: Connection, step: "Step") -> bool | None:
    try:
        async with asyncio.timeout(_PATIENCE):
            return await _may(connection, step)
    except TimeoutError:
        return None


async def _may_read(broker: Broker, names: list[str]) -> bool | None:
    """Whether the first of the queues that has no messages may be read; one with messages is left in peace."""
    try:
        found = await broker.stats(names)
    except AccessDenied:
        # RabbitMQ 4.3 asks for some right on a queue before it answers whether that exists.
        return False
    for stats in found:
        if not stats.ready:
            return await _may_take(broker, stats.queue)
    return None


async def _may_take(broker: Broker, queue: str) -> bool | None:
    try:
        async with broker.browse(queue) as browser:
            await browser.take(1)
            return True
    except AccessDenied:
        return False
    except QueueMissing:
        return None


async def _may(connection: Connection, step: Step) -> bool | None:
    """Whether the broker lets us; None where what it needs is not there."""
    try:
        await connection.ask(step)
    except ChannelRefused as error:
        return False if error.code == ACCESS_REFUSED else None if error.code == NOT_FOUND else True
    except AccessDenied:
        return False
    return True


def _look_for(exchange: str, kind: str) -> Step:
    async def step(channel: OpenChannel) -> None:
        await channel.request(lambda done: channel.raw.exchange_declare(exchange, kind, passive=True, callback=done))

    return step


async def _declare_again(channel: OpenChannel) -> None:
    arguments = next(
        dict(one.arguments) for one in shared_entities() if isinstance(one, Exchange) and one.name == DEAD_LETTERS
    )
    await channel.request(
        lambda done: channel.raw.exchange_declare(
            DEAD_LETTERS, "direct", durable=True, arguments=arguments, callback=done
        )
    )


def _publish_nowhere(exchange: str) -> Step:
    async def step(channel: OpenChannel) -> None:
        key = f"{_NOWHERE}{secrets.token_hex(8)}"
        channel.send(lambda: channel.raw.basic_publish(exchange, key, b"", BasicProperties(), mandatory=True))
        # The answer to this comes after the refusal, if there is one.
        await channel.request(lambda done: channel.raw.basic_qos(prefetch_count=1, callback=done))

    return step
