"""Rules, alerts, silences and notices, stored as rows with JSON content."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

import msgspec
from msgspec.structs import replace

from taskmq.contracts.history import AlertNotice, KeptRule, NoticeTurn
from taskmq.model.history.alerts import Alert, AlertRule, AlertState, Silence, check_limits, check_silence
from taskmq.model.history.channels import channel_host
from taskmq.model.identity import AuditEntry
from taskmq_sql.history.conditions import Conditions
from taskmq_sql.identity import note
from taskmq_sql.jobs.values import can_be_kept
from taskmq_sql.steps import LOCK, Row, SqlCalls, Steps, ask, clock, first, insert, read_call, write_call

_RULES: Final = "select content, version from taskmq.alert_rule"
_PUT_RULE: Final = """
insert into taskmq.alert_rule (tenant, name, version, content) values ($1, $2, $3, $4)
on conflict (tenant, name) do update set version = excluded.version, content = excluded.content"""
_ALERTS: Final = "select content, version from taskmq.alert"
_OF_RULE: Final = "from taskmq.alert where tenant = $1 and rule = $2 and subject = any($3::text[])"
_PUT_ALERTS: Final = """
insert into taskmq.alert (tenant, rule, subject, version, changed, content)
@rows(text, text, text, int, bigint, text) on conflict (tenant, rule, subject) do update
set version = excluded.version, changed = excluded.changed, content = excluded.content"""
_ADD_NOTICES: Final = """
insert into taskmq.alert_notice (id, at, next_at, tries, content, tenant, host)
@rows(text, bigint, bigint, int, text, text, text) on conflict (id) do nothing"""
_ADD_SILENCE: Final = """
insert into taskmq.alert_silence (id, tenant, ends, content) values ($1, $2, $3, $4)
on conflict (id) do update set tenant = excluded.tenant, ends = excluded.ends, content = excluded.content"""
_PAGE: Final = 500
# Rows per statement: one rule may have an alert for each task, and longer statements would block the event loop.
_TOGETHER: Final = 100
_NOTICE: Final = "select content, next_at, tries from taskmq.alert_notice"


class SqlAlerts(SqlCalls):
    """An `AlertStore` in the database's tables."""

    @read_call
    def rules(self, tenant: str | None = None) -> Steps[list[KeptRule]]:
        return _rules(tenant=tenant)

    @write_call
    def put_rule(
        self, rule: AlertRule, *, version: int | None = None, audit: AuditEntry | None = None
    ) -> Steps[int | None]:
        yield LOCK
        rules = yield from _rules(tenant=rule.tenant)
        present = next((each.version for each in rules if each.rule.name == rule.name), 0)
        if version is not None and version != present:
            return None
        check_limits(rule, [each.rule for each in rules])
        yield from ask(_PUT_RULE, rule.tenant, rule.name, present + 1, _text(rule))
        yield from note([] if audit is None else [audit])
        return present + 1

    @write_call
    def remove_rule(self, tenant: str, name: str, *, audit: AuditEntry | None = None) -> Steps[bool]:
        if not can_be_kept(tenant, name):
            return False
        yield LOCK
        rows = yield from ask(
            "delete from taskmq.alert_rule where tenant = $1 and name = $2 returning version", tenant, name
        )
        yield from ask("delete from taskmq.alert where tenant = $1 and rule = $2", tenant, name)
        if rows and audit is not None:
            yield from note([audit])
        return bool(rows)

    async def alerts(self, tenant: str | None = None) -> list[Alert]:
        found: list[Alert] = []
        page: list[Alert] | None = None
        while page is None or len(page) == _PAGE:
            # There may be one for each task; pages keep the event loop free.
            page = await self.runner.read(partial(_alerts, tenant=tenant, after=found[-1] if found else None))
            found += page
        return found

    @read_call
    def silences(self, *, ended: bool = False) -> Steps[list[Silence]]:
        return _silences(ended=ended)

    @write_call
    def add_silence(self, silence: Silence, *, audit: AuditEntry | None = None) -> Steps[None]:
        yield LOCK
        check_silence(silence, (yield from _silences(ended=False)))
        yield from ask(_ADD_SILENCE, silence.id, silence.tenant, silence.ends, _text(silence))
        yield from note([] if audit is None else [audit])

    @write_call
    def remove_silence(self, silence_id: str, *, audit: AuditEntry | None = None) -> Steps[bool]:
        if not can_be_kept(silence_id):
            return False
        rows = yield from ask("delete from taskmq.alert_silence where id = $1 returning id", silence_id)
        if rows and audit is not None:
            yield from note([audit])
        return bool(rows)

    async def commit(self, alerts: Sequence[Alert], notices: Sequence[AlertNotice]) -> bool:
        return await self._commit(alerts, notices) if alerts or notices else True

    @write_call
    def _commit(self, alerts: Sequence[Alert], notices: Sequence[AlertNotice]) -> Steps[bool]:
        yield LOCK
        parts = list(_parts(alerts))
        for tenant, rule, part in parts:
            rows = yield from ask(
                f"select subject, version {_OF_RULE}", tenant, rule, [each.subject for each in part]
            )
            present = {str(row[0]): row[1] for row in rows}
            if any(alert.version != present.get(alert.subject, 0) for alert in part):
                return False
        for tenant, rule, part in parts:
            # Keyed by subject: one statement cannot write a row twice.
            latest = {alert.subject: alert for alert in part}.values()
            yield from insert(
                _PUT_ALERTS,
                [(tenant, rule, each.subject, each.version + 1, each.changed, _text(each)) for each in latest],
            )
        for start in range(0, len(notices), _TOGETHER):
            yield from insert(
                _ADD_NOTICES,
                [
                    (each.id, each.at, each.next, 0, _text(each), each.rule.tenant, channel_host(each.channel))
                    for each in notices[start : start + _TOGETHER]
                ],
            )
        return True

    async def take_notice(self, *, lease_ms: int, turn: NoticeTurn = NoticeTurn()) -> AlertNotice | None:  # noqa: B008 - frozen
        if await self.runner.read(partial(_due_notice, turn=turn)) is None:
            return None
        return await self.runner.write(partial(_take_notice, lease_ms=lease_ms, turn=turn))

    @write_call
    def settle_notice(self, notice: AlertNotice, *, retry_at: int | None) -> Steps[None]:
        # If the notice was leased again since, it belongs to another scheduler.
        yield from ask(
            "update taskmq.alert_notice set next_at = $3 where id = $1 and tries = $2",
            notice.id,
            notice.tries,
            retry_at,
        )

    @read_call
    def notices(self, tenant: str | None = None, *, limit: int = 50) -> Steps[list[AlertNotice]]:
        if not can_be_kept(tenant or ""):
            return []
        if tenant is None:
            rows = yield from ask(f"{_NOTICE} order by at desc, id limit $1", limit)
        else:
            rows = yield from ask(f"{_NOTICE} where tenant = $1 order by at desc, id limit $2", tenant, limit)
        return [_notice(row) for row in rows]

    @write_call
    def forget(self, *, before: int) -> Steps[None]:
        yield LOCK
        yield from ask("delete from taskmq.alert_silence where ends < $1", before)
        yield from ask("delete from taskmq.alert_notice where next_at is null and at < $1", before)
        rows = yield from ask("select content from taskmq.alert where changed < $1", before)
        old = [msgspec.json.decode(content, type=Alert) for (content,) in rows]
        for tenant, rule, part in _parts([alert for alert in old if alert.state is AlertState.RESOLVED]):
            yield from ask(f"delete {_OF_RULE}", tenant, rule, [each.subject for each in part])


def _rules(*, tenant: str | None) -> Steps[list[KeptRule]]:
    if tenant is None:
        rows = yield from ask(f"{_RULES} order by tenant, name")
    else:
        rows = yield from ask(f"{_RULES} where tenant = $1 order by name", tenant)
    return [KeptRule(msgspec.json.decode(content, type=AlertRule), version) for content, version in rows]


def _alerts(*, tenant: str | None, after: Alert | None) -> Steps[list[Alert]]:
    conditions = Conditions()
    conditions.equal("tenant", tenant)
    if after is not None:
        conditions.demand("(tenant, rule, subject) > ({})", after.tenant, after.rule, after.subject)
    rows = yield from ask(
        f"{_ALERTS} {conditions.where} order by tenant, rule, subject limit {conditions.add_value(_PAGE)}",
        *conditions.args,
    )
    return [replace(msgspec.json.decode(content, type=Alert), version=version) for content, version in rows]


def _silences(*, ended: bool) -> Steps[list[Silence]]:
    since = 0 if ended else (yield from clock())
    rows = yield from ask("select content from taskmq.alert_silence where ends > $1", since)
    found = [msgspec.json.decode(content, type=Silence) for (content,) in rows]
    return sorted(found, key=lambda silence: (silence.begins, silence.id))


def _parts(alerts: Sequence[Alert]) -> Iterator[tuple[str, str, list[Alert]]]:
    """Group the alerts by rule: yield tenant, rule and at most `_TOGETHER` alerts."""
    rules: dict[tuple[str, str], list[Alert]] = {}
    for alert in alerts:
        rules.setdefault((alert.tenant, alert.rule), []).append(alert)
    for (tenant, rule), found in rules.items():
        for start in range(0, len(found), _TOGETHER):
            yield tenant, rule, found[start : start + _TOGETHER]


def _due_notice(*, turn: NoticeTurn) -> Steps[Row | None]:
    # Two index scans by tenant, starting after the tenant of the last turn: a sort would read all due notices.
    now = yield from clock()
    for side in (">", "<="):
        conditions = Conditions()
        conditions.demand("next_at <= {}", now)
        conditions.demand(f"tenant {side} {{}}", turn.after)
        if turn.tenants:
            conditions.demand("tenant not in ({})", *sorted(turn.tenants))
        for tenant, host in sorted(turn.hosts):
            conditions.demand("(tenant, host) <> ({})", tenant, host)
        row = yield from first(f"{_NOTICE} {conditions.where} order by tenant, next_at, id limit 1", *conditions.args)
        if row is not None:
            return row
    return None


def _take_notice(*, lease_ms: int, turn: NoticeTurn) -> Steps[AlertNotice | None]:
    now = yield from clock()
    yield LOCK
    row = yield from _due_notice(turn=turn)
    if row is None:
        return None
    notice = replace(_notice(row), next=now + lease_ms, tries=row[2] + 1)
    yield from ask(
        "update taskmq.alert_notice set next_at = $2, tries = $3 where id = $1", notice.id, notice.next, notice.tries
    )
    return notice


def _notice(row: Row) -> AlertNotice:
    content, next_at, tries = row
    return replace(msgspec.json.decode(content, type=AlertNotice), next=next_at, tries=tries)


def _text(value: msgspec.Struct) -> str:
    return msgspec.json.encode(value).decode()
