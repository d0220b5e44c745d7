"""Health of the server for load balancers and orchestrators, and of all parts for people. Without sign-in."""

from typing import Any, Final

import msgspec
from litestar import Response, get
from litestar.datastructures import State

from taskmq.api.workers import HealthReport, PartView
from taskmq.app_api.views import instant_text
from taskmq.errors import TaskMQError
from taskmq.operations.diagnosis.health import LOSSES, Part, PartStatus, examine_parts
from taskmq.server.access import PUBLIC
from taskmq.server.inputs import ServedApp
from taskmq.server.live.samples import shared_look
from taskmq.server.settings import API

__all__ = ["HEALTH_HANDLERS", "HealthView"]

_SECONDS: Final = 1.0


class HealthView(msgspec.Struct, frozen=True, kw_only=True):
    """How the server is.

    Attributes:
        status: `live`, `ready` or `not ready`.
        store: whether the job store answers; None where it was not asked.
    """

    status: str
    store: bool | None = None


@get(
    f"{API}/health/live",
    permission=PUBLIC,
    operation_id="getLiveness",
    summary="Whether the server lives",
    tags=["health"],
)
async def live() -> HealthView:
    """Answers for as long as the process handles requests; asks nothing else."""
    return HealthView(status="live")


@get(
    f"{API}/health/ready",
    permission=PUBLIC,
    operation_id="getReadiness",
    summary="Whether the server can do its work",
    tags=["health"],
)
async def ready(app: ServedApp, state: State) -> Response[HealthView]:
    """200 where the job store answers; 503 where it does not, and where this server is about to stop.

    The store is asked once a second at most, for all callers together.
    """
    if state.get("is_stopping"):
        return Response(HealthView(status="not ready"), status_code=503, headers={"Retry-After": "5"})
    try:
        await shared_look(state, "ready", _SECONDS, app.sessions.store().now_ms)
    except TaskMQError:
        return Response(HealthView(status="not ready", store=False), status_code=503, headers={"Retry-After": "5"})
    return Response(HealthView(status="ready", store=True))


@get(
    f"{API}/health",
    permission=PUBLIC,
    operation_id="getHealth",
    summary="Whether each part of the installation works",
    tags=["health"],
)
async def get_health(app: ServedApp, state: State) -> HealthReport:
    """Asks store, broker, state, schedulers and workers, all at once and each for two seconds at most.

    It needs no sign-in, so that it answers without the store as well, and names no addresses, queues or numbers. All
    callers of a second share an answer.
    """
    parts = await shared_look(state, "health", _SECONDS, lambda: examine_parts(app))
    seen: dict[Part, tuple[PartStatus, int]] = state.setdefault("health_since", {})
    for each in parts:
        if each.part not in seen or seen[each.part][0] != each.status:
            seen[each.part] = (each.status, app.sessions.clock.now_ms())
    return HealthReport(
        works=all(each.status not in {"down", "partly"} for each in parts),
        parts=[
            PartView(
                part=each.part,
                status=each.status,
                since=instant_text(seen[each.part][1]),
                finding=each.finding,
                without=LOSSES[each.part],
            )
            for each in parts
        ],
    )


HEALTH_HANDLERS: Final[tuple[Any, ...]] = (live, ready, get_health)
