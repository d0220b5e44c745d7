"""The server mounted below a prefix of another application, or beside it.

FastAPI, Starlette:  host.mount("/taskmq", served), with `lifespan=served.lifespan`
Litestar:            asgi("/taskmq", is_mount=True)(served), with `lifespan=[served.lifespan]`
Others:              asgi(app, prefix="/taskmq", beside=host) in place of the host; the server handles the prefix
"""

from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, cast

from taskmq.app import TaskMQ
from taskmq.errors import InvalidSetting
from taskmq.server.access import Identify
from taskmq.server.application import ServerApplication, build
from taskmq.server.edge import fact_of
from taskmq.server.live import EventSource
from taskmq.server.oidc import OidcProvider
from taskmq.server.settings import ServerSettings
from taskmq.server.sign_in import identify_by_store

Application = Callable[..., Awaitable[None]]
"""An ASGI application of any framework."""

# ASGI's own types, independent of a framework.
_Message = MutableMapping[str, Any]


def asgi(
    app: TaskMQ,
    *,
    prefix: str = "",
    identify: Identify = identify_by_store,
    read_only: bool = False,
    rate: float = 200.0,
    query_time: float = 10.0,
    oidc: OidcProvider | None = None,
    sources: Sequence[EventSource] = (),
    beside: Application | None = None,
) -> "MountedServer":
    """Build the server of an app as an ASGI application to mount in another application.

    Args:
        app: the app to serve.
        prefix: the path prefix, such as `/taskmq`. Hosts that set it themselves, such as Starlette and FastAPI, do
            not need it.
        identify: identifies the caller, for hosts with their own users. Default: the accounts in the store.
        read_only: reject all changes.
        rate: requests per second and credential, with bursts of ten times as many; 0 for no limit.
        query_time: the time limit of each read, in seconds; 0 for no limit.
        oidc: an additional sign-in provider.
        sources: sources of external events.
        beside: receives requests outside the prefix; for hosts that cannot mount applications, such as Django.

    Raises:
        InvalidSetting: the prefix is invalid, or missing with `beside`.
    """
    if beside is not None and not prefix:
        raise InvalidSetting("beside= needs prefix=, such as /taskmq")
    settings = ServerSettings(root_path=prefix, read_only=read_only, rate=rate, query_time=query_time)
    return MountedServer(build(app, identify=identify, settings=settings, oidc=oidc, sources=sources), prefix, beside)


class MountedServer:
    """A server within another application."""

    def __init__(self, server: ServerApplication, prefix: str, beside: Application | None) -> None:
        self.server: ServerApplication = server
        self._prefix = prefix
        self._beside = beside

    async def __call__(
        self,
        scope: _Message,
        receive: Callable[[], Awaitable[_Message]],
        send: Callable[[_Message], Awaitable[None]],
    ) -> None:
        """Handle one ASGI connection."""
        handler = cast("Application", self.server)
        if self._beside is not None and scope["type"] != "lifespan" and not self._is_below(scope):
            handler = self._beside
        await handler(scope, receive, send)

    def lifespan(self, host: object = None) -> AbstractAsyncContextManager[None]:
        """Serve within this block and close its connections afterwards. Starlette, FastAPI and Litestar accept it.

        Without it the server connects on first use, and the app's owner must close it.
        """
        return self.server.lifespan(host)

    def begin_stop(self) -> None:
        """End the event streams. Otherwise a stopping host waits for them."""
        self.server.begin_stop()

    def _is_below(self, scope: _Message) -> bool:
        path = fact_of(scope, "path")
        return scope["type"] == "http" and (path == self._prefix or path.startswith(f"{self._prefix}/"))
