"""A served app on `memory://` and SQLite, called by users of several roles and tenants."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from functools import cache
from pathlib import Path
from typing import Any, cast

from httpx import ASGITransport, AsyncClient, Response
from litestar import Litestar
from litestar.connection import ASGIConnection
from litestar.datastructures import State
from litestar.testing import TestClient

from taskmq import TaskMQ, WorkQueue
from taskmq.contracts.broker import BrokerOptions
from taskmq.contracts.jobs import JobStore
from taskmq.errors import NotAuthenticated
from taskmq.model.clock import Clock
from taskmq.model.identity import EVERYWHERE, Identity, Membership, Permission, Role
from taskmq.server import EventSource, Identify, OidcProvider, ServerApplication, ServerSettings, build
from taskmq.server.dashboard.developer import identify_developer
from taskmq.server.live import EventHub, identify_signed
from taskmq.server.openapi.description import describe
from taskmq.server.rates import RequestLimits
from taskmq.server.sign_in import identify_by_store
from tests.unit.app_kit import new_store, new_url

DOCUMENT: dict[str, Any] = {
    "job_id": "order-17",
    "job_type": "data_processing",
    "schedule_time": "2099-01-31T09:00:00Z",
    "priority": "high",
    "payload": {"key": "value"},
}
"""The body of document 001."""


def _identity(name: str, *memberships: Membership) -> Identity:
    return Identity(user_id=name, user=name, memberships=memberships, via="session", credential=name)


CALLERS = {
    identity.user: identity
    for identity in (
        *(_identity(f"acme-{role}", Membership("acme", role)) for role in Role),
        *(_identity(f"all-{role}", Membership(EVERYWHERE, role)) for role in Role),
        _identity("other-admin", Membership("other", Role.ADMIN)),
        _identity("both", Membership("acme", Role.ADMIN), Membership("other", Role.VIEWER)),
        _identity("picky", Membership("acme", Role.OPERATOR, ("billing.*",))),
        _identity("picky-admin", Membership("acme", Role.ADMIN, ("billing.*",))),
        _identity("picky-all", Membership(EVERYWHERE, Role.ADMIN, ("billing.*",))),
        _identity("acme-finance", Membership("acme", Role.SUBMITTER, groups=("finance",))),
        _identity("nobody"),
        # A token that only submits.
        Identity(
            user_id="importer",
            user="importer",
            memberships=(Membership("acme", Role.SUBMITTER),),
            via="token",
            credential="importer",
            scopes=frozenset({Permission.JOBS_SUBMIT}),
        ),
        # A token that only reads schedules.
        Identity(
            user_id="planner",
            user="planner",
            memberships=(Membership("acme", Role.VIEWER),),
            via="token",
            credential="planner",
            scopes=frozenset({Permission.SCHEDULES_READ}),
        ),
    )
}
"""Callers by their tokens."""


WHOLE = (
    "/api/",
    "/auth/",
    "/jobs/create",
    "/jobs/schedule",
    "/jobs/status",
    "/logs/query",
    "/metrics/get",
    "/alerts/setup",
    "/nodes/register",
    "/nodes/update-status",
    "/nodes/list",
    "/resources/",
)
"""Beginnings of the paths outside `/api/v1`."""


def define(app: TaskMQ) -> None:
    """Define the tasks of the tests."""

    @app.task(name="data_processing", queue="work")
    def data_processing(key: str = "", number: int = 0) -> str:
        """Process some data."""
        return key

    @app.task(name="billing.charge", queue="billing")
    def charge(amount: int) -> int:
        return amount

    @app.cron("0 2 * * *", name="nightly")
    @app.task(name="report", queue="work")
    def report() -> None: ...


class Site:
    """A served app; called as `acme-admin` by default."""

    def __init__(self, app: TaskMQ, client: "TestClient[Any]", served: ServerApplication) -> None:
        self.app = app
        self.client = client
        self.served = served

    @property
    def hub(self) -> EventHub:
        """The hub that passes the events to the streams."""
        found: EventHub = self.served.litestar.state["events"]
        return found

    def __call__(
        self, method: str, path: str, json: Any = None, *, by: str | None = "acme-admin", **more: Any
    ) -> Response:
        """Send a request; a path without `/api` is below `/api/v1`."""
        headers = dict(more.pop("headers", {}))
        if by is not None:
            headers["Authorization"] = f"Bearer {by}"
        if json is not None:
            more["json"] = json
        where = path if path.startswith(WHOLE) else f"/api/v1{path}"
        return self.client.request(method, where, headers=headers, **more)

    def submit(self, by: str = "acme-admin", tenant: str | None = None, **changes: Any) -> str:
        """Submit the document's job with changes; return its id."""
        query = "" if tenant is None else f"?tenant={tenant}"
        answer = self("POST", f"/jobs{query}", {**DOCUMENT, **changes}, by=by)
        assert answer.status_code in {200, 201}, answer.text
        return str(answer.json()["job_id"])

    def ids(self, query: str = "", by: str = "acme-admin") -> list[str]:
        """Return the ids of the jobs in a list."""
        answer = self("GET", f"/jobs{query}", by=by)
        assert answer.status_code == 200, answer.text
        return [job["job_id"] for job in answer.json()]


def ask_all(client: "TestClient[Any]", requests: Iterable[Mapping[str, Any]]) -> list[Response]:
    """Return the answers to requests, each given as the arguments of `httpx.AsyncClient.request`.

    They are sent in the server's loop: the calls of a `TestClient` cross threads, which takes most of their time.
    """

    async def ask() -> list[Response]:
        transport = ASGITransport(app=cast("Any", client.app), raise_app_exceptions=False)
        async with AsyncClient(transport=transport, base_url="http://testserver.local") as sender:
            return [await sender.request(**request) for request in requests]

    with client.portal() as portal:
        return portal.call(ask)


@contextmanager
def open_site(
    folder: Path,
    settings: ServerSettings | None = None,
    *,
    store: str | None = None,
    job_store: Callable[[BrokerOptions], JobStore] | None = None,
    queues: Sequence[WorkQueue] = (),
    sources: Sequence[EventSource] = (),
    clock: Clock | None = None,
) -> Iterator[Site]:
    """Serve a separate app.

    Args:
        job_store: opens the store in place of its URL.
    """
    app = TaskMQ(
        new_url(),
        store=store or new_store(),
        results_at=f"file://{folder}/values",
        queues=queues,
        clock=clock,
    )
    app.sessions.job_store = job_store
    define(app)

    async def identify(connection: ASGIConnection[Any, Any, Any, Any]) -> Identity:
        name = connection.headers.get("authorization", "").removeprefix("Bearer ")
        if name not in CALLERS:
            raise NotAuthenticated("sign in")
        return CALLERS[name]

    edge = build_served(app, identify=identify, settings=settings, sources=sources)
    with TestClient(edge, raise_server_exceptions=False) as client:
        yield Site(app, client, edge)


def build_served(
    app: TaskMQ,
    *,
    identify: Identify | None = None,
    settings: ServerSettings | None = None,
    oidc: OidcProvider | None = None,
    sources: Sequence[EventSource] = (),
) -> ServerApplication:
    """Call `build`, reusing handlers and their description between tests: building them takes longer than most tests.

    The default settings do not limit the rate of callers.
    """
    chosen = settings or ServerSettings()
    if identify is None:
        identify = identify_developer if chosen.development else identify_by_store
    known = {source.name: source for source in sources}
    litestar = _twin(_built_once(chosen.body_limit))
    litestar.state = State(
        {
            "openapi": litestar.state["openapi"],
            "app": app,
            "identify": identify_signed(identify, known),
            "sources": known,
            "settings": chosen,
            "events": EventHub(app, most=chosen.streams_together),
            "limits": RequestLimits(0 if settings is None else settings.rate),
            "oidc": oidc,
        }
    )
    return ServerApplication(litestar, root_path=chosen.root_path)


@cache
def _built_once(body_limit: int) -> Litestar:
    litestar = build(TaskMQ(new_url()), settings=ServerSettings(body_limit=body_limit)).litestar
    litestar.state["openapi"] = describe(litestar)
    return litestar


def _twin(litestar: Litestar) -> Litestar:
    """Return a copy with the same handlers, which may be served beside the original."""
    twin = copy(litestar)
    twin.event_emitter = copy(litestar.event_emitter)
    twin.asgi_router = copy(litestar.asgi_router)
    twin.asgi_router.app = twin
    twin.asgi_handler = twin._create_asgi_handler()
    return twin
