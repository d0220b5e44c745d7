"""Alerts, alert rules, silences and notices."""

import json
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from taskmq.api.history.alerts import AlertList, AlertView, NoticeView, RuleBody, RuleView, SilenceView
from taskmq.app_api.caller import AppCalls
from taskmq.app_api.views import instant_text, render_all, view_of
from taskmq.contracts.history import AlertNotice, AlertStore, KeptRule, history_of
from taskmq.errors import InvalidOption, JobConflict, RequestRefused
from taskmq.model.history.alerts import (
    Alert,
    AlertChange,
    AlertRule,
    AlertState,
    Silence,
    check_rule,
    is_silenced,
)
from taskmq.model.history.channels import is_told, parse_channel, shown_channel
from taskmq.model.history.rollups import minute_of
from taskmq.model.identity import AuditEntry, Permission


class AppAlerts(AppCalls):
    """Alerts, with their rules, silences and notices.

    They belong to the caller's tenant; without one, new rules and silences belong to the instance.
    """

    async def list(self, *states: str) -> AlertList:
        """Return alerts: ongoing ones first, then the last changed first; by default in all states."""
        found = await self._store.alerts(self._caller.tenant)
        found = sorted(found, key=lambda each: (each.state is AlertState.RESOLVED, -each.changed, each.subject))
        silences = await self._silences()
        now = await self._app.sessions.store().now_ms()
        return AlertList(
            render_all(
                lambda each: _alert(each, is_silenced(each, silences, now)),
                (each for each in found if not states or each.state in states),
            ),
            sum(each.state is AlertState.FIRING for each in found),
            sum(each.state is AlertState.PENDING for each in found),
        )

    async def rules(self) -> Sequence[RuleView]:
        """List the rules, ordered by name. Webhook paths are only shown to callers who may change rules."""
        is_whole = self._caller.may(Permission.ALERTS_CHANGE, self._caller.tenant)
        found = await self._store.rules(self._caller.tenant)
        return render_all(lambda each: _rule(each, is_whole=is_whole), found)

    async def put_rule(self, name: str, body: RuleBody, *, version: int | None = None) -> RuleView:
        """Create the rule, or replace the one with this name.

        Args:
            version: the version it must have; 0 if it must not exist; None for any.

        Raises:
            InvalidOption: a value is invalid.
            JobConflict: it has another version.
        """
        rule = replace(read_rule(name, body), tenant=self._own_tenant)
        check_rule(rule)
        for channel in rule.channels:
            parse_channel(channel)
        shown = replace(rule, channels=tuple(map(shown_channel, rule.channels)))
        audit = self._entry("alert.put", rule.name, after=msgspec.to_builtins(shown))
        made = await self._store.put_rule(rule, version=version, audit=audit)
        if made is None:
            present = await self._find_rule(rule.name)
            raise JobConflict(
                f"rule {rule.name!r} has another version than {version}: read it again",
                version=0 if present is None else present.version,
            )
        return _rule(KeptRule(rule, made))

    async def delete_rule(self, name: str) -> None:
        """Remove a rule and its alerts, without a final notice.

        Raises:
            RequestRefused: `rule_not_found`: no rule has the name.
        """
        if not await self._store.remove_rule(self._own_tenant, name, audit=self._entry("alert.remove", name)):
            raise _no_rule(name)

    async def test_rule(self, name: str) -> Sequence[str]:
        """Ask a scheduler to send each channel a test notice within seconds. Returns the channels.

        A channel gets at most one test per minute of the store's clock.

        Raises:
            RequestRefused: `rule_not_found`: no rule has the name.
        """
        if (stored := await self._find_rule(name)) is None:
            raise _no_rule(name)
        rule, now = stored.rule, await self._app.sessions.store().now_ms()
        alert = Alert(
            tenant=self._own_tenant,
            rule=name,
            subject="test",
            state=AlertState.FIRING,
            since=now,
            value=rule.threshold,
            changed=now,
            severity=rule.severity,
        )
        changes = [AlertChange(kind="test", alert=alert)]
        channels = [channel for channel in rule.channels if is_told(channel, rule.severity)]
        await self._app.sessions.store().identity.audit.add([self._entry("alert.test", name)])
        notices = [
            AlertNotice(
                id=self._test_id(name, channel, now), channel=channel, rule=rule, changes=changes, at=now, next=now
            )
            for channel in channels
        ]
        await self._store.commit([], notices)
        return channels

    async def silences(self) -> Sequence[SilenceView]:
        return render_all(_silence, await self._silences())

    async def silence(self, seconds: float, *, rule: str = "", subject: str = "", note: str = "") -> SilenceView:
        """Suppress the notices of matching alerts for this many seconds. The alerts are still shown.

        Args:
            rule, subject: patterns; "" matches all.

        Raises:
            LimitReached: the tenant would have more than 100 silences.
        """
        now = await self._app.sessions.store().now_ms()
        made = Silence(
            id=str(uuid.uuid4()),
            tenant=self._own_tenant,
            rule=rule,
            subject=subject,
            begins=now,
            ends=now + round(seconds * 1000),
            by=self._caller.actor().user,
            note=note,
        )
        await self._store.add_silence(made, audit=self._entry("alert.silence", rule, after={"seconds": seconds}))
        return _silence(made)

    async def end_silence(self, silence_id: str) -> None:
        """End a silence early.

        Raises:
            RequestRefused: `silence_not_found`: no silence has the id.
        """
        is_known = silence_id in {each.id for each in await self._silences()}
        audit = self._entry("alert.unsilence", silence_id)
        if not is_known or not await self._store.remove_silence(silence_id, audit=audit):
            raise RequestRefused(f"silence {silence_id[:80]!r} not found", status=404, code="silence_not_found")

    async def notices(self, *, limit: int = 50) -> Sequence[NoticeView]:
        """List notices, newest first, sent or not."""
        return render_all(_notice, await self._store.notices(self._caller.tenant, limit=limit))

    async def _find_rule(self, name: str) -> KeptRule | None:
        found = [each for each in await self._store.rules(self._own_tenant) if each.rule.name == name]
        return found[0] if found else None

    async def _silences(self) -> Sequence[Silence]:
        return [each for each in await self._store.silences() if self._caller.tenant in (None, each.tenant)]

    @property
    def _own_tenant(self) -> str:
        return self._caller.tenant or ""

    @property
    def _store(self) -> AlertStore:
        return history_of(self._app.sessions.store()).alerts

    def _test_id(self, name: str, channel: str, now: int) -> str:
        facts = json.dumps([self._own_tenant, name, channel, minute_of(now)])
        return f"test-{uuid.uuid5(uuid.NAMESPACE_URL, facts).hex}"

    def _entry(self, action: str, subject: str, *, after: Mapping[str, Any] | None = None) -> AuditEntry:
        tenant, facts = self._own_tenant, None if after is None else dict(after)
        return self._caller.actor().entry(action, kind="alert", subject=subject, tenant=tenant, after=facts)


def read_rule(name: str, body: RuleBody) -> AlertRule:
    """Convert a request body to a rule.

    Raises:
        InvalidOption: a value is invalid.
    """
    fields = {field: getattr(body, field) for field in RuleBody.__struct_fields__}
    try:
        return msgspec.convert({**fields, "name": name}, AlertRule)
    except msgspec.ValidationError as error:
        raise InvalidOption(str(error)) from error


def _no_rule(name: str) -> RequestRefused:
    return RequestRefused(f"rule {name[:100]!r} not found", status=404, code="rule_not_found")


def _rule(stored: KeptRule, *, is_whole: bool = True) -> RuleView:
    fields: dict[str, Any] = {field: getattr(stored.rule, field) for field in RuleBody.__struct_fields__}
    channels = stored.rule.channels if is_whole else map(shown_channel, stored.rule.channels)
    fields |= {"channels": list(channels), "unless": list(stored.rule.unless)}
    return RuleView(**fields, name=stored.rule.name, tenant=stored.rule.tenant, version=stored.version)


def _alert(alert: Alert, silenced: bool) -> AlertView:  # noqa: FBT001 - called with that only
    return view_of(
        AlertView,
        alert,
        since=instant_text(alert.since),
        changed=instant_text(alert.changed),
        told_at=instant_text(alert.told),
        is_silenced=silenced,
    )


def _silence(silence: Silence) -> SilenceView:
    return view_of(SilenceView, silence, begins=instant_text(silence.begins), ends=instant_text(silence.ends))


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
