"""`GET /events`: server-sent events."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

import msgspec
from litestar import Request
from litestar.params import FromQuery, QueryParameter
from litestar.response import Stream

from taskmq.app_api.views import instant_text
from taskmq.errors import TaskMQError
from taskmq.model.identity import Permission, may
from taskmq.model.keys import split_tenant_key, tenant_key
from taskmq.model.telemetry.events import Event, JobEvent
from taskmq.server.access import Caller
from taskmq.server.handlers import Handlers
from taskmq.server.inputs import CallerGiven
from taskmq.server.live.hub import EventHub, EventInbox, HubEvent, kind_of
from taskmq.server.problems import Problem

STREAM_HANDLERS: Final = Handlers("events")

# The interval of heartbeats, and of checks that the caller is still authorised.
_HEARTBEAT: Final = 15.0
_HERE: Final = b": here\n\n"
_LONGEST_ID: Final = 64
# Digest clients reload with each message. Many clients together get them less often, to limit the load.
_DIGEST: Final = 1.0
_DIGEST_OF_EACH: Final = 0.6


@STREAM_HANDLERS.handle(
    "GET /events", "followEvents", Permission.EVENTS_READ, "Follow live events", media_type="text/event-stream"
)
async def follow_events(
    request: Request[Any, Any, Any],
    caller: CallerGiven,
    queue: FromQuery[str | None] = None,
    task: FromQuery[str | None] = None,
    job_id: FromQuery[str | None] = None,
    event: Annotated[str | None, QueryParameter(description="Comma-separated kinds, such as dead,retried.")] = None,
    *,
    digest: Annotated[bool, QueryParameter(description="Send only counts, at most once a second.")] = False,
) -> Stream:
    """Stream events of jobs and workers as server-sent events until the client disconnects.

    Each event has an id for `Last-Event-ID`. `missed` counts events dropped because the client was slow, `gap` says
    that some may be missing, and `broker` that the broker connection was lost or restored. A tenant's role receives
    events of the tenant's jobs; an instance role also those of workers and of jobs without a tenant. With `digest`
    there is at most one message a second, such as `{"job": 812, "worker": 3}`, with the number of events since the
    last one.
    """
    hub: EventHub = request.app.state["events"]
    most = request.app.state["settings"].streams
    if hub.streams_of(caller.identity.user_id) >= most:
        raise Problem(429, "too_many_streams", f"you already have {most} streams open", headers={"Retry-After": "5"})
    if not hub.has_room(caller.tenant or ""):
        detail = "the server's streams and your tenant's share of them are all in use"
        raise Problem(429, "too_many_streams", detail, headers={"Retry-After": "5"})
    kinds = None if event is None else frozenset(event.split(","))
    last_id = request.headers.get("last-event-id")
    lines = event_lines(
        hub,
        caller.identity.user_id,
        EventFilter(tenant=caller.tenant, queue=queue, task=task, job_id=job_id, kinds=kinds),
        tenant=caller.tenant,
        most=most,
        last_id=None if last_id is None else last_id[:_LONGEST_ID],
        is_allowed=lambda: _is_allowed(request, caller),
        every=_DIGEST if digest else None,
    )
    # Proxies that buffer responses would delay the events.
    return Stream(lines, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})


async def event_lines(
    hub: EventHub,
    user: str,
    fits: Callable[[Event], bool],
    *,
    last_id: str | None,
    tenant: str | None,
    is_allowed: Callable[[], Awaitable[bool]],
    most: int,
    heartbeat: float = _HEARTBEAT,
    every: float | None = None,
) -> AsyncGenerator[bytes]:
    """Yield the messages of one stream until the server stops or its caller loses access.

    Args:
        last_id: the id of the last event the client received.
        most: the maximum number of streams per user. A stream above it ends at once.
        tenant: the tenant whose jobs are named without a tenant; None for all tenants, with names that include it.
        is_allowed: checks the caller's access at least once per heartbeat interval.
        every: seconds between digests; None to send each event.
    """
    loop = asyncio.get_running_loop()
    if hub.streams_of(user) >= most or not hub.has_room(tenant or ""):
        # Concurrent requests may all pass the earlier check.
        yield b"retry: 5000\n\n"
        return
    stream = hub.subscribe(user, fits, tenant=tenant or "", last_id=last_id, is_counting=every is not None)
    async with stream as (subscription, has_gap):
        yield b"retry: 3000\n\n"
        if has_gap:
            # The client reloads everything after a gap, so it must miss no later event.
            await hub.wait_until_ready()
            yield _line("gap", {"after": last_id})
        asked, quiet_until = loop.time(), 0.0
        while True:
            if (left := quiet_until - loop.time()) > 0 and not subscription.is_over:
                await subscription.pause(min(left, heartbeat))
                if left <= heartbeat:
                    continue
                lines = []
            else:
                lines = _lines(hub, subscription, await subscription.take(heartbeat), tenant)
                if not lines and subscription.is_over:
                    return
                if lines and every is not None:
                    quiet_until = loop.time() + max(every, hub.streams * _DIGEST_OF_EACH)
            if not lines:
                yield _HERE
            if loop.time() - asked >= heartbeat:
                asked = loop.time()
                if not await is_allowed():
                    return
            for line in lines:
                yield line


async def _is_allowed(request: Request[Any, Any, Any], caller: Caller) -> bool:
    try:
        identity = await request.app.state["identify"](request)
    except (TaskMQError, Problem):
        return False
    return may(identity, Permission.EVENTS_READ, caller.tenant or None)


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFilter:
    """The filter of a stream; None matches everything.

    Args:
        tenant: only this tenant's jobs; None for all jobs and workers.
    """

    tenant: str | None = None
    queue: str | None = None
    task: str | None = None
    job_id: str | None = None
    kinds: frozenset[str] | None = None

    def __call__(self, event: Event) -> bool:
        """Whether the event matches."""
        if self.kinds is not None and event.event not in self.kinds:
            return False
        if not isinstance(event, JobEvent):
            return self.tenant is None and self.queue is None and self.task is None and self.job_id is None
        return (
            self.tenant in (None, event.tenant)
            and self.queue in (None, event.queue)
            and self.task in (None, event.task)
            and (self.job_id is None or event.job_id in (tenant_key(self.tenant or None, self.job_id), self.job_id))
        )


def _lines(hub: EventHub, subscription: EventInbox, found: Sequence[HubEvent], tenant: str | None) -> list[bytes]:
    lines: list[bytes] = []
    if subscription.missed:
        lines.append(_line("missed", {"count": subscription.missed}))
        subscription.missed = 0
    lines += [_event_line(hub, one, tenant) for one in found]
    if counts := subscription.take_counts():
        lines.append(_line("digest", dict(counts), f"{hub.name}-{subscription.number}"))
    return lines


def _event_line(hub: EventHub, one: HubEvent, tenant: str | None) -> bytes:
    name = f"{hub.name}-{one.number}"
    if one.event is None:
        return _line("broker", {"is_connected": one.is_connected}, name)
    facts = msgspec.to_builtins(one.event)
    facts["at"] = instant_text(one.event.at)
    if tenant and isinstance(one.event, JobEvent):
        facts["job_id"] = split_tenant_key(one.event.job_id)[1]
    return _line(kind_of(one.event), facts, name)


def _line(kind: str, data: dict[str, Any], name: str = "") -> bytes:
    head = f"id: {name}\nevent: {kind}\n" if name else f"event: {kind}\n"
    return f"{head}data: {msgspec.json.encode(data).decode()}\n\n".encode()
