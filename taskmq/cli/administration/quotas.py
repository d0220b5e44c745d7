"""`taskmq quota`."""

from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from cyclopts import App, Parameter

from taskmq.cli.actor import audited, change_with_app
from taskmq.cli.exits import OK
from taskmq.cli.globals import run_with_app
from taskmq.cli.output import confirmed, note, print_record, print_rows
from taskmq.cli.server_link import over_http

if TYPE_CHECKING:
    from taskmq.model.jobs.quotas import Quota

__all__ = ["QUOTA_COLUMNS", "app"]

app = App(
    name="quota", help="How much tenants and users may submit: list, set, remove.", result_action="return_value"
)

QUOTA_COLUMNS: Final = (
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
@over_http("pools:list_quotas")
def list_quotas() -> None:
    """List the quotas, with what of them is used up since midnight UTC."""
    states = run_with_app(lambda target: target.pools.aquotas())
    print_rows(
        QUOTA_COLUMNS,
        [{**_row(each.quota), "jobs_today": each.jobs, "bytes_today": each.bytes} for each in states],
    )


@app.command(name="set")
@audited
@over_http("pools:set_quota")
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
) -> int:
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
    limits: dict[str, Any] = {
        "queued": queued,
        "a_day": a_day,
        "bytes": size,
        "rate": rate,
        "burst": burst,
        "running": running,
        "on_limit": on_limit,
    }
    quota = change_with_app(
        lambda target: target.pools.aset_quota(tenant, user, **limits),
        "quota.change",
        [_subject(tenant, user)],
        after=limits,
    )
    print_record(_row(quota))
    return OK


@app.command
@audited
@confirmed("Take the quota of {tenant} away?")
@over_http("pools:remove_quota")
def remove(tenant: str, /, *, user: str | None = None) -> int:
    """Take a quota away.

    Parameters
    ----------
    tenant
        Whose quota it is.
    user
        Of which user, where it is not that of the tenant.
    """
    change_with_app(lambda target: target.pools.aremove_quota(tenant, user), "quota.remove", [_subject(tenant, user)])
    note(f"{tenant} has no quota {'' if user is None else f'for user {user} '}any more")
    return OK


def _subject(tenant: str, user: str | None) -> str:
    return tenant if user is None else f"{tenant}/{user}"


def _row(quota: "Quota") -> dict[str, Any]:
    return {name: getattr(quota, name) for name in QUOTA_COLUMNS[:-2]}
