"""`/alerts`: alerts, rules, silences and notices."""

from fnmatch import fnmatchcase
from typing import Annotated, Any, Final

from litestar import Request, Response, get, post
from litestar.handlers import delete, put
from litestar.params import FromPath, JSONBody, QueryParameter

from taskmq.api.history.alerts import (
    AlertList,
    MetricsView,
    NoticeList,
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
from taskmq.app_api.history.alerts import read_rule
from taskmq.errors import InvalidOption, NotPermitted
from taskmq.model.history.alerts import METRICS, AlertState
from taskmq.model.identity import Permission, allows_pattern
from taskmq.operations.history import TenantAlerts
from taskmq.server.access import Caller
from taskmq.server.history.inputs import parts
from taskmq.server.inputs import ApiGiven, CallerGiven, Limit, ServedApp, matched_version
from taskmq.server.problems import Problem
from taskmq.server.settings import API

States = Annotated[str, QueryParameter(description="Comma-separated states: pending, firing, resolved.")]


@get(
    f"{API}/alerts",
    permission=Permission.ALERTS_READ,
    operation_id="listAlerts",
    summary="List alerts",
    tags=["alerts"],
)
async def list_alerts(api: ApiGiven, states: States = "pending,firing,resolved") -> AlertList:
    """Return alerts, active ones first."""
    return await api.alerts.list(*_states(states))


@get(
    f"{API}/alerts/metrics",
    permission=Permission.ALERTS_READ,
    operation_id="listAlertMetrics",
    summary="List metrics for rules",
    tags=["alerts"],
)
async def list_metrics() -> MetricsView:
    """Return the metrics available to rules, with descriptions."""
    return MetricsView(dict(METRICS))


@get(
    f"{API}/alerts/rules",
    permission=Permission.ALERTS_READ,
    operation_id="listAlertRules",
    summary="List alert rules",
    tags=["alerts"],
)
async def list_rules(api: ApiGiven) -> RuleList:
    """Return rules, ordered by name. Webhook paths are only shown to callers who may change rules."""
    return RuleList(list(await api.alerts.rules()))


@put(
    f"{API}/alerts/rules/{{name:str}}",
    permission=Permission.ALERTS_CHANGE,
    operation_id="putAlertRule",
    summary="Create or replace an alert rule",
    tags=["alerts"],
)
async def put_rule(
    api: ApiGiven,
    app: ServedApp,
    caller: CallerGiven,
    name: FromPath[str],
    data: JSONBody[RuleBody],
    request: Request[Any, Any, Any],
) -> Response[RuleView]:
    """Create the rule or replace the one with this name. `If-Match` names the version to replace.

    Only callers who may call a rule's tasks can replace it.
    """
    _check_body(name, data)
    await _check_rules(app, caller, name)
    with matched_version(request.headers) as version:
        made = await api.alerts.put_rule(name, data, version=version)
    return Response(made, headers={"ETag": f'"{made.version}"'})


@delete(
    f"{API}/alerts/rules/{{name:str}}",
    status_code=200,
    permission=Permission.ALERTS_CHANGE,
    operation_id="deleteAlertRule",
    summary="Remove an alert rule",
    tags=["alerts"],
)
async def delete_rule(api: ApiGiven, app: ServedApp, caller: CallerGiven, name: FromPath[str]) -> dict[str, str]:
    """Remove a rule and its alerts, without a final notice. The caller must be allowed to call the rule's tasks."""
    await _check_rules(app, caller, name)
    await api.alerts.delete_rule(name)
    return {"status": "deleted", "name": name}


@post(
    f"{API}/alerts/rules/{{name:str}}/test",
    status_code=202,
    permission=Permission.ALERTS_CHANGE,
    operation_id="testAlertRule",
    summary="Send a test notice",
    tags=["alerts"],
)
async def test_rule(api: ApiGiven, name: FromPath[str]) -> TestedView:
    """Ask a scheduler to send each channel a test notice within seconds. `GET /alerts/notices` shows the result."""
    return TestedView(list(await api.alerts.test_rule(name)))


@get(
    f"{API}/alerts/silences",
    permission=Permission.ALERTS_READ,
    operation_id="listSilences",
    summary="List silences",
    tags=["alerts"],
)
async def list_silences(api: ApiGiven) -> SilenceList:
    """Return the silences that have not expired."""
    return SilenceList(list(await api.alerts.silences()))


@post(
    f"{API}/alerts/silences",
    permission=Permission.ALERTS_CHANGE,
    operation_id="addSilence",
    summary="Add a silence",
    tags=["alerts"],
)
async def add_silence(api: ApiGiven, app: ServedApp, caller: CallerGiven, data: JSONBody[SilenceBody]) -> SilenceView:
    """Suppress the notices of matching alerts until the silence ends. The alerts are still shown.

    Rules for tasks that the caller may not call cannot be silenced.
    """
    await _check_rules(app, caller, data.rule or "*")
    return await api.alerts.silence(data.seconds, rule=data.rule, subject=data.subject, note=data.note)


@delete(
    f"{API}/alerts/silences/{{silence_id:str}}",
    status_code=200,
    permission=Permission.ALERTS_CHANGE,
    operation_id="deleteSilence",
    summary="End a silence",
    tags=["alerts"],
)
async def delete_silence(api: ApiGiven, silence_id: FromPath[str]) -> dict[str, str]:
    """End a silence early."""
    await api.alerts.end_silence(silence_id)
    return {"status": "ended", "id": silence_id}


@get(
    f"{API}/alerts/notices",
    permission=Permission.ALERTS_READ,
    operation_id="listAlertNotices",
    summary="List notices",
    tags=["alerts"],
)
async def list_notices(api: ApiGiven, limit: Limit = 50) -> NoticeList:
    """Return notices, newest first."""
    return NoticeList(list(await api.alerts.notices(limit=limit)))


@post(
    "/alerts/setup",
    status_code=200,
    permission=Permission.ALERTS_CHANGE,
    operation_id="setUpAlertCompat",
    summary="Create or replace an alert rule",
    tags=["compatible names"],
)
async def set_up_alert(api: ApiGiven, app: ServedApp, caller: CallerGiven, data: JSONBody[SetupBody]) -> RuleView:
    """Create or replace a rule with its channels."""
    _check_body(data.name, data)
    await _check_rules(app, caller, data.name)
    return await api.alerts.put_rule(data.name, data)


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


async def _check_rules(app: TaskMQ, caller: Caller, names: str) -> None:
    """Refuse to change rules about tasks that the caller may not call.

    Args:
        names: the rule's name, or a pattern.
    """
    for each in await TenantAlerts(app, caller.tenant, by=caller.actor()).rules():
        rule = each.rule
        if (
            rule.task
            and fnmatchcase(rule.name, names)
            and not allows_pattern(caller.identity, rule.tenant, rule.task)
        ):
            raise NotPermitted(f"rule {rule.name!r} is about {rule.task!r}, which you may not call")


def _states(text: str) -> set[str]:
    words = {word.lower() for word in parts(text)}
    if unknown := sorted(words - set(AlertState)):
        raise Problem.about("states", f"unknown state {unknown[0][:40]!r}", "pending, firing, resolved")
    return words


def _check_body(name: str, body: RuleBody) -> None:
    try:
        read_rule(name, body)
    except InvalidOption as error:
        raise Problem.about("name", str(error)) from error
