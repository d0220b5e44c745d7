"""Health checks: of the server for load balancers, of all parts for everyone, and in detail for operators."""

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec
from litestar import Response
from litestar.datastructures import State
from msgspec.structs import replace

from taskmq.api.health import HealthReport, PartView, SystemHealth, SystemPart
from taskmq.app import TaskMQ
from taskmq.app_api.system import examine_system, find_problems
from taskmq.app_api.views import instant_text
from taskmq.errors import TaskMQError
from taskmq.model.identity import Permission
from taskmq.operations.diagnosis.health import LOSSES, Part, PartHealth, PartStatus, examine_parts
from taskmq.server.access import PUBLIC
from taskmq.server.handlers import Handlers
from taskmq.server.inputs import ServedApp
from taskmq.server.live.samples import MaxAge, read_shared

HEALTH_HANDLERS: Final = Handlers("health")

_SECONDS: Final = 1.0
_FINDINGS_SECONDS: Final = 30.0
# Later callers share the result: an age of 0 would not keep it.
_NOW: Final = 0.001


class HealthView(msgspec.Struct, frozen=True, kw_only=True):
    """The health of this server.

    Attributes:
        status: `live`, `ready` or `not ready`.
        store: whether the job store answers; None if it was not checked.
    """

    status: str
    store: bool | None = None


@HEALTH_HANDLERS.handle("GET /health/live", "getLiveness", PUBLIC, "Check liveness")
async def live() -> HealthView:
    """Answer as long as the process handles requests. It checks nothing else."""
    return HealthView(status="live")


@HEALTH_HANDLERS.handle("GET /health/ready", "getReadiness", PUBLIC, "Check readiness")
async def ready(app: ServedApp, state: State) -> Response[HealthView]:
    """Return 200 if the job store answers; 503 if it does not, or if this server is stopping.

    The store is checked at most once a second, shared by all callers.
    """
    if state.get("is_stopping"):
        return Response(HealthView(status="not ready"), status_code=503, headers={"Retry-After": "5"})
    try:
        await read_shared(state, "ready", _SECONDS, app.sessions.store().now_ms)
    except TaskMQError:
        return Response(HealthView(status="not ready", store=False), status_code=503, headers={"Retry-After": "5"})
    return Response(HealthView(status="ready", store=True))


@HEALTH_HANDLERS.handle("GET /health", "getHealth", PUBLIC, "Get the health of all parts")
async def get_health(app: ServedApp, state: State) -> HealthReport:
    """Check the store, broker, state, schedulers and workers concurrently, for at most two seconds each.

    It needs no sign-in, so it also works without the store, and exposes no addresses, queues or numbers. All callers
    within a second share one result.
    """
    parts = await read_shared(state, "health", _SECONDS, lambda: examine_parts(app))
    since = _follow(app, state, parts)
    return HealthReport(
        works=all(each.status not in {"down", "partly"} for each in parts),
        parts=[
            PartView(
                part=each.part,
                status=each.status,
                since=instant_text(since[each.part]),
                finding=each.finding,
                without=LOSSES[each.part],
            )
            for each in parts
        ],
    )


@HEALTH_HANDLERS.handle(
    "GET /health/system", "getSystemHealth", Permission.SYSTEM_READ, "Get the health of the system"
)
async def get_system_health(app: ServedApp, state: State, max_age: MaxAge = _FINDINGS_SECONDS) -> SystemHealth:
    """Return the parts with their addresses, the schedulers, the partitions, the clocks, and what `doctor` finds.

    Returns within four seconds, whatever does not answer. All callers within a second share one result; `max_age`
    applies to findings, by default half a minute. With 0 all checks run now.
    """
    found, findings = await asyncio.gather(
        read_shared(state, "system", _SECONDS, lambda: examine_system(app)),
        read_shared(state, "findings", max(max_age, _NOW), lambda: find_problems(app)),
    )
    since = _follow(app, state, found.parts)
    parts = [replace(each, since=instant_text(since[each.part])) for each in found.parts]
    return replace(found, parts=parts, findings=findings)


def _follow(app: TaskMQ, state: State, parts: Sequence[PartHealth | SystemPart]) -> dict[Part, int]:
    """Return when this server first saw the parts in their present status, ms since the epoch."""
    seen: dict[Part, tuple[PartStatus, int]] = state.setdefault("health_since", {})
    for each in parts:
        if each.part not in seen or seen[each.part][0] != each.status:
            seen[each.part] = (each.status, app.sessions.clock.now_ms())
    return {part: at for part, (_, at) in seen.items()}
