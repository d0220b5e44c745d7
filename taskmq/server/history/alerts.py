"""`/alerts`: alerts, rules, silences and notices."""

from fnmatch import fnmatchcase
from typing import Annotated, Any, Final

from litestar import Request, Response
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
from taskmq.contracts.history import history_of
from taskmq.errors import InvalidOption, NotPermitted
from taskmq.model.history.alerts import METRICS, AlertState
from taskmq.model.identity import Permission, allows_pattern
from taskmq.server.access import Caller
from taskmq.server.handlers import Handlers
from taskmq.server.inputs import ApiGiven, CallerGiven, Limit, ServedApp, matched_version, parts
from taskmq.server.problems import Problem

ALERT_HANDLERS: Final = Handlers("alerts")

States = Annotated[str, QueryParameter(description="Comma-separated states: pending, firing, resolved.")]


@ALERT_HANDLERS.handle("GET /alerts", "listAlerts", Permission.ALERTS_READ, "List alerts")
async def list_alerts(api: ApiGiven, states: States = "pending,firing,resolved") -> AlertList:
    """Return alerts, active ones first."""
    return await api.alerts.list(*_states(states))


@ALERT_HANDLERS.handle("GET /alerts/metrics", "listAlertMetrics", Permission.ALERTS_READ, "List metrics for rules")
async def list_metrics() -> MetricsView:
    """Return the metrics available to rules, with descriptions."""
    return MetricsView(dict(METRICS))


@ALERT_HANDLERS.handle("GET /alerts/rules", "listAlertRules", Permission.ALERTS_READ, "List alert rules")
async def list_rules(api: ApiGiven) -> RuleList:
    """Return rules, ordered by name. Webhook paths are only shown to callers who may change rules."""
    return RuleList(list(await api.alerts.rules()))


@ALERT_HANDLERS.handle(
    "PUT /alerts/rules/{name}", "putAlertRule", Permission.ALERTS_CHANGE, "Create or replace an alert rule"
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


@ALERT_HANDLERS.handle(
    "DELETE /alerts/rules/{name}", "deleteAlertRule", Permission.ALERTS_CHANGE, "Remove an alert rule"
)
async def delete_rule(api: ApiGiven, app: ServedApp, caller: CallerGiven, name: FromPath[str]) -> dict[str, str]:
    """Remove a rule and its alerts, without a final notice. The caller must be allowed to call the rule's tasks."""
    await _check_rules(app, caller, name)
    await api.alerts.delete_rule(name)
    return {"status": "deleted", "name": name}


@ALERT_HANDLERS.handle(
    "POST /alerts/rules/{name}/test", "testAlertRule", Permission.ALERTS_CHANGE, "Send a test notice", status_code=202
)
async def test_rule(api: ApiGiven, name: FromPath[str]) -> TestedView:
    """Ask a scheduler to send each channel a test notice within seconds. `GET /alerts/notices` shows the result."""
    return TestedView(list(await api.alerts.test_rule(name)))


@ALERT_HANDLERS.handle("GET /alerts/silences", "listSilences", Permission.ALERTS_READ, "List silences")
async def list_silences(api: ApiGiven) -> SilenceList:
    """Return the silences that have not expired."""
    return SilenceList(list(await api.alerts.silences()))


@ALERT_HANDLERS.handle(
    "POST /alerts/silences", "addSilence", Permission.ALERTS_CHANGE, "Add a silence", status_code=201
)
async def add_silence(api: ApiGiven, app: ServedApp, caller: CallerGiven, data: JSONBody[SilenceBody]) -> SilenceView:
    """Suppress the notices of matching alerts until the silence ends. The alerts are still shown.

    Rules for tasks that the caller may not call cannot be silenced.
    """
    await _check_rules(app, caller, data.rule or "*")
    return await api.alerts.silence(data.seconds, rule=data.rule, subject=data.subject, note=data.note)


@ALERT_HANDLERS.handle(
    "DELETE /alerts/silences/{silence_id}", "deleteSilence", Permission.ALERTS_CHANGE, "End a silence"
)
async def delete_silence(api: ApiGiven, silence_id: FromPath[str]) -> dict[str, str]:
    """End a silence early."""
    await api.alerts.end_silence(silence_id)
    return {"status": "ended", "id": silence_id}


@ALERT_HANDLERS.handle("GET /alerts/notices", "listAlertNotices", Permission.ALERTS_READ, "List notices")
async def list_notices(api: ApiGiven, limit: Limit = 50) -> NoticeList:
    """Return notices, newest first."""
    return NoticeList(list(await api.alerts.notices(limit=limit)))


@ALERT_HANDLERS.handle(
    "POST /alerts/setup",
    "setUpAlertCompat",
    Permission.ALERTS_CHANGE,
    "Create or replace an alert rule",
    is_compatible=True,
)
async def set_up_alert(api: ApiGiven, app: ServedApp, caller: CallerGiven, data: JSONBody[SetupBody]) -> RuleView:
    """Create or replace a rule with its channels."""
    _check_body(data.name, data)
    await _check_rules(app, caller, data.name)
    return await api.alerts.put_rule(data.name, data)


async def _check_rules(app: TaskMQ, caller: Caller, names: str) -> None:
    """Refuse to change rules about tasks that the caller may not call.

    Args:
        names: the rule's name, or a pattern.
    """
    for each in await history_of(app.sessions.store()).alerts.rules(caller.tenant):
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
