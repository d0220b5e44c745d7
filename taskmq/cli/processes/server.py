"""`taskmq server`."""

import asyncio
import os
from typing import Annotated

from cyclopts import Parameter

from taskmq.cli.globals import current_globals, target_of
from taskmq.cli.output import announce
from taskmq.cli.processes.serve import health_of, stop_when_told
from taskmq.errors import UnsupportedFeature
from taskmq.load_app import load_app
from taskmq.model.units import parse_duration, to_ms
from taskmq.run.console_log import begin_console_log, keep_console_log
from taskmq.worker.host.event_loop import loop_factory

__all__ = ["server"]


def server(
    target: str | None = None,
    /,
    *,
    host: str = "127.0.0.1",
    port: int = 8787,
    root_path: str = "",
    read_only: Annotated[bool, Parameter(negative="")] = False,
    environment: str = "",
    rate: float = 200.0,
    token_age: str | None = None,
    query_time: float = 10.0,
    drain: float = 0.0,
    health_port: str | None = None,
    public_url: str | None = None,
    oidc_issuer: str | None = None,
    oidc_client: str | None = None,
    oidc_role: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    oidc_groups: str = "groups",
    event_source: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    default_store: Annotated[str | None, Parameter(show=False)] = None,
    development: Annotated[bool, Parameter(show=False, negative="")] = False,
    lifeline: Annotated[bool, Parameter(show=False, negative="")] = False,
) -> int:
    """Serve an app and its dashboard by HTTP until stopped; any number may run. Needs a job store and taskmq[server].

    Behind a proxy, set $FORWARDED_ALLOW_IPS to its address or network: without it every client has the proxy's
    address, and they share its limits.

    Parameters
    ----------
    target
        MODULE:ATTRIBUTE of the app, or a module with exactly one app.
    host
        The address to listen at. If others than this machine reach it, put TLS in front.
    port
        The port to listen at; 0: any that is free.
    root_path
        The prefix under which clients see it, such as /taskmq.
    read_only
        Change nothing.
    environment
        What this is, such as production: the dashboard shows it.
    rate
        Requests a second of one credential, ten times as many at once, and four times as many of one user; 0: as many
        as come.
    token_age
        API tokens that name no end are good for so long after they were made, such as 365d. Default: for good.
    query_time
        Seconds that each read may take; what takes longer is given up, here and in the store (503); 0: no limit.
    drain
        Seconds for which it goes on after a signal to stop, saying at /health/ready that it is not ready: so long
        a load balancer may take to see that.
    health_port
        Serve /live, /ready, /status and /metrics at PORT of this machine, HOST:PORT, or a socket's path.
    public_url
        Where browsers see it, such as https://jobs.example.com; with --oidc-issuer.
    oidc_issuer
        Users may sign in by this OpenID Connect provider; needs taskmq[oidc].
    oidc_client
        The id that this server has at the provider; its secret is $TASKMQ_OIDC_SECRET.
    oidc_role
        GROUP=TENANT:ROLE, such as ops=*:operator, where * is the instance; several times for more.
    oidc_groups
        The claim of the provider that names a user's groups.
    event_source
        NAME=TASK, or NAME=@TENANT:TASK: signed events of this source start the task; several times for more. Secrets
        are in $TASKMQ_EVENT_SECRETS: NAME=SECRET, with spaces between.
    default_store
        The store of an app that has none.
    development
        No sign-in: every user of this machine is an admin.
    lifeline
        Stop when standard input ends, because the process at its other end is gone.
    """
    try:
        from taskmq.server import GroupRole, OidcProvider, OidcSettings, ServerSettings, build, read_sources
        from taskmq.server.process import ServerProcess
        from taskmq.server.process.proxies import check_proxies
    except ImportError as error:
        raise UnsupportedFeature(f"the server needs {error.name}: pip install 'taskmq[server]'") from error

    options = current_globals()
    begin_console_log(options.log_level)
    settings = ServerSettings(
        host=host,
        port=port,
        root_path=root_path,
        read_only=read_only,
        environment=environment,
        development=development,
        rate=rate,
        token_age=None if token_age is None else to_ms(parse_duration(token_age, what="--token-age")) / 1000,
        query_time=query_time,
        drain=drain,
        # No proxy stands before a server without sign-in.
        trusted_proxies="" if development else check_proxies(os.environ.get("FORWARDED_ALLOW_IPS", "")),
    )
    app, _ = load_app(target_of(target))
    keep_console_log()
    store = options.store or (default_store if app.sessions.store_url is None else None)
    app.sessions.configure(url=options.url, state=options.state, store=store, name="server")
    if app.sessions.store_url is None:
        raise UnsupportedFeature("the server needs a job store: say --store URL, or set $TASKMQ_STORE")

    provider: OidcProvider | None = None
    if oidc_issuer is not None:
        oidc = OidcSettings(
            issuer=oidc_issuer,
            client_id=oidc_client or "",
            client_secret=os.environ.get("TASKMQ_OIDC_SECRET", ""),
            public_url=public_url or "",
            roles=tuple(map(GroupRole.read, oidc_role)),
            groups_claim=oidc_groups,
        )
        provider = OidcProvider(oidc, clock=app.sessions.clock)

    sources = read_sources(event_source, os.environ.get("TASKMQ_EVENT_SECRETS", ""))

    async def run() -> None:
        application = build(app, settings=settings, oidc=provider, sources=sources)
        await application.check()
        process = ServerProcess(application, settings)
        stop_when_told(process.stop, lifeline=lifeline)
        async with health_of(application, health_port):
            await process.run(on_ready=lambda address: announce(f"taskmq server: app {app.name!r} at {address}/"))

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(run())
    return 0
