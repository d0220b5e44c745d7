"""`taskmq alert`: active alerts, rules, silences and notices."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from cyclopts import Parameter

from taskmq.api.history.alerts import RuleBody
from taskmq.cli.actor import name_caller
from taskmq.cli.exits import FAILED, OK
from taskmq.cli.history.rule_file import read_rule_file
from taskmq.cli.noun import Noun
from taskmq.cli.output import ask_first, note, print_rows
from taskmq.cli.server_link import Api, ask, show_record, show_rows, text_of_instant
from taskmq.model.history.channels import shown_channel
from taskmq.model.units import parse_seconds

if TYPE_CHECKING:
    from taskmq.api.history.alerts import AlertView, NoticeView, RuleView, SilenceView
    from taskmq.model.history.alerts import AlertRule

app = Noun(
    name="alert", help="Manage alerts: list, rules, apply, remove, test, silence, silences, unsilence, notices."
)

_ALERT_COLUMNS: Final = ("state", "severity", "rule", "subject", "value", "since", "told", "tenant")
_RULE_COLUMNS: Final = ("name", "tenant", "metric", "threshold", "severity", "channels", "version")
_SILENCE_COLUMNS: Final = ("id", "rule", "subject", "ends", "by", "note", "tenant")
_APPLIED_COLUMNS: Final = ("name", "tenant", "version")
_NOTICE_COLUMNS: Final = ("at", "rule", "channel", "changes", "state", "tries")

_Tenant = Annotated[str, Parameter(help="The tenant. Default: the instance.")]


@app.command(name="list")
def list_alerts(*, resolved: Annotated[bool, Parameter(negative="")] = False) -> int:
    """List active alerts. Exits with 1 if one is firing.

    Args:
        resolved: Include resolved alerts.
    """
    found = ask(lambda api: api.alerts.list())
    show_rows(_ALERT_COLUMNS, [one for one in found.items if resolved or one.state != "resolved"], _alert_row)
    return FAILED if found.firing else OK


@app.command
def rules() -> None:
    """List the alert rules."""
    show_rows(_RULE_COLUMNS, ask(lambda api: api.alerts.rules()), _rule_row)


@app.command
@name_caller
def apply(file: Path, /, *, prune: Annotated[bool, Parameter(negative="")] = False) -> None:
    """Create or update the rules of a file.

    The file is TOML with a table `[[rule]]` for each: `name`, `metric`, `threshold`, `channels` and others. A
    top-level `channels` is the default for rules without channels. See docs/alerts.md.

    Args:
        file: The file of rules.
        prune: Remove rules of the same tenants that are not in the file.
    """
    wanted = read_rule_file(file)

    async def run(api: Api) -> list[dict[str, Any]]:
        present = {(one.tenant, one.name): one for one in await api.alerts.rules()}
        made: list[dict[str, Any]] = []
        for rule in wanted:
            known, body = present.get((rule.tenant, rule.name)), _request_body(rule)
            if known is None or _request_body(known) != body:
                stored = await _api_for(api, rule.tenant).alerts.put_rule(rule.name, body)
                made.append({"name": rule.name, "tenant": rule.tenant, "version": stored.version})
        if prune:
            names = {(rule.tenant, rule.name) for rule in wanted}
            tenants = {rule.tenant for rule in wanted}
            for tenant, name in present:
                if tenant in tenants and (tenant, name) not in names:
                    await _api_for(api, tenant).alerts.delete_rule(name)
                    made.append({"name": name, "tenant": tenant, "version": None})
        return made

    print_rows(_APPLIED_COLUMNS, ask(run))


@app.command
@name_caller
@ask_first("Remove rule {name} and its alerts?")
def remove(name: str, /, *, tenant: _Tenant = "") -> None:
    """Remove a rule and its alerts."""
    ask(lambda api: _api_for(api, tenant).alerts.delete_rule(name))


@app.command(name="test")
def send_test(name: str, /, *, tenant: _Tenant = "") -> None:
    """Have a scheduler send a test notice to each channel of a rule; `alert notices` shows the result."""
    channels = ask(lambda api: _api_for(api, tenant).alerts.test_rule(name))
    print_rows(("channel",), [{"channel": shown_channel(channel)} for channel in channels])
    note("a scheduler sends the test notice; see `taskmq alert notices` for the result")


@app.command
@name_caller
def silence(seconds: str, /, *, rule: str = "", subject: str = "", tenant: _Tenant = "", why: str = "") -> None:
    """Suppress the notices of some alerts for a while.

    Args:
        seconds: Duration, such as 2h.
        rule: Only rules with matching names, such as `charges-*`. Default: all.
        subject: Only matching subjects, such as `queue:mail`. Default: all.
        why: The reason, for people.
    """
    span = parse_seconds(seconds, what="seconds")
    made = ask(lambda api: _api_for(api, tenant).alerts.silence(span, rule=rule, subject=subject, note=why))
    show_record(made, lambda: {"id": made.id, "ends": text_of_instant(made.ends)})


@app.command
def silences() -> None:
    """List the active silences."""
    show_rows(_SILENCE_COLUMNS, ask(lambda api: api.alerts.silences()), _silence_row)


@app.command
@name_caller
def unsilence(silence_id: str, /) -> None:
    """End a silence early."""
    ask(lambda api: api.alerts.end_silence(silence_id))


@app.command
def notices(*, limit: int = 50) -> None:
    """List the latest notices, and those still to be sent."""
    show_rows(_NOTICE_COLUMNS, ask(lambda api: api.alerts.notices(limit=limit)), _notice_row)


def _request_body(rule: "AlertRule | RuleView") -> RuleBody:
    fields = {name: getattr(rule, name) for name in RuleBody.__struct_fields__}
    return msgspec.convert({**fields, "channels": [*rule.channels], "unless": [*rule.unless]}, RuleBody)


def _api_for(api: Api, tenant: str) -> Api:
    return api.for_tenant(tenant) if tenant else api


def _alert_row(one: "AlertView") -> dict[str, Any]:
    return {
        "state": one.state,
        "severity": one.severity,
        "rule": one.rule,
        "subject": one.subject,
        "value": one.value,
        "since": text_of_instant(one.since),
        "told": text_of_instant(one.told_at),
        "tenant": one.tenant,
    }


def _rule_row(one: "RuleView") -> dict[str, Any]:
    return {
        "name": one.name,
        "tenant": one.tenant,
        "metric": one.metric,
        "threshold": one.threshold,
        "severity": one.severity,
        "channels": " ".join(map(shown_channel, one.channels)),
        "version": one.version,
    }


def _silence_row(one: "SilenceView") -> dict[str, Any]:
    return {**msgspec.structs.asdict(one), "ends": text_of_instant(one.ends)}


def _notice_row(one: "NoticeView") -> dict[str, Any]:
    return {
        "at": text_of_instant(one.at),
        "rule": one.rule,
        "channel": one.channel,
        "changes": ", ".join(f"{change['kind']} {change['subject']}".rstrip() for change in one.changes),
        "state": one.state,
        "tries": one.tries,
    }
