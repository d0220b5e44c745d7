"""`taskmq quota`."""

from typing import Annotated, Final, Literal

import msgspec
from cyclopts import App, Parameter

from taskmq.api.pools import QuotaBody
from taskmq.cli.actor import audited
from taskmq.cli.output import confirmed, note
from taskmq.cli.server_link import ask, show_record, show_rows

__all__ = ["app"]

app = App(
    name="quota", help="How much tenants and users may submit: list, set, remove.", result_action="return_value"
)

_COLUMNS: Final = (
    "tenant",
    "user",
    "queued",
    "a_day",
    "bytes",
    "rate",
    "burst",
    "running",
    "on_limit",
    "jobs_today",
    "bytes_today",
)


@app.command(name="list")
def list_quotas() -> None:
    """List the quotas, with what of them is used up since midnight UTC."""
    show_rows(_COLUMNS, ask(lambda api: api.quotas.list()), msgspec.structs.asdict)


@app.command(name="set")
@audited
def set_quota(
    tenant: str,
    /,
    *,
    user: str | None = None,
    queued: int | None = None,
    a_day: Annotated[int | None, Parameter(name="--a-day")] = None,
    size: Annotated[int | None, Parameter(name="--bytes")] = None,
    rate: float | None = None,
    burst: int = 1,
    running: int | None = None,
    on_limit: Literal["refuse", "wait"] = "refuse",
) -> None:
    """Set how much a tenant, or one of its users, may submit and run; this replaces the earlier quota.

    Parameters
    ----------
    tenant
        Whose quota it is; `*`: every tenant without a quota.
    user
        The owner of the jobs; `*`: every owner without a quota.
    queued
        Jobs that may wait for their turn at a time.
    a_day
        Jobs a day, from midnight to midnight UTC.
    size
        Bytes of their bodies, in the same time.
    rate
        Jobs a second.
    burst
        How many of them may come at once.
    running
        Jobs that may be at the broker and with workers at a time; further ones wait.
    on_limit
        What becomes of a job beyond the rate: it is refused, or waits until the rate lets it go.
    """
    body = QuotaBody(
        queued=queued, a_day=a_day, bytes=size, rate=rate, burst=burst, running=running, on_limit=on_limit
    )
    made = ask(lambda api: api.quotas.put(tenant, body, user=user))
    show_record(made, lambda: {name: getattr(made, name) for name in _COLUMNS[:-2]})


@app.command
@audited
@confirmed("Take the quota of {tenant} away?")
def remove(tenant: str, /, *, user: str | None = None) -> None:
    """Take a quota away.

    Parameters
    ----------
    tenant
        Whose quota it is.
    user
        Of which user, where it is not that of the tenant.
    """
    ask(lambda api: api.quotas.remove(tenant, user=user))
    note(f"{tenant} has no quota {'' if user is None else f'for user {user} '}any more")
