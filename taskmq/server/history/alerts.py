"""`/alerts`: what is wrong now, when that is said, and to whom it is not."""

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

__all__ = ["ALERT_HANDLERS"]


States = Annotated[str, QueryParameter(description="Of pending, firing and resolved, with commas between.")]


@get(
    f"{API}/alerts",
    permission=Permission.ALERTS_READ,
    operation_id="listAlerts",
    summary="What is wrong",
    tags=["alerts"],
)
async def list_alerts(api: ApiGiven, states: States = "pending,firing,resolved") -> AlertList:
    """Alerts, those that go on first."""
    return await api.alerts.list(*_states(states))


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
async def list_rules(api: ApiGiven) -> RuleList:
    """The rules, by name; paths of webhooks are shown to those who may change rules."""
    return RuleList(list(await api.alerts.rules()))


@put(
    f"{API}/alerts/rules/{{name:str}}",
    permission=Permission.ALERTS_CHANGE,
    operation_id="putAlertRule",
    summary="Make or replace a rule",
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
    """Make the rule, or put it in the place of the one of its name; `If-Match` says which version that must have.

    A rule about tasks is replaced by callers who may call these.
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
    summary="Remove a rule",
    tags=["alerts"],
)
async def delete_rule(api: ApiGiven, app: ServedApp, caller: CallerGiven, name: FromPath[str]) -> dict[str, str]:
    """Remove a rule and its alerts, without a notice of their end; one about tasks, if the caller may call these."""
    await _check_rules(app, caller, name)
    await api.alerts.delete_rule(name)
    return {"status": "deleted", "name": name}


@post(
    f"{API}/alerts/rules/{{name:str}}/test",
    status_code=202,
    permission=Permission.ALERTS_CHANGE,
    operation_id="testAlertRule",
    summary="Send a test notice to the channels of a rule",
    tags=["alerts"],
)
async def test_rule(api: ApiGiven, name: FromPath[str]) -> TestedView:
    """A scheduler sends a test notice to each channel within seconds; `GET /alerts/notices` shows what came of it."""
    return TestedView(list(await api.alerts.test_rule(name)))


@get(
    f"{API}/alerts/silences",
    permission=Permission.ALERTS_READ,
    operation_id="listSilences",
    summary="List silences",
    tags=["alerts"],
)
async def list_silences(api: ApiGiven) -> SilenceList:
    """The silences that have not ended."""
    return SilenceList(list(await api.alerts.silences()))


@post(
    f"{API}/alerts/silences",
    permission=Permission.ALERTS_CHANGE,
    operation_id="addSilence",
    summary="Send no notices of some alerts for a while",
    tags=["alerts"],
)
async def add_silence(api: ApiGiven, app: ServedApp, caller: CallerGiven, data: JSONBody[SilenceBody]) -> SilenceView:
    """Alerts that fit are shown as before, and send no notices until the silence ends.

    Those of rules about tasks that the caller may not call cannot be silenced.
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
    """End a silence before its time."""
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
    """The last notices, the latest first."""
    return NoticeList(list(await api.alerts.notices(limit=limit)))


@post(
    "/alerts/setup",
    status_code=200,
    permission=Permission.ALERTS_CHANGE,
    operation_id="setUpAlertOfDocument",
    summary="Make or replace a rule",
    tags=["compatible names"],
)
async def set_up_alert(api: ApiGiven, app: ServedApp, caller: CallerGiven, data: JSONBody[SetupBody]) -> RuleView:
    """A rule and its channels."""
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
    """Refuse to take away a rule about tasks that the caller may not call.

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
        raise Problem.about("states", f"there is no state {unknown[0][:40]!r}", "pending, firing, resolved")
    return words


def _check_body(name: str, body: RuleBody) -> None:
    try:
        read_rule(name, body)
    except InvalidOption as error:
        raise Problem.about("name", str(error)) from error
