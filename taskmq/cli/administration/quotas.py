"""`taskmq quota`."""

from typing import Annotated, Final, Literal

import msgspec
from cyclopts import Parameter

from taskmq.api.pools import QuotaBody
from taskmq.cli.actor import name_caller
from taskmq.cli.noun import Noun
from taskmq.cli.output import ask_first, note
from taskmq.cli.server_link import ask, show_record, show_rows

app = Noun(name="quota", help="Limit how much tenants and users may submit: list, set, remove.")

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
    """List the quotas, and how much of each was used since midnight UTC."""
    show_rows(_COLUMNS, ask(lambda api: api.quotas.list()), msgspec.structs.asdict)


@app.command(name="set")
@name_caller
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
    """Set how much a tenant, or one of its users, may submit and run. Replaces an earlier quota.

    Args:
        tenant: The tenant; `*` stands for every tenant without a quota.
        user: The owner of the jobs; `*` stands for every owner without a quota.
        queued: Maximum number of waiting jobs.
        a_day: Jobs per day, from midnight to midnight UTC.
        size: Bytes of job bodies per day.
        rate: Jobs per second.
        burst: How many jobs may exceed the rate at once.
        running: Maximum number of jobs at the broker and in workers; further jobs wait.
        on_limit: Whether a job above the rate is rejected, or waits until the rate allows it.
    """
    body = QuotaBody(
        queued=queued, a_day=a_day, bytes=size, rate=rate, burst=burst, running=running, on_limit=on_limit
    )
    made = ask(lambda api: api.quotas.put(tenant, body, user=user))
    show_record(made, lambda: {name: getattr(made, name) for name in _COLUMNS[:-2]})


@app.command
@name_caller
@ask_first("Remove the quota of {tenant}?")
def remove(tenant: str, /, *, user: str | None = None) -> None:
    """Remove a quota.

    Args:
        tenant: The tenant.
        user: The user; without it, the tenant's own quota is removed.
    """
    ask(lambda api: api.quotas.remove(tenant, user=user))
    note(f"removed the quota of {tenant}{'' if user is None else f' for user {user}'}")
