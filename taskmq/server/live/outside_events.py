"""`POST /events`: external events that start jobs."""

import uuid
from collections.abc import Mapping
from typing import Annotated, Any, Final

from litestar import Request, Response
from litestar.connection import ASGIConnection
from litestar.params import JSONBody, QueryParameter

from taskmq.api.jobs import SubmittedJob
from taskmq.app_api.jobs.orders import submitted_job
from taskmq.model.identity import Identity, Permission, allows_task
from taskmq.model.keys import outside_job_id
from taskmq.operations.job_orders import JobOrder
from taskmq.operations.tenant_jobs import TenantJobs
from taskmq.server.access import Identify
from taskmq.server.handlers import Handlers
from taskmq.server.inputs import CallerGiven, ServedApp, idempotency_key
from taskmq.server.live.sources import EventSignature, EventSource, signed_identity
from taskmq.server.problems import Problem
from taskmq.server.sign_in import SIGNATURE, is_signed

OUTSIDE_HANDLERS: Final = Handlers("events")


def identify_signed(identify: Identify, sources: Mapping[str, EventSource]) -> Identify:
    """Identify the caller by its signature if the request has one and no token, otherwise by `identify`."""

    async def run(connection: ASGIConnection[Any, Any, Any, Any]) -> Identity:
        if not is_signed(connection) or not isinstance(connection, Request):
            return await identify(connection)
        source = sources.get(connection.query_params.get("source", ""))
        now = connection.app.state["app"].sessions.clock.now_ms() / 1000
        return signed_identity(source, connection.headers[SIGNATURE], await connection.body(), now=now)

    return run


@OUTSIDE_HANDLERS.handle(
    "POST /events",
    "sendEvent",
    Permission.EVENTS_SEND,
    "Send an external event",
    status_code=201,
    takes_any_type=True,
)
async def send_event(
    data: JSONBody[dict[str, Any]],
    request: Request[Any, Any, Any],
    app: ServedApp,
    caller: CallerGiven,
    source: Annotated[
        str, QueryParameter(max_length=64, description="Name of the event source, as configured on the server.")
    ],
) -> Response[SubmittedJob]:
    """Start the job for an event of the source. The job is durable when the response is sent.

    The task is called with `event`: `source`, `id` and `data`, which is the request body. Instead of a token, a
    sender may use `Taskmq-Signature: t=SECONDS,n=ID,v1=HEX`, where HEX is the HMAC-SHA256 of `SECONDS.ID.BODY` with
    the source's secret. The time must be within five minutes. The event's id is `ID` or `Idempotency-Key`. 201: a new
    event; 200: the same event was sent before; 409: another event has the id.
    """
    known = request.app.state["sources"].get(source)
    if known is None or caller.tenant not in (None, known.tenant):
        raise Problem(404, "event_source_not_found", f"event source {source[:64]!r} not found")
    event_id = _event_id(request)
    jobs = TenantJobs(
        app,
        known.tenant,
        by=caller.actor(),
        allows=lambda task: allows_task(caller.identity, known.tenant, task),
    )
    order = JobOrder(
        task=known.task,
        args=[],
        kwargs={"event": {"source": source, "id": event_id, "data": data}},
        options={},
        derived_id=outside_job_id(source, event_id),
    )
    made = submitted_job(await jobs.submit(order))
    return Response(made, status_code=201 if made.is_new else 200)


def _event_id(request: Request[Any, Any, Any]) -> str:
    signature = EventSignature.read(request.headers.get(SIGNATURE, ""))
    key = idempotency_key(request.headers)
    if signature is not None and "authorization" not in request.headers:
        # Only signed values are trusted.
        return signature.id
    return key or str(uuid.uuid4())
