"""`taskmq failure-group`: failures by task and error, and which of them are resolved or muted."""

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from cyclopts import Parameter

from taskmq.cli.actor import name_caller
from taskmq.cli.exits import FAILED, OK
from taskmq.cli.noun import Noun
from taskmq.cli.output import note
from taskmq.cli.server_link import ask, show_rows, text_of_instant
from taskmq.contracts.system_clock import SystemClock
from taskmq.model.units import parse_seconds, to_datetime

if TYPE_CHECKING:
    from taskmq.api.history.failure_groups import FailureGroupView

app = Noun(name="failure-group", help="Manage groups of failures by task and error: list, resolve, mute, reopen.")

_COLUMNS: Final = ("id", "state", "tenant", "task", "error", "failures", "before", "since", "last", "message")

_Tenant = Annotated[str | None, Parameter(help="Only groups of this tenant; '' selects those without a tenant.")]
_Why = Annotated[str, Parameter(help="The reason, for people.")]


@app.command(name="list")
def list_groups(
    *,
    since: str = "24h",
    state: Literal["open", "resolved", "muted"] | None = None,
    tenant: _Tenant = None,
) -> int:
    """List groups of failures, those with the most failures first. Exits with 1 if one is open.

    Args:
        since: Length of the period, such as 2h. `before` counts the failures in the same time before it, and the
            column `since` has the version of the app in which the first failure occurred.
        state: Only groups in this state.
    """
    begin = to_datetime(SystemClock().now_ms()) - timedelta(seconds=parse_seconds(since, what="since"))
    found = ask(lambda api: api.failure_groups.list(since=begin, state=state), tenant=tenant)
    show_rows(_COLUMNS, found.items, _row)
    if not found.is_complete:
        note("only the newest 10,000 failures of each kind were counted")
    return FAILED if found.open else OK


@app.command
@name_caller
def resolve(group: str, /, *, tenant: _Tenant = None, why: _Why = "") -> None:
    """Mark a group as resolved; the next failure opens it again."""
    ask(lambda api: api.failure_groups.resolve(group, note=why), tenant=tenant)


@app.command
@name_caller
def mute(
    group: str,
    /,
    *,
    for_: Annotated[str | None, Parameter(name="--for", help="Duration, such as 7d. Default: no end.")] = None,
    tenant: _Tenant = None,
    why: _Why = "",
) -> None:
    """Mute a group: its failures are still listed, but the group is not open. Alerts count its failures."""
    seconds = None if for_ is None else parse_seconds(for_, what="for")
    ask(lambda api: api.failure_groups.mute(group, seconds=seconds, note=why), tenant=tenant)


@app.command
@name_caller
def reopen(group: str, /, *, tenant: _Tenant = None, why: _Why = "") -> None:
    """Open a resolved or muted group again."""
    ask(lambda api: api.failure_groups.reopen(group, note=why), tenant=tenant)


def _row(one: "FailureGroupView") -> dict[str, Any]:
    return {
        "id": one.id,
        "state": "back" if one.is_back else one.state,
        "tenant": one.tenant,
        "task": one.task,
        "error": one.error,
        "failures": one.failures,
        "before": one.before,
        "since": one.first_version,
        "last": text_of_instant(one.last),
        "message": one.message,
    }
