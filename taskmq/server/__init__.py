"""The server: the HTTP API of an app, stateless, as many as one likes behind a load balancer.

    request -> Edge (request id, headers) -> Litestar (route) -> authorise (who, may they, for which tenant)
            -> handler: parse, call `app.jobs` or `taskmq.operations`, render -> answer, or problem details

Handlers do nothing else, so that no rule is written twice: the command line goes the same way. What is submitted is
durable in the store before it is answered; nothing is kept in this process, so it may be killed at any time. Each
handler declares the permission that it takes; jobs are found by `TenantJobs` alone, for which those of other tenants
do not exist. Needs `pip install 'taskmq[server]'`.
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
