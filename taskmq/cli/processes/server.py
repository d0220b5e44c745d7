"""`taskmq server`."""

import asyncio
import os
from typing import Annotated

from cyclopts import Parameter

from taskmq.cli.globals import current_globals, target_of
from taskmq.cli.output import announce
from taskmq.cli.processes.serve import health_of, stop_on_signals
from taskmq.errors import UnsupportedFeature
from taskmq.load_app import load_app
from taskmq.model.units import parse_duration, to_ms
from taskmq.run.console_log import begin_console_log, keep_console_log
from taskmq.worker.host.event_loop import loop_factory


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
    """Serve the HTTP API and dashboard of an app until stopped. Needs a job store and taskmq[server].

    Run any number of servers. Behind a proxy, set $FORWARDED_ALLOW_IPS to its address or network: otherwise all
    clients share the limits of the proxy's address.

    Args:
        target: MODULE:ATTRIBUTE of the app, or a module with exactly one app.
        host: The address to listen on. If other machines can reach it, put TLS in front.
        port: The port to listen on; 0: any free port.
        root_path: The path prefix that clients see, such as /taskmq.
        read_only: Reject all changes.
        environment: Name of the environment shown in the dashboard, such as production.
        rate: Requests per second for each credential, with bursts of ten times as many;
            each user gets four times as much. 0: no limit.
        token_age: Maximum age of API tokens without an expiry, such as 365d. Default: no limit.
        query_time: Maximum seconds for a read; a slower one is aborted, in the store, too (503). 0: no limit.
        drain: Seconds to continue after a stop signal while /health/ready reports not ready, so that load balancers
            notice.
        health_port: Serve /live, /ready, /status and /metrics at PORT of this machine, HOST:PORT, or a socket path.
        public_url: URL that browsers use, such as https://jobs.example.com; with --oidc-issuer.
        oidc_issuer: Allow sign-in with this OpenID Connect provider; needs taskmq[oidc].
        oidc_client: Client id of this server at the provider; the secret is $TASKMQ_OIDC_SECRET.
        oidc_role: GROUP=TENANT:ROLE, such as ops=*:operator, where * is the instance; may be repeated.
        oidc_groups: Claim with a user's groups.
        event_source: NAME=TASK, or NAME=@TENANT:TASK: signed events of this source start the task; may be repeated.
            Secrets are in $TASKMQ_EVENT_SECRETS, as NAME=SECRET separated by spaces.
        default_store: Store for an app that names none.
        development: Disable sign-in: every user of this machine is an admin.
        lifeline: Stop when standard input closes, because the parent process is gone.
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
        # A server without sign-in is never behind a proxy.
        trusted_proxies="" if development else check_proxies(os.environ.get("FORWARDED_ALLOW_IPS", "")),
    )
    app, _ = load_app(target_of(target))
    keep_console_log()
    store = options.store or (default_store if app.sessions.store_url is None else None)
    app.sessions.configure(
        url=options.url, state=options.state, store=store, store_replica=options.store_replica, name="server"
    )
    if app.sessions.store_url is None:
        raise UnsupportedFeature("the server needs a job store: pass --store URL or set $TASKMQ_STORE")

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
        stop_on_signals(process.stop, lifeline=lifeline)
        async with health_of(application, health_port):
            await process.run(on_ready=lambda address: announce(f"taskmq server: app {app.name!r} at {address}/"))

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(run())
    return 0
