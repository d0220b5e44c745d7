"""Alerts, alert rules, silences and notices."""

from collections.abc import Sequence
from typing import Any

import msgspec

from taskmq.api.history.alerts import AlertList, AlertView, NoticeView, RuleBody, RuleView, SilenceView
from taskmq.app_api.caller import AppCalls
from taskmq.app_api.views import instant_text, render_all, view_of
from taskmq.contracts.history import AlertNotice, KeptRule
from taskmq.errors import InvalidOption, RequestRefused
from taskmq.model.history.alerts import Alert, AlertRule, AlertState, Silence, is_silenced
from taskmq.model.history.channels import shown_channel
from taskmq.model.identity import Permission
from taskmq.operations.history import TenantAlerts


class AppAlerts(AppCalls):
    """Alerts, with their rules, silences and notices."""

    async def list(self, *states: str) -> AlertList:
        """Return alerts, active ones first; by default in all states."""
        found = await self._book.alerts()
        silences = await self._book.silences()
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
        return render_all(lambda each: _rule(each, is_whole=is_whole), await self._book.rules())

    async def put_rule(self, name: str, body: RuleBody, *, version: int | None = None) -> RuleView:
        """Create the rule, or replace the one with this name.

        Args:
            version: the version it must have; 0 if it must not exist; None for any.

        Raises:
            InvalidOption: a value is invalid.
            IdentityConflict: it has another version.
        """
        return _rule(await self._book.put(read_rule(name, body), version=version))

    async def delete_rule(self, name: str) -> None:
        """Remove a rule and its alerts, without a final notice.

        Raises:
            RequestRefused: `rule_not_found`: no rule has the name.
        """
        if not await self._book.remove(name):
            raise _no_rule(name)

    async def test_rule(self, name: str) -> Sequence[str]:
        """Ask a scheduler to send each channel a test notice within seconds. Returns the channels.

        Raises:
            RequestRefused: `rule_not_found`: no rule has the name.
        """
        channels = await self._book.test(name)
        if channels is None:
            raise _no_rule(name)
        return channels

    async def silences(self) -> Sequence[SilenceView]:
        """List the silences that have not expired."""
        return render_all(_silence, await self._book.silences())

    async def silence(self, seconds: float, *, rule: str = "", subject: str = "", note: str = "") -> SilenceView:
        """Suppress the notices of matching alerts for this many seconds. The alerts are still shown."""
        return _silence(await self._book.silence(rule=rule, subject=subject, seconds=seconds, note=note))

    async def end_silence(self, silence_id: str) -> None:
        """End a silence early.

        Raises:
            RequestRefused: `silence_not_found`: no silence has the id.
        """
        if not await self._book.end_silence(silence_id):
            raise RequestRefused(f"silence {silence_id[:80]!r} not found", status=404, code="silence_not_found")

    async def notices(self, *, limit: int = 50) -> Sequence[NoticeView]:
        """List notices, newest first."""
        return render_all(_notice, await self._book.notices(limit=limit))

    @property
    def _book(self) -> TenantAlerts:
        return TenantAlerts(self._app, self._caller.tenant, by=self._caller.actor())


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
