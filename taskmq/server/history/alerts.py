"""`/alerts`: what is wrong now, when that is said, and to whom it is not."""

from fnmatch import fnmatchcase
from typing import Annotated, Any, Final

import msgspec
from litestar import Request, Response, get, post
from litestar.handlers import delete, put
from litestar.params import FromPath, JSONBody, QueryParameter

from taskmq.api.history.alerts import (
    AlertList,
    AlertView,
    MetricsView,
    NoticeList,
    NoticeView,
    RuleBody,
    RuleList,
    RuleView,
    SetupBody,
    SilenceBody,
    SilenceList,
    SilenceView,
    TestedView,
)
from taskmq.app import TaskMQ
from taskmq.contracts.history import AlertNotice, KeptRule
from taskmq.errors import NotPermitted
from taskmq.model.history.alerts import (
    METRICS,
    Alert,
    AlertRule,
    AlertState,
    Silence,
    is_silenced,
)
from taskmq.model.history.channels import shown_channel
from taskmq.model.identity import Permission, allows_pattern, may
from taskmq.operations.history import TenantAlerts
from taskmq.server.access import Caller
from taskmq.server.history.inputs import parts
from taskmq.server.inputs import CallerGiven, Limit, ServedApp, instant_text, matched_version, rendered
from taskmq.server.problems import Problem
from taskmq.server.settings import API

__all__ = ["ALERT_HANDLERS"]


States = Annotated[str, QueryParameter(description="Of pending, firing and resolved, with commas between.")]


@get(
    f"{API}/alerts",
    permission=Permission.ALERTS_READ,
    operation_id="listAlerts",
    summary="What is wrong",
    tags=["alerts"],
)
async def list_alerts(app: ServedApp, caller: CallerGiven, states: States = "pending,firing,resolved") -> AlertList:
    """Alerts, those that go on first."""
    book = _book(app, caller)
    found = await book.alerts()
    wanted = _states(states)
    silences = await book.silences()
    now = await app.sessions.store().now_ms()
    return AlertList(
        rendered(
            lambda each: _alert(each, is_silenced(each, silences, now)),
            (each for each in found if each.state in wanted),
        ),
        sum(each.state is AlertState.FIRING for each in found),
        sum(each.state is AlertState.PENDING for each in found),
    )


@get(
    f"{API}/alerts/metrics",
    permission=Permission.ALERTS_READ,
    operation_id="listAlertMetrics",
    summary="What a rule can look at",
    tags=["alerts"],
)
async def list_metrics() -> MetricsView:
    """The figures that rules are about, and what each is."""
    return MetricsView(dict(METRICS))


@get(
    f"{API}/alerts/rules",
    permission=Permission.ALERTS_READ,
    operation_id="listAlertRules",
    summary="List rules",
    tags=["alerts"],
)
async def list_rules(app: ServedApp, caller: CallerGiven) -> RuleList:
    """The rules, by name; paths of webhooks are shown to those who may change rules."""
    is_whole = may(caller.identity, Permission.ALERTS_CHANGE, caller.tenant)
    return RuleList(rendered(lambda each: _rule(each, is_whole=is_whole), await _book(app, caller).rules()))


@put(
    f"{API}/alerts/rules/{{name:str}}",
    permission=Permission.ALERTS_CHANGE,
    operation_id="putAlertRule",
    summary="Make or replace a rule",
    tags=["alerts"],
)
async def put_rule(
    app: ServedApp,
    caller: CallerGiven,
    name: FromPath[str],
    data: JSONBody[RuleBody],
    request: Request[Any, Any, Any],
) -> Response[RuleView]:
    """Make the rule, or put it in the place of the one of its name; `If-Match` says which version that must have.

    A rule about tasks is replaced by callers who may call these.
    """
    rule = _read(name, data)
    await _check_rules(app, caller, name)
    with matched_version(request.headers) as version:
        made = await _book(app, caller).put(rule, version=version)
    return Response(_rule(made), headers={"ETag": f'"{made.version}"'})


@delete(
    f"{API}/alerts/rules/{{name:str}}",
    status_code=200,
    permission=Permission.ALERTS_CHANGE,
    operation_id="deleteAlertRule",
    summary="Remove a rule",
    tags=["alerts"],
)
async def delete_rule(app: ServedApp, caller: CallerGiven, name: FromPath[str]) -> dict[str, str]:
    """Remove a rule and its alerts, without a notice of their end; one about tasks, if the caller may call these."""
    await _check_rules(app, caller, name)
    if not await _book(app, caller).remove(name):
        raise _no_rule(name)
    return {"status": "deleted", "name": name}


@post(
    f"{API}/alerts/rules/{{name:str}}/test",
    status_code=202,
    permission=Permission.ALERTS_CHANGE,
    operation_id="testAlertRule",
    summary="Send a test notice to the channels of a rule",
    tags=["alerts"],
)
async def test_rule(app: ServedApp, caller: CallerGiven, name: FromPath[str]) -> TestedView:
    """A scheduler sends a test notice to each channel within seconds; `GET /alerts/notices` shows what came of it."""
    channels = await _book(app, caller).test(name)
    if channels is None:
        raise _no_rule(name)
    return TestedView(channels)


@get(
    f"{API}/alerts/silences",
    permission=Permission.ALERTS_READ,
    operation_id="listSilences",
    summary="List silences",
    tags=["alerts"],
)
async def list_silences(app: ServedApp, caller: CallerGiven) -> SilenceList:
    """The silences that have not ended."""
    return SilenceList(rendered(_silence, await _book(app, caller).silences()))


@post(
    f"{API}/alerts/silences",
    permission=Permission.ALERTS_CHANGE,
    operation_id="addSilence",
    summary="Send no notices of some alerts for a while",
    tags=["alerts"],
)
async def add_silence(app: ServedApp, caller: CallerGiven, data: JSONBody[SilenceBody]) -> SilenceView:
    """Alerts that fit are shown as before, and send no notices until the silence ends.

    Those of rules about tasks that the caller may not call cannot be silenced.
    """
    await _check_rules(app, caller, data.rule or "*")
    made = await _book(app, caller).silence(
        rule=data.rule, subject=data.subject, seconds=data.seconds, note=data.note
    )
    return _silence(made)


@delete(
    f"{API}/alerts/silences/{{silence_id:str}}",
    status_code=200,
    permission=Permission.ALERTS_CHANGE,
    operation_id="deleteSilence",
    summary="End a silence",
    tags=["alerts"],
)
async def delete_silence(app: ServedApp, caller: CallerGiven, silence_id: FromPath[str]) -> dict[str, str]:
    """End a silence before its time."""
    if not await _book(app, caller).end_silence(silence_id):
        raise Problem(404, "silence_not_found", f"there is no silence {silence_id[:80]!r}")
    return {"status": "ended", "id": silence_id}


@get(
    f"{API}/alerts/notices",
    permission=Permission.ALERTS_READ,
    operation_id="listAlertNotices",
    summary="List notices",
    tags=["alerts"],
)
async def list_notices(app: ServedApp, caller: CallerGiven, limit: Limit = 50) -> NoticeList:
    """The last notices, the latest first."""
    return NoticeList(rendered(_notice, await _book(app, caller).notices(limit=limit)))


@post(
    "/alerts/setup",
    status_code=200,
    permission=Permission.ALERTS_CHANGE,
    operation_id="setUpAlertOfDocument",
    summary="Make or replace a rule",
    tags=["compatible names"],
)
async def set_up_alert(app: ServedApp, caller: CallerGiven, data: JSONBody[SetupBody]) -> RuleView:
    """A rule and its channels."""
    await _check_rules(app, caller, data.name)
    return _rule(await _book(app, caller).put(_read(data.name, data)))


ALERT_HANDLERS: Final[tuple[Any, ...]] = (
    list_alerts,
    list_metrics,
    list_rules,
    put_rule,
    delete_rule,
    test_rule,
    list_silences,
    add_silence,
    delete_silence,
    list_notices,
    set_up_alert,
)


def _book(app: TaskMQ, caller: Caller) -> TenantAlerts:
    return TenantAlerts(app, caller.tenant, by=caller.actor())


async def _check_rules(app: TaskMQ, caller: Caller, names: str) -> None:
    """Refuse to take away a rule about tasks that the caller may not call.

    Args:
        names: the rule's name, or a pattern.
    """
    for each in await _book(app, caller).rules():
        rule = each.rule
        if (
            rule.task
            and fnmatchcase(rule.name, names)
            and not allows_pattern(caller.identity, rule.tenant, rule.task)
        ):
            raise NotPermitted(f"rule {rule.name!r} is about {rule.task!r}, which you may not call")


def _no_rule(name: str) -> Problem:
    return Problem(404, "rule_not_found", f"there is no rule {name[:100]!r}")


def _states(text: str) -> set[str]:
    words = {word.lower() for word in parts(text)}
    if unknown := sorted(words - set(AlertState)):
        raise Problem.about("states", f"there is no state {unknown[0][:40]!r}", "pending, firing, resolved")
    return words


def _read(name: str, body: RuleBody) -> AlertRule:
    fields = {field: getattr(body, field) for field in RuleBody.__struct_fields__}
    try:
        return msgspec.convert({**fields, "name": name}, AlertRule)
    except msgspec.ValidationError as error:
        raise Problem.about("name", str(error)) from error


def _rule(stored: KeptRule, *, is_whole: bool = True) -> RuleView:
    fields: dict[str, Any] = {field: getattr(stored.rule, field) for field in RuleBody.__struct_fields__}
    channels = stored.rule.channels if is_whole else map(shown_channel, stored.rule.channels)
    fields |= {"channels": list(channels), "unless": list(stored.rule.unless)}
    return RuleView(**fields, name=stored.rule.name, tenant=stored.rule.tenant, version=stored.version)


def _alert(alert: Alert, silenced: bool) -> AlertView:  # noqa: FBT001 - called with that only
    return AlertView(
        tenant=alert.tenant,
        rule=alert.rule,
        subject=alert.subject,
        state=alert.state,
        severity=alert.severity,
        value=alert.value,
        since=instant_text(alert.since),
        changed=instant_text(alert.changed),
        told_at=instant_text(alert.told),
        is_silenced=silenced,
    )


def _silence(silence: Silence) -> SilenceView:
    return SilenceView(
        id=silence.id,
        tenant=silence.tenant,
        rule=silence.rule,
        subject=silence.subject,
        begins=instant_text(silence.begins),
        ends=instant_text(silence.ends),
        by=silence.by,
        note=silence.note,
    )


def _notice(notice: AlertNotice) -> NoticeView:
    return NoticeView(
        id=notice.id,
        at=instant_text(notice.at),
        rule=notice.rule.name,
        tenant=notice.rule.tenant,
        channel=shown_channel(notice.channel),
        changes=[{"kind": change.kind, "subject": change.alert.subject} for change in notice.changes],
        state="done" if notice.next is None else "waiting",
        tries=notice.tries,
    )
