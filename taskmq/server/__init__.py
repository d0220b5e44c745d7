"""The server: the HTTP API of an app. It is stateless; run any number behind a load balancer.

    request -> Edge (request id, headers) -> Litestar (route) -> authorise (identity, permission, tenant)
            -> handler: parse, call `app.jobs` or `taskmq.operations`, render -> response, or problem details

Handlers contain no rules of their own; the command line calls the same code. A submitted job is durable in the store
before the response is sent. The process keeps no state, so it can be killed at any time. Each handler declares the
permission it needs. Handlers reach jobs only through `TenantJobs`, which hides the jobs of other tenants. Needs `pip
install 'taskmq[server]'`.
"""

from taskmq.server.access import Caller, Identify
from taskmq.server.application import ServerApplication, build
from taskmq.server.live import EventSource, read_sources
from taskmq.server.mount import MountedServer, asgi
from taskmq.server.oidc import GroupRole, OidcProvider, OidcSettings
from taskmq.server.settings import ServerSettings

__all__ = [
    "Caller",
    "EventSource",
    "GroupRole",
    "Identify",
    "MountedServer",
    "OidcProvider",
    "OidcSettings",
    "ServerApplication",
    "ServerSettings",
    "asgi",
    "build",
    "read_sources",
]
