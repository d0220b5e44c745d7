"""The server below a prefix of another application, or beside it.

FastAPI, Starlette:  host.mount("/taskmq", served), with `lifespan=served.lifespan`
Litestar:            asgi("/taskmq", is_mount=True)(served), with `lifespan=[served.lifespan]`
anything else:       asgi(app, prefix="/taskmq", beside=host) in place of the host: what is below is the server's
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

__all__ = ["Application", "MountedServer", "asgi"]

Application = Callable[..., Awaitable[None]]
"""An ASGI application of any framework."""

# As ASGI has them, and not as one framework types them.
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
    """The server of an app as an ASGI application, for another application to mount.

    Args:
        app: whose jobs, queues and schedules it serves.
        prefix: where it is, such as `/taskmq`. Hosts that say it themselves, as Starlette and FastAPI do, need not be
            repeated.
        identify: finds out who calls; for a host that has its own users. Default: by the accounts of the store.
        read_only: nothing can be changed through it.
        rate: requests a second of one credential, ten times as many at once; 0: as many as come.
        query_time: seconds that each read may take; what takes longer is given up; 0: as long as it takes.
        oidc: where users can sign in beside that.
        sources: senders of events from outside.
        beside: gets what is not below the prefix; for hosts that can mount nothing, such as Django.

    Raises:
        InvalidSetting: the prefix is none, or is missing where something is beside.
    """
    if beside is not None and not prefix:
        raise InvalidSetting("where is the server beside the application? Say prefix=, such as /taskmq")
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
        """Handle one connection, as ASGI has it."""
        handler = cast("Application", self.server)
        if self._beside is not None and scope["type"] != "lifespan" and not self._is_below(scope):
            handler = self._beside
        await handler(scope, receive, send)

    def lifespan(self, host: object = None) -> AbstractAsyncContextManager[None]:
        """Serve within this block, and close what was opened then; what Starlette, FastAPI and Litestar take.

        Without it the server connects on first use, and the app has to be closed by who made it.
        """
        return self.server.lifespan(host)

    def begin_stop(self) -> None:
        """End the streams of events: a host that is about to stop waits for them else."""
        self.server.begin_stop()

    def _is_below(self, scope: _Message) -> bool:
        path = fact_of(scope, "path")
        return scope["type"] == "http" and (path == self._prefix or path.startswith(f"{self._prefix}/"))
