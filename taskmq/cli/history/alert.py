"""`taskmq alert`: what is wrong, when that is said, and to whom it is not."""

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, cast

from cyclopts import App, Parameter

from taskmq.cli.actor import audited, me
from taskmq.cli.exits import FAILED, NOT_FOUND, OK
from taskmq.cli.globals import current_globals, run_with_app
from taskmq.cli.output import confirmed, note, print_record, print_rows, when
from taskmq.cli.server_link import over_http
from taskmq.errors import InvalidOption
from taskmq.model.history.channels import shown_channel
from taskmq.model.units import parse_seconds

if TYPE_CHECKING:
    from taskmq.app import TaskMQ
    from taskmq.model.history.alerts import AlertRule
    from taskmq.operations.history import TenantAlerts

__all__ = [
    "ALERT_COLUMNS",
    "APPLIED_COLUMNS",
    "NOTICE_COLUMNS",
    "RULE_COLUMNS",
    "SILENCE_COLUMNS",
    "app",
    "rules_of",
]

app = App(
    name="alert",
    help="Alerts: list, rules, apply, remove, test, silence, unsilence, notices.",
    result_action="return_value",
)

ALERT_COLUMNS: Final = ("state", "severity", "rule", "subject", "value", "since", "told", "tenant")
RULE_COLUMNS: Final = ("name", "tenant", "metric", "threshold", "severity", "channels", "version")
SILENCE_COLUMNS: Final = ("id", "rule", "subject", "ends", "by", "note", "tenant")
APPLIED_COLUMNS: Final = ("name", "tenant", "version")
NOTICE_COLUMNS: Final = ("at", "rule", "channel", "changes", "state", "tries")

_Tenant = Annotated[str, Parameter(help="Whose; of the instance where it is left out.")]


@app.command(name="list")
@over_http("alerts:list_alerts")
def list_alerts(*, resolved: Annotated[bool, Parameter(negative="")] = False) -> int:
    """List what is wrong now; ends with 1 where an alert fires.

    Parameters
    ----------
    resolved
        Also what is over.
    """

    async def run(target: "TaskMQ") -> int:
        found = await _book(target, None).alerts()
        shown = [each for each in found if resolved or each.state != "resolved"]
        rows = [
            {
                "state": each.state.value,
                "severity": each.severity,
                "rule": each.rule,
                "subject": each.subject,
                "value": each.value,
                "since": _instant(each.since),
                "told": _instant(each.told),
                "tenant": each.tenant,
            }
            for each in shown
        ]
        print_rows(ALERT_COLUMNS, rows)
        return FAILED if any(each.state == "firing" for each in found) else OK

    return run_with_app(run)


@app.command
@over_http("alerts:rules")
def rules() -> int:
    """List the rules."""

    async def run(target: "TaskMQ") -> int:
        found = await _book(target, None).rules()
        rows = [
            {
                "name": each.rule.name,
                "tenant": each.rule.tenant,
                "metric": each.rule.metric,
                "threshold": each.rule.threshold,
                "severity": each.rule.severity,
                "channels": " ".join(map(shown_channel, each.rule.channels)),
                "version": each.version,
            }
            for each in found
        ]
        print_rows(RULE_COLUMNS, rows)
        return OK

    return run_with_app(run)


@app.command
@audited
@over_http("alerts:apply")
def apply(file: Path, /, *, prune: Annotated[bool, Parameter(negative="")] = False) -> int:
    """Make the rules of a file, and change those that are there.

    The file is TOML with a table `[[rule]]` for each: `name`, `metric`, `threshold`, `channels` and others.
    `channels` above them are those of rules that have none. See docs/alerts.md.

    Parameters
    ----------
    file
        Where the rules are.
    prune
        Remove rules of the same tenants that are not in the file.
    """
    wanted = rules_of(file)

    async def run(target: "TaskMQ") -> int:
        made: list[dict[str, Any]] = []
        present = {(each.rule.tenant, each.rule.name): each.rule for each in await _book(target, None).rules()}
        for rule in wanted:
            if present.get((rule.tenant, rule.name)) != rule:
                stored = await _book(target, rule.tenant).put(rule)
                made.append({"name": rule.name, "tenant": rule.tenant, "version": stored.version})
        if prune:
            names = {(rule.tenant, rule.name) for rule in wanted}
            tenants = {rule.tenant for rule in wanted}
            for tenant, name in present:
                if tenant in tenants and (tenant, name) not in names:
                    await _book(target, tenant).remove(name)
                    made.append({"name": name, "tenant": tenant, "version": None})
        print_rows(APPLIED_COLUMNS, made)
        return OK

    return run_with_app(run)


@app.command
@audited
@confirmed("Remove rule {name} and its alerts?")
@over_http("alerts:remove")
def remove(name: str, /, *, tenant: _Tenant = "") -> int:
    """Remove a rule and its alerts."""

    async def run(target: "TaskMQ") -> int:
        if await _book(target, tenant).remove(name):
            return OK
        note(f"there is no rule {name!r}")
        return NOT_FOUND

    return run_with_app(run)


@app.command(name="test")
@over_http("alerts:tell_test")
def tell_test(name: str, /, *, tenant: _Tenant = "") -> int:
    """Have a scheduler send a test notice to each channel of a rule; `alert notices` shows what came of it."""

    async def run(target: "TaskMQ") -> int:
        channels = await _book(target, tenant).test(name)
        if channels is None:
            note(f"there is no rule {name!r}")
            return NOT_FOUND
        print_rows(("channel",), [{"channel": shown_channel(channel)} for channel in channels])
        note("a scheduler sends it; `taskmq alert notices` shows what came of it")
        return OK

    return run_with_app(run)


@app.command
@audited
@over_http("alerts:silence")
def silence(seconds: str, /, *, rule: str = "", subject: str = "", tenant: _Tenant = "", why: str = "") -> int:
    """Send no notices of some alerts for a while.

    Parameters
    ----------
    seconds
        For how long, such as 2h.
    rule
        Of rules with names that fit, such as `charges-*`; all where it is left out.
    subject
        Of subjects that fit, such as `queue:mail`; all where it is left out.
    why
        For people.
    """
    span = parse_seconds(seconds, what="seconds")

    async def run(target: "TaskMQ") -> int:
        made = await _book(target, tenant).silence(rule=rule, subject=subject, seconds=span, note=why)
        print_record({"id": made.id, "ends": _instant(made.ends)})
        return OK

    return run_with_app(run)


@app.command
@over_http("alerts:silences")
def silences() -> int:
    """List the silences that have not ended."""

    async def run(target: "TaskMQ") -> int:
        found = await _book(target, None).silences()
        rows = [
            {
                "id": each.id,
                "rule": each.rule,
                "subject": each.subject,
                "ends": _instant(each.ends),
                "by": each.by,
                "note": each.note,
                "tenant": each.tenant,
            }
            for each in found
        ]
        print_rows(SILENCE_COLUMNS, rows)
        return OK

    return run_with_app(run)


@app.command
@audited
@over_http("alerts:unsilence")
def unsilence(silence_id: str, /) -> int:
    """End a silence before its time."""

    async def run(target: "TaskMQ") -> int:
        if await _book(target, None).end_silence(silence_id):
            return OK
        note(f"there is no silence {silence_id!r}")
        return NOT_FOUND

    return run_with_app(run)


@app.command
@over_http("alerts:notices")
def notices(*, limit: int = 50) -> int:
    """List the last notices, and those that are still to be sent."""

    async def run(target: "TaskMQ") -> int:
        found = await _book(target, None).notices(limit=limit)
        rows = [
            {
                "at": _instant(each.at),
                "rule": each.rule.name,
                "channel": shown_channel(each.channel),
                "changes": ", ".join(f"{change.kind} {change.alert.subject}".rstrip() for change in each.changes),
                "state": "done" if each.next is None else "waiting",
                "tries": each.tries,
            }
            for each in found
        ]
        print_rows(NOTICE_COLUMNS, rows)
        return OK

    return run_with_app(run)


def rules_of(file: Path) -> "list[AlertRule]":
    """The rules that a file has.

    Raises:
        InvalidOption: it cannot be read.
    """
    from taskmq.operations.history.alerts import read_rules

    try:
        content = tomllib.loads(file.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidOption(f"{file}: {error}") from error
    values: object = content.get("rule", [])
    if set(content) - {"rule", "channels"} or not isinstance(values, list):
        raise InvalidOption(f"{file}: it has [[rule]] tables, channels, and nothing else")
    common = {"channels": content["channels"]} if "channels" in content else {}
    return read_rules([common | rule for rule in cast("list[dict[str, Any]]", values)])


def _book(target: "TaskMQ", tenant: str | None) -> "TenantAlerts":
    from taskmq.operations.history import TenantAlerts

    return TenantAlerts(target, tenant, by=me())


def _instant(at: int | None) -> Any:
    return when(at) if current_globals().output == "table" else at
