"""`GET /events`: server-sent events."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

import msgspec
from litestar import Request, get
from litestar.params import FromQuery, QueryParameter
from litestar.response import Stream

from taskmq.app_api.views import instant_text
from taskmq.errors import TaskMQError
from taskmq.model.identity import Permission, may
from taskmq.model.keys import split_tenant_key, tenant_key
from taskmq.model.telemetry.events import Event, JobEvent
from taskmq.server.access import Caller
from taskmq.server.inputs import CallerGiven
from taskmq.server.live.hub import EventHub, EventInbox, HubEvent, kind_of
from taskmq.server.problems import Problem
from taskmq.server.settings import API

__all__ = ["STREAM_HANDLERS", "EventFilter", "event_lines"]

# So often a stream says that it lives, and looks whether its caller is still welcome.
_HEARTBEAT: Final = 15.0
_HERE: Final = b": here\n\n"
_LONGEST_ID: Final = 64
# The client of a digest reads again at each: many clients together do so not much oftener than a few.
_DIGEST: Final = 1.0
_DIGEST_OF_EACH: Final = 0.6


@get(
    f"{API}/events",
    permission=Permission.EVENTS_READ,
    operation_id="followEvents",
    summary="Follow live events",
    tags=["events"],
    media_type="text/event-stream",
)
async def follow_events(
    request: Request[Any, Any, Any],
    caller: CallerGiven,
    queue: FromQuery[str | None] = None,
    task: FromQuery[str | None] = None,
    job_id: FromQuery[str | None] = None,
    event: Annotated[str | None, QueryParameter(description="Of these kinds, with commas: dead,retried.")] = None,
    *,
    digest: Annotated[bool, QueryParameter(description="At most once a second: how many there were.")] = False,
) -> Stream:
    """What happens to jobs and workers, as server-sent events, until the client goes.

    Each has an id to come back with (`Last-Event-ID`). `missed` says how many were dropped since the client was
    slow, `gap` that some may be missing, `broker` that the broker was lost or is back. A tenant hears of its own
    jobs; of workers, and of jobs that have no tenant, roles on the instance are. With `digest` there is instead at
    most one message a second, such as `{"job": 812, "worker": 3}`: how many events there were since the last one.
    """
    hub: EventHub = request.app.state["events"]
    most = request.app.state["settings"].streams
    if hub.streams_of(caller.identity.user_id) >= most:
        raise Problem(429, "too_many_streams", f"you have {most} streams open", headers={"Retry-After": "5"})
    if not hub.has_room(caller.tenant or ""):
        detail = "the server has as many streams open as it can, and your tenant its share of them"
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
        is_welcome=lambda: _is_welcome(request, caller),
        every=_DIGEST if digest else None,
    )
    # Proxies that collect answers would hold the events up.
    return Stream(lines, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})


STREAM_HANDLERS: Final[tuple[Any, ...]] = (follow_events,)


async def event_lines(
    hub: EventHub,
    user: str,
    fits: Callable[[Event], bool],
    *,
    last_id: str | None,
    tenant: str | None,
    is_welcome: Callable[[], Awaitable[bool]],
    most: int,
    heartbeat: float = _HEARTBEAT,
    every: float | None = None,
) -> AsyncGenerator[bytes]:
    """What is sent to one stream, until the server stops or its user is not welcome any more.

    Args:
        last_id: the last event that the client has.
        most: streams of one user; one more ends at once.
        tenant: whose jobs the client knows by their own names; None: everybody's, by names that say the tenant.
        is_welcome: asked after so many seconds in which nothing happened, and at least as often while much does.
        every: so many seconds apart it gets how many events there were, and not each of them; None: each.
    """
    loop = asyncio.get_running_loop()
    if hub.streams_of(user) >= most or not hub.has_room(tenant or ""):
        # All of them were let in before the first of them began.
        yield b"retry: 5000\n\n"
        return
    subscribed = hub.subscribed(user, fits, tenant=tenant or "", last_id=last_id, is_counting=every is not None)
    async with subscribed as (subscription, has_gap):
        yield b"retry: 3000\n\n"
        if has_gap:
            # Who reads everything again for it has to miss nothing of what happens from then on.
            await hub.settled()
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
                if not await is_welcome():
                    return
            for line in lines:
                yield line


async def _is_welcome(request: Request[Any, Any, Any], caller: Caller) -> bool:
    try:
        identity = await request.app.state["identify"](request)
    except (TaskMQError, Problem):
        return False
    return may(identity, Permission.EVENTS_READ, caller.tenant or None)


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFilter:
    """Whether a stream wants an event; what is None does not matter.

    Args:
        tenant: whose jobs it may know of; None: everybody's, and the workers.
    """

    tenant: str | None = None
    queue: str | None = None
    task: str | None = None
    job_id: str | None = None
    kinds: frozenset[str] | None = None

    def __call__(self, event: Event) -> bool:
        """Whether the stream wants this one."""
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
    lines += [_told(hub, one, tenant) for one in found]
    if counts := subscription.counted():
        lines.append(_line("digest", dict(counts), f"{hub.name}-{subscription.number}"))
    return lines


def _told(hub: EventHub, one: HubEvent, tenant: str | None) -> bytes:
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
