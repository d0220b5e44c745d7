"""The server as an ASGI application: its handlers and shared dependencies."""

import contextlib
import typing
import uuid
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager
from enum import Enum
from typing import Any, Final, Literal

import msgspec
from litestar import Litestar
from litestar.datastructures import State
from litestar.di import Provide
from litestar.handlers import HTTPRouteHandler
from litestar.params import QueryParameter
from litestar.plugins import PluginProtocol
from litestar.plugins.core import MsgspecDIPlugin
from litestar.routes import HTTPRoute

from taskmq.app import TaskMQ
from taskmq.app_api.app_api import AppApi
from taskmq.durable.service import ServiceGroup
from taskmq.errors import StoreUnavailable, TaskMQError
from taskmq.model.telemetry.metrics import ServerSnapshot
from taskmq.operations.bulks import BulkRunner
from taskmq.operations.tenant_jobs import TenantJobs
from taskmq.server.access import PUBLIC, Identify, authorise, caller_of, permission_of
from taskmq.server.accounts import ACCOUNT_HANDLERS
from taskmq.server.counts import ServerCounts, ServerStatus
from taskmq.server.dashboard import DASHBOARD_HANDLERS
from taskmq.server.dashboard.developer import identify_developer
from taskmq.server.edge import Edge, restoring_slashes
from taskmq.server.health import HEALTH_HANDLERS
from taskmq.server.history import HISTORY_HANDLERS
from taskmq.server.inputs import CallerGiven
from taskmq.server.jobs import JOB_HANDLERS
from taskmq.server.live import EVENT_HANDLERS, EventHub, EventSource, identify_signed
from taskmq.server.nodes import NODE_HANDLERS
from taskmq.server.oidc import OIDC_HANDLERS, OidcProvider
from taskmq.server.openapi import OPENAPI, OPENAPI_HANDLERS
from taskmq.server.problems import Problem, problem_response
from taskmq.server.query_time import limit_reads
from taskmq.server.queues import QUEUE_HANDLERS
from taskmq.server.rates import RequestLimits
from taskmq.server.schedules import SCHEDULE_HANDLERS
from taskmq.server.settings import ServerSettings
from taskmq.server.sign_in import accounts_of, identify_by_store
from taskmq.server.staleness import serve_stale
from taskmq.server.workflows import WORKFLOW_HANDLERS

HANDLERS: Final[Sequence[HTTPRouteHandler]] = (
    *HEALTH_HANDLERS,
    *ACCOUNT_HANDLERS,
    *OIDC_HANDLERS,
    *JOB_HANDLERS,
    *QUEUE_HANDLERS,
    *SCHEDULE_HANDLERS,
    *WORKFLOW_HANDLERS,
    *NODE_HANDLERS,
    *HISTORY_HANDLERS,
    *EVENT_HANDLERS,
    *OPENAPI_HANDLERS,
    *DASHBOARD_HANDLERS,
)
"""Every handler of the server."""
# Longer than clients wait by themselves: what was too slow once would be begun again.


def build(
    app: TaskMQ,
    *,
    identify: Identify | None = None,
    settings: ServerSettings | None = None,
    oidc: OidcProvider | None = None,
    sources: Sequence[EventSource] = (),
) -> "ServerApplication":
    """Build the server of an app, for an ASGI server or to mount in another application.

    Args:
        app: the app to serve. Its connections are closed with the application.
        identify: identifies the caller. Default: the accounts in the app's store; in development there is no sign-in.
        oidc: an additional sign-in provider, closed with the application.
        sources: sources of external events.

    Raises:
        ValueError: a handler declares no permission.
    """
    settings = settings or ServerSettings()
    if identify is None:
        identify = identify_developer if settings.development else identify_by_store
    known = {source.name: source for source in sources}
    for handler in HANDLERS:
        permission_of(handler)
        _learn_names(handler)
    litestar = _Application(
        route_handlers=HANDLERS,
        dependencies={
            "api": Provide(_api_of, sync_to_thread=False),
            "app": Provide(_app_of, sync_to_thread=False),
            "caller": Provide(caller_of),
            "jobs": Provide(_jobs_of, sync_to_thread=False),
        },
        guards=[authorise],
        exception_handlers=dict.fromkeys((Exception, TaskMQError, Problem), problem_response),
        lifespan=[_connections],
        middleware=[restoring_slashes, limit_reads, serve_stale],
        request_max_body_size=settings.body_limit,
        openapi_config=OPENAPI,
        state=State(
            {
                "app": app,
                "identify": identify_signed(identify, known),
                "sources": known,
                "settings": settings,
                "events": EventHub(app, most=settings.streams_together),
                "limits": RequestLimits(settings.rate),
                "oidc": oidc,
            }
        ),
        # The process configures logging.
        logging_config=None,
    )
    _declare_options(litestar)
    return ServerApplication(litestar, root_path=settings.root_path)


class _Application(Litestar):
    """Litestar without its plugins for other libraries: handlers take and return only structs of msgspec."""

    @staticmethod
    def _get_default_plugins(plugins: list[PluginProtocol]) -> list[PluginProtocol]:
        # Litestar would import Pydantic, where it is installed: half of the time to build the application.
        return [*plugins, MsgspecDIPlugin()]


class ServerApplication(Edge):
    """The ASGI application, with status and metrics for the process that serves it.

    Args:
        litestar: the Litestar application, with the app in its state.
    """

    def __init__(self, litestar: Litestar, *, root_path: str) -> None:
        self.litestar: Litestar = litestar
        self._counts = ServerCounts()
        super().__init__(litestar, root_path=root_path, on_stop=self._close, on_response=self._counts.count)

    @asynccontextmanager
    async def lifespan(self, host: object = None) -> AsyncGenerator[None]:
        """Serve within this block and close its connections afterwards; for a host with its own lifespan.

        Without it the server connects on first use, and the app's owner closes it.

        Args:
            host: ignored; hosts pass themselves.

        Raises:
            StoreMismatch: see `check`.
        """
        del host
        await self.check()
        async with self.litestar.lifespan():
            yield

    async def check(self) -> None:
        """Refuse to start on a store with another schema version. If the store is unreachable, requests retry it
        later.

        Raises:
            StoreMismatch: the schema is behind or ahead; the message says what to do.
        """
        if (store := _app_of(self.litestar.state).sessions.current().store) is not None:
            with contextlib.suppress(StoreUnavailable):
                await store.check()

    def not_ready(self) -> str | None:
        """Return why the server is not ready, without asking other services; None if it is ready."""
        return "it is stopping" if self.is_stopping else None

    def status(self) -> ServerStatus:
        """Return the server's own status, for `/status`."""
        return self._counts.status(app=_app_of(self.litestar.state).name, streams=self._events.streams)

    def snapshot(self) -> ServerSnapshot:
        """Return the metrics, for monitoring."""
        return self._counts.snapshot(streams=self._events.streams)

    @property
    def _events(self) -> EventHub:
        return _events_of(self.litestar.state)

    def _close(self) -> None:
        self.litestar.state["is_stopping"] = True
        self._events.close()


def _app_of(state: State) -> TaskMQ:
    app: TaskMQ = state["app"]
    return app


def _events_of(state: State) -> EventHub:
    hub: EventHub = state["events"]
    return hub


def _api_of(state: State, caller: CallerGiven) -> AppApi:
    return AppApi(_app_of(state), caller, administration=lambda: accounts_of(state).administration)


def _jobs_of(state: State, caller: CallerGiven) -> TenantJobs:
    return TenantJobs(state["app"], caller.tenant, by=caller.actor(), allows=caller.allows)


@asynccontextmanager
async def _connections(litestar: Litestar) -> AsyncGenerator[None]:
    async with _app_of(litestar.state) as app, ServiceGroup() as group:
        settings: ServerSettings = litestar.state["settings"]
        if app.sessions.current().store is not None and not settings.read_only:
            runner = litestar.state["bulks"] = BulkRunner(app, me=f"server {uuid.uuid4()}")
            await group.start(runner, "bulk operations")
        try:
            yield
        finally:
            await _events_of(litestar.state).aclose()
            oidc: OidcProvider | None = litestar.state.get("oidc")
            if oidc is not None:
                await oidc.aclose()


def _declare_options(litestar: Litestar) -> None:
    """Make OPTIONS public. Litestar adds a handler for it to each path.

    If several handlers share a path, Litestar's own response names only the methods of the first.
    """
    for route in litestar.routes:
        if isinstance(route, HTTPRoute):
            for handler in route.route_handlers:
                if handler.http_methods == {"OPTIONS"}:
                    methods = ", ".join(sorted(route.methods))
                    handler.opt.update(permission=PUBLIC, takes_any_parameter=True, methods=methods)


def _learn_names(handler: HTTPRouteHandler) -> None:
    """Record the parameters, fields and values a handler accepts, to suggest the right one for a wrong one."""
    hints = typing.get_type_hints(handler.fn, include_extras=True)
    handler.opt["choices"] = dict(_choices(hints.get("data")))
    handler.opt["fields"] = tuple(dict.fromkeys(_fields(hints.get("data"))))
    handler.opt["query"] = frozenset(
        _sent_name(name, hint)
        for name, hint in hints.items()
        if name not in _NO_QUERY and not any(f"{{{name}:" in path for path in handler.paths)
    )


_NO_QUERY: Final = frozenset({"return", "data", "request", "state", "scope", "api", "app", "caller", "jobs"})


def _sent_name(name: str, hint: Any) -> str:
    """Return the name of a parameter in requests, which may differ from the handler's."""
    given = (one.name for one in getattr(hint, "__metadata__", ()) if isinstance(one, QueryParameter))
    return next(filter(None, given), name)


def _fields(hint: Any) -> list[str]:
    """Return the field names of the structs in a type."""
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return list(hint.__struct_fields__)
    return [name for part in typing.get_args(hint) for name in _fields(part)]


def _choices(hint: Any) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the fields with a closed set of values, and the values."""
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        for name, part in typing.get_type_hints(hint).items():
            if words := tuple(_words(part)):
                yield name, words
            yield from _choices(part)
    else:
        for part in typing.get_args(hint):
            yield from _choices(part)


def _words(hint: Any) -> Iterator[str]:
    if typing.get_origin(hint) is Literal:
        yield from (each for each in typing.get_args(hint) if isinstance(each, str))
    elif isinstance(hint, type) and issubclass(hint, Enum):
        yield from (str(each.value) for each in hint)
    else:
        for part in typing.get_args(hint):
            yield from _words(part)
