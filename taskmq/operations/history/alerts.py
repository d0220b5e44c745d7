"""Alert rules, alerts and silences that one caller may see and change."""

import json
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from taskmq.app import TaskMQ
from taskmq.contracts.history import AlertNotice, AlertStore, KeptRule, history_of
from taskmq.contracts.identity import Actor
from taskmq.errors import InvalidOption, JobConflict
from taskmq.model.history.alerts import METRICS, Alert, AlertChange, AlertRule, AlertState, Silence, check_rule
from taskmq.model.history.channels import is_told, parse_channel, shown_channel
from taskmq.model.history.rollups import minute_of
from taskmq.model.identity import AuditEntry
from taskmq.model.units import did_you_mean


class TenantAlerts:
    """Alerts of a tenant.

    Every method raises `StoreUnavailable`, and `UnsupportedFeature` if the app has no store that keeps alerts.

    Args:
        tenant: tenant that owns them; "" means those of the instance, None means all. With None, new rules and
            silences belong to the instance.
        by: the actor, for the audit log.
    """

    def __init__(self, app: TaskMQ, tenant: str | None, *, by: Actor) -> None:
        self._app = app
        self._tenant = tenant
        self._by = by

    async def rules(self) -> list[KeptRule]:
        """Return the rules, sorted by tenant and name."""
        return await self._store.rules(self._tenant)

    async def rule(self, name: str) -> KeptRule | None:
        """Return the rule of that name; None if there is none."""
        found = [each for each in await self._store.rules(self._own_tenant) if each.rule.name == name]
        return found[0] if found else None

    async def put(self, rule: AlertRule, *, version: int | None = None) -> KeptRule:
        """Create a rule, or replace the one of the same name.

        Args:
            version: version that the present rule must have; 0: there must be none.

        Raises:
            InvalidOption: the rule is invalid.
            JobConflict: the present rule has another version.
        """
        rule = replace(rule, tenant=self._own_tenant)
        check_rule(rule)
        for channel in rule.channels:
            parse_channel(channel)
        shown = replace(rule, channels=tuple(map(shown_channel, rule.channels)))
        audit = self._entry("alert.put", rule.name, after=msgspec.to_builtins(shown))
        made = await self._store.put_rule(rule, version=version, audit=audit)
        if made is None:
            present = await self.rule(rule.name)
            raise JobConflict(
                f"rule {rule.name!r} has another version than {version}: read it again",
                version=0 if present is None else present.version,
            )
        return KeptRule(rule, made)

    async def remove(self, name: str) -> bool:
        """Remove a rule and its alerts. Returns whether it existed."""
        return await self._store.remove_rule(self._own_tenant, name, audit=self._entry("alert.remove", name))

    async def alerts(self, *, states: frozenset[AlertState] | None = None) -> list[Alert]:
        """Return the alerts: ongoing ones first, then the last changed first."""
        found = [each for each in await self._store.alerts(self._tenant) if states is None or each.state in states]
        return sorted(found, key=lambda each: (each.state is AlertState.RESOLVED, -each.changed, each.subject))

    async def silences(self) -> list[Silence]:
        """Return the silences that have not ended."""
        return [each for each in await self._store.silences() if self._tenant in (None, each.tenant)]

    async def silence(self, *, rule: str, subject: str, seconds: float, note: str) -> Silence:
        """Silence matching alerts for some time, starting now.

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
            by=self._by.user,
            note=note,
        )
        await self._store.add_silence(made, audit=self._entry("alert.silence", rule, after={"seconds": seconds}))
        return made

    async def end_silence(self, silence_id: str) -> bool:
        """End a silence. Returns whether it existed."""
        if silence_id not in {each.id for each in await self.silences()}:
            return False
        return await self._store.remove_silence(silence_id, audit=self._entry("alert.unsilence", silence_id))

    async def test(self, name: str) -> list[str] | None:
        """Queue a test notice to each channel of a rule. Returns the channels; None if there is no such rule.

        A channel gets at most one test per minute of the store's clock.
        """
        if (stored := await self.rule(name)) is None:
            return None
        now = await self._app.sessions.store().now_ms()
        alert = Alert(
            tenant=self._own_tenant,
            rule=name,
            subject="test",
            state=AlertState.FIRING,
            since=now,
            value=stored.rule.threshold,
            changed=now,
            severity=stored.rule.severity,
        )
        change = AlertChange(kind="test", alert=alert)
        notices = [
            AlertNotice(
                id=self._test_id(name, channel, now),
                channel=channel,
                rule=stored.rule,
                changes=[change],
                at=now,
                next=now,
            )
            for channel in stored.rule.channels
            if is_told(channel, stored.rule.severity)
        ]
        await self._app.sessions.store().identity.audit.add([self._entry("alert.test", name)])
        await self._store.commit([], notices)
        return [notice.channel for notice in notices]

    async def notices(self, *, limit: int = 50) -> list[AlertNotice]:
        """Return the last notices of the caller's rules, newest first, sent or not."""
        return await self._store.notices(self._tenant, limit=limit)

    @property
    def _own_tenant(self) -> str:
        return self._tenant or ""

    @property
    def _store(self) -> AlertStore:
        return history_of(self._app.sessions.store()).alerts

    def _test_id(self, name: str, channel: str, now: int) -> str:
        facts = json.dumps([self._own_tenant, name, channel, minute_of(now)])
        return f"test-{uuid.uuid5(uuid.NAMESPACE_URL, facts).hex}"

    def _entry(self, action: str, subject: str, *, after: Mapping[str, Any] | None = None) -> AuditEntry:
        return self._by.entry(
            action,
            kind="alert",
            subject=subject,
            tenant=self._own_tenant,
            after=None if after is None else dict(after),
        )


def read_rules(values: Sequence[Any]) -> list[AlertRule]:
    """Parse the rules of a file.

    Raises:
        InvalidOption: one of them is malformed.
    """
    found: list[AlertRule] = []
    for value in values:
        try:
            found.append(msgspec.convert(value, AlertRule))
        except msgspec.ValidationError as error:
            raise InvalidOption(f"rule {len(found) + 1} of the file: {_describe_fault(value, error)}") from error
    return found


def _describe_fault(value: Any, error: msgspec.ValidationError) -> str:
    """Describe the fault of a rule, with the nearest valid name."""
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, object]", value)
        known = [field.encode_name for field in msgspec.structs.fields(AlertRule)]
        if unknown := [name for name in fields if name not in known]:
            return f"there is no field {unknown[0]!r}: {did_you_mean(unknown[0], known)}"
        if isinstance(metric := fields.get("metric"), str) and metric not in METRICS:
            return f"there is no metric {metric!r}: {did_you_mean(metric, METRICS)}"
    return str(error)
