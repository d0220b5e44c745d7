"""`POST /events`: what has happened elsewhere starts a job."""

import uuid
from collections.abc import Mapping
from typing import Annotated, Any, Final

from litestar import Request, Response, post
from litestar.connection import ASGIConnection
from litestar.params import JSONBody, QueryParameter

from taskmq.api.jobs import SubmittedJob
from taskmq.app_api.jobs.orders import submitted_job
from taskmq.model.identity import Identity, Permission, allows_task
from taskmq.model.keys import outside_job_id
from taskmq.operations.tenant_jobs import JobOrder, TenantJobs
from taskmq.server.access import Identify
from taskmq.server.inputs import CallerGiven, ServedApp, idempotency_key
from taskmq.server.live.sources import EventSignature, EventSource, signed_identity
from taskmq.server.problems import Problem
from taskmq.server.settings import API
from taskmq.server.sign_in import SIGNATURE, is_signed

__all__ = ["OUTSIDE_HANDLERS", "identify_signed"]


def identify_signed(identify: Identify, sources: Mapping[str, EventSource]) -> Identify:
    """Find out who calls by a signature, where a request brings one and nothing else, and else as `identify` does."""

    async def run(connection: ASGIConnection[Any, Any, Any, Any]) -> Identity:
        if not is_signed(connection) or not isinstance(connection, Request):
            return await identify(connection)
        source = sources.get(connection.query_params.get("source", ""))
        now = connection.app.state["app"].sessions.clock.now_ms() / 1000
        return signed_identity(source, connection.headers[SIGNATURE], await connection.body(), now=now)

    return run


@post(
    f"{API}/events",
    permission=Permission.EVENTS_SEND,
    # Senders name the types that they like; a signature or a token is nothing that a form of a browser can bring.
    takes_any_type=True,
    operation_id="sendEvent",
    summary="Send an event from outside",
    tags=["events"],
)
async def send_event(
    data: JSONBody[dict[str, Any]],
    request: Request[Any, Any, Any],
    app: ServedApp,
    caller: CallerGiven,
    source: Annotated[str, QueryParameter(max_length=64, description="Where it comes from, as the server knows it.")],
) -> Response[SubmittedJob]:
    """Start the job that events of the source start; it is durable when this answers.

    It is called with `event`: `source`, `id` and `data`, which is the body. Instead of a token a sender may bring
    `Taskmq-Signature: t=SECONDS,n=ID,v1=HEX`, where HEX is the HMAC-SHA256 of `SECONDS.ID.BODY` by the source's
    secret and the time is within five minutes. `ID`, or `Idempotency-Key`, is the event's: 201: a new one; 200: the
    same was sent before; 409: another was.
    """
    known = request.app.state["sources"].get(source)
    if known is None or caller.tenant not in (None, known.tenant):
        raise Problem(404, "event_source_not_found", f"there is no event source {source[:64]!r}")
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


OUTSIDE_HANDLERS: Final[tuple[Any, ...]] = (send_event,)


def _event_id(request: Request[Any, Any, Any]) -> str:
    signature = EventSignature.read(request.headers.get(SIGNATURE, ""))
    key = idempotency_key(request.headers)
    if signature is not None and "authorization" not in request.headers:
        # What is not signed says nothing.
        return signature.id
    return key or str(uuid.uuid4())
