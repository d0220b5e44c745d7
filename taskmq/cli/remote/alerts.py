"""`taskmq alert`, `taskmq stats` and `taskmq failures` through a server."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec

from taskmq.api.history.alerts import AlertView, NoticeView, RuleBody, RuleView, SilenceView
from taskmq.api.history.figures import FailureLane, FailureView, RollupView
from taskmq.cli.exits import FAILED, NOT_FOUND, OK
from taskmq.cli.history.alert import (
    ALERT_COLUMNS,
    APPLIED_COLUMNS,
    NOTICE_COLUMNS,
    RULE_COLUMNS,
    SILENCE_COLUMNS,
    rules_of,
)
from taskmq.cli.history.failures import FAILURE_COLUMNS, note_more, remedy_text
from taskmq.cli.history.stats import FIGURE_COLUMNS, parts_of, rounded
from taskmq.cli.output import note, print_rows
from taskmq.cli.server_link import show_record, show_rows, text_of_instant
from taskmq.contracts.system_clock import SystemClock
from taskmq.errors import RequestRefused
from taskmq.http import Client
from taskmq.model.history.alerts import AlertRule
from taskmq.model.history.channels import shown_channel
from taskmq.model.units import parse_seconds, to_datetime

__all__ = [
    "apply",
    "failures",
    "list_alerts",
    "notices",
    "remove",
    "rules",
    "silence",
    "silences",
    "stats",
    "tell_test",
    "unsilence",
]


_PAGE = 200


def list_alerts(client: Client, *, resolved: bool) -> int:
    found = client.alerts.list()

    def row(one: AlertView) -> dict[str, Any]:
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

    show_rows(ALERT_COLUMNS, [one for one in found.items if resolved or one.state != "resolved"], row)
    return FAILED if found.firing else OK


def rules(client: Client) -> int:
    def row(one: RuleView) -> dict[str, Any]:
        return {
            "name": one.name,
            "tenant": one.tenant,
            "metric": one.metric,
            "threshold": one.threshold,
            "severity": one.severity,
            "channels": " ".join(map(shown_channel, one.channels)),
            "version": one.version,
        }

    show_rows(RULE_COLUMNS, client.alerts.rules(), row)
    return OK


def apply(client: Client, *, file: Path, prune: bool) -> int:
    wanted = rules_of(file)
    present = {(one.tenant, one.name): one for one in client.alerts.rules()}
    made: list[dict[str, Any]] = []
    for rule in wanted:
        body = _body(rule)
        if rule.name and (known := present.get((rule.tenant, rule.name))) is not None and _body(known) == body:
            continue
        stored = _of(client, rule.tenant).alerts.put_rule(rule.name, body)
        made.append({"name": rule.name, "tenant": rule.tenant, "version": stored.version})
    if prune:
        names = {(rule.tenant, rule.name) for rule in wanted}
        tenants = {rule.tenant for rule in wanted}
        for tenant, name in present:
            if tenant in tenants and (tenant, name) not in names:
                _of(client, tenant).alerts.delete_rule(name)
                made.append({"name": name, "tenant": tenant, "version": None})
    print_rows(APPLIED_COLUMNS, made)
    return OK


def remove(client: Client, *, name: str, tenant: str) -> int:
    try:
        _of(client, tenant).alerts.delete_rule(name)
    except RequestRefused as error:
        return _absent(error, f"there is no rule {name!r}")
    return OK


def tell_test(client: Client, *, name: str, tenant: str) -> int:
    try:
        channels = _of(client, tenant).alerts.test_rule(name)
    except RequestRefused as error:
        return _absent(error, f"there is no rule {name!r}")
    print_rows(("channel",), [{"channel": shown_channel(channel)} for channel in channels])
    note("a scheduler sends it; `taskmq alert notices` shows what came of it")
    return OK


def silence(client: Client, *, seconds: str, rule: str, subject: str, tenant: str, why: str) -> int:
    span = parse_seconds(seconds, what="seconds")
    made = _of(client, tenant).alerts.silence(span, rule=rule, subject=subject, note=why)
    show_record(made, lambda: {"id": made.id, "ends": text_of_instant(made.ends)})
    return OK


def silences(client: Client) -> int:
    def row(one: SilenceView) -> dict[str, Any]:
        facts: dict[str, Any] = msgspec.to_builtins(one)
        return {**facts, "ends": text_of_instant(one.ends)}

    show_rows(SILENCE_COLUMNS, client.alerts.silences(), row)
    return OK


def unsilence(client: Client, *, silence_id: str) -> int:
    try:
        client.alerts.end_silence(silence_id)
    except RequestRefused as error:
        return _absent(error, f"there is no silence {silence_id!r}")
    return OK


def notices(client: Client, *, limit: int) -> int:
    def row(one: NoticeView) -> dict[str, Any]:
        return {
            "at": text_of_instant(one.at),
            "rule": one.rule,
            "channel": one.channel,
            "changes": ", ".join(f"{change['kind']} {change['subject']}".rstrip() for change in one.changes),
            "state": one.state,
            "tries": one.tries,
        }

    show_rows(NOTICE_COLUMNS, client.alerts.notices(limit=limit), row)
    return OK


def stats(client: Client, *, since: str, task: str | None, queue: str | None, tenant: str | None, by: str) -> int:
    span = timedelta(seconds=parse_seconds(since, what="since"))
    own = client if tenant is None else client.for_tenant(tenant)
    begin = to_datetime(SystemClock().now_ms()) - span

    def row(one: RollupView) -> dict[str, Any]:
        return {
            **{part: getattr(one, part) for part in parts_of(by)},
            "ended": one.ended,
            "failed": one.failed,
            "failure_rate": rounded(one.failure_rate),
            "retried": one.outcomes.get("retried", 0),
            "wait_p95": rounded(one.wait_p95),
            "run_p50": rounded(one.run_p50),
            "run_p95": rounded(one.run_p95),
        }

    found = own.figures.rollups(since=begin, task=task, queue=queue, by=parts_of(by))
    show_rows((*parts_of(by), *FIGURE_COLUMNS), found.items, row)
    return OK


def failures(
    client: Client,
    *,
    job: str | None,
    since: str,
    until: str,
    lane: FailureLane | None,
    task: str | None,
    queue: str | None,
    tenant: str | None,
    error: str | None,
    limit: int,
) -> int:
    begin, end = (
        to_datetime(SystemClock().now_ms()) - timedelta(seconds=parse_seconds(text, what=what))
        for text, what in ((since, "since"), (until, "until"))
    )
    own = client if tenant is None else client.for_tenant(tenant)
    which: dict[str, Any] = {"lane": lane, "task": task, "queue": queue, "error": error}
    which |= {"job_id": job} if job is not None else {"since": begin}
    which |= {"until": end} if parse_seconds(until, what="until") else {}
    found: list[FailureView] = []
    cursor: str | None = None
    while True:
        left = 1 if job is not None else min(limit - len(found), _PAGE)
        page = own.figures.failures(**which, limit=left, cursor=cursor, traceback=job is not None)
        if not found:
            for gap in page.missing:
                note(f"{gap.source} may be missing: {gap.why}")
        found += page.items
        cursor = page.next
        if cursor is None or job is not None or len(found) >= limit:
            break
    if job is None:
        show_rows(FAILURE_COLUMNS, found, _failure_row)
        note_more(is_more=cursor is not None)
        return OK
    if not found:
        note(f"no failure of job {job!r} is kept, and it has no dead letter; one of the store: taskmq job show")
        return NOT_FOUND
    (one,) = found
    facts = {"worker": one.worker, "seconds": one.seconds, "reason": one.reason}
    show_record(one, lambda: {**_failure_row(one), **facts, "traceback": one.traceback})
    return OK


def _failure_row(one: FailureView) -> dict[str, Any]:
    return {
        "at": text_of_instant(one.at),
        "lane": one.lane,
        "tenant": one.tenant,
        "job": one.job_id,
        "task": one.task or one.name,
        "queue": one.queue,
        "attempt": one.attempt or None,
        "event": one.event,
        "summary": one.summary,
        "then": remedy_text(one.remedy, one.letter, is_handled=one.is_handled, retried_as=one.retried_as),
        "error": one.error,
        "message": one.message,
    }


def _body(rule: AlertRule | RuleView) -> RuleBody:
    fields = {name: getattr(rule, name) for name in RuleBody.__struct_fields__}
    return msgspec.convert({**fields, "channels": [*rule.channels], "unless": [*rule.unless]}, RuleBody)


def _of(client: Client, tenant: str) -> Client:
    return client.for_tenant(tenant) if tenant else client


def _absent(error: RequestRefused, text: str) -> int:
    if error.status != _ABSENT:
        raise error
    note(text)
    return NOT_FOUND


_ABSENT = 404
