"""Evaluation of alert rules every ten seconds, by one scheduler for all, in turns of half a minute.

    rules, alerts, silences -> figures -> evaluate -> alerts and notices, one transaction per rule
                                                   -> ongoing alerts, to Alertmanagers each minute
The lease only saves work. If two schedulers evaluate a rule at a time, the version of each alert lets only one of
them write, so each change is announced once, even if a scheduler dies.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from taskmq.app import TaskMQ
from taskmq.contracts.history import AlertNotice, AlertStore
from taskmq.contracts.jobs import JobStore
from taskmq.contracts.stores import Lease
from taskmq.durable.lease_terms import acquire_in_term
from taskmq.durable.service import pause
from taskmq.errors import BrokerUnavailable, StateUnavailable, StoreUnavailable
from taskmq.model.history.alerts import Alert, AlertRule, AlertState, Evaluation, Silence, end_alerts, evaluate
from taskmq.model.history.channels import is_told, is_told_singly
from taskmq.scheduler.alerts.figures import AlertFigures
from taskmq.scheduler.alerts.http import DeliveryFailed, post
from taskmq.scheduler.alerts.messages import notice_id
from taskmq.scheduler.alerts.repetition import AlertRepetition
from taskmq.scheduler.alerts.settings import AlertSettings
from taskmq.scheduler.signals import LiveWorkers

_log = logging.getLogger("taskmq.scheduler")

_KEY: Final = "alerts"
_TURN: Final = 30.0
_PERIOD: Final = 10.0
_TURNS: Final = 3
_HEARTBEAT: Final = 60.0
# Subjects per step, so that dispatching on the same loop is not delayed.
_TOGETHER: Final = 200


class _Seen(NamedTuple):
    """Data read for one evaluation; `firing` has the rules with a firing alert, by tenant and name."""

    known: Sequence[Alert]
    silences: Sequence[Silence]
    firing: set[tuple[str, str]]
    now: int


async def _evaluate_in_steps(
    rule: AlertRule, samples: Mapping[str, float], own: Mapping[str, Alert], seen: _Seen
) -> Evaluation:
    """Evaluate a rule, some subjects at a time."""
    is_inhibited = any((rule.tenant, name) in seen.firing for name in rule.unless)
    await asyncio.sleep(0)
    subjects = sorted(samples.keys() | own.keys())
    found = Evaluation([], [])
    for start in range(0, len(subjects), _TOGETHER):
        some = subjects[start : start + _TOGETHER]
        part = evaluate(
            rule,
            {subject: samples[subject] for subject in some if subject in samples},
            {subject: own[subject] for subject in some if subject in own},
            seen.now,
            silences=seen.silences,
            is_inhibited=is_inhibited,
        )
        found.alerts.extend(part.alerts)
        found.changes.extend(part.changes)
        await asyncio.sleep(0)
    return found


class AlertWatch:
    """A service that evaluates rules in turns with other schedulers.

    Attributes:
        evaluated: when this scheduler last evaluated all rules (ms since the epoch); None: never.
    """

    def __init__(
        self,
        app: TaskMQ,
        store: JobStore,
        alerts: AlertStore,
        workers: LiveWorkers,
        settings: AlertSettings,
        *,
        me: str,
    ) -> None:
        self.evaluated: int | None = None
        self._app = app
        self._store = store
        self._alerts = alerts
        self._workers = workers
        self._settings = settings
        self._me = me
        self._is_stopping = asyncio.Event()
        self._turns_left = 0
        self._beat_at = 0.0
        self._repetition = AlertRepetition(settings)
        # Alerts after the writes of this evaluation, by tenant, rule and subject.
        self._present: dict[tuple[str, str, str], Alert] = {}

    def stop(self) -> None:
        """See `Service`."""
        self._is_stopping.set()

    async def run(self) -> None:
        """Evaluate rules in turns with other schedulers, until `stop`."""
        while not self._is_stopping.is_set():
            await pause(self._is_stopping, await self._turn())

    async def _turn(self) -> float:
        """Evaluate the rules if it is this scheduler's turn. Returns the seconds until the next call."""
        try:
            if not self._turns_left:
                leases = self._store.dispatching.leases
                token = await acquire_in_term(leases, _KEY, owner=self._me, seconds=_TURN)
                if isinstance(token, Lease):
                    return min(max(token.left, 1.0), _PERIOD)
                self._turns_left = _TURNS
            self._turns_left -= 1
            await self.evaluate_all()
            await self._beat()
        except (StateUnavailable, StoreUnavailable) as error:
            self._turns_left = 0
            _log.warning("store unavailable, alert rules are not evaluated: %s", error)
        return _PERIOD

    async def evaluate_all(self) -> None:
        """Evaluate all rules once.

        Raises:
            StoreUnavailable: the store could not be reached; some changes may have been written.
        """
        # Read before the rules: an alert without a rule then belongs to a removed rule, not to a new one.
        known = await self._alerts.alerts()
        kept = {(each.rule.tenant, each.rule.name): each.rule for each in await self._alerts.rules()}
        rules = [rule for rule in kept.values() if rule.is_enabled]
        now = await self._store.now_ms()
        self._present = {_key(each): each for each in known}
        await self._end_orphans(known, kept, now)
        if rules:
            seen = _Seen(known, await self._alerts.silences(), _firing(known, rules), now)
            figures = AlertFigures(self._app, self._store, self._workers, rules, now=now)
            # Rules that inhibit others come first.
            for rule in sorted(rules, key=lambda rule: bool(rule.unless)):
                await self._evaluate(rule, figures, seen)
            await self._repetition.repeat(rules, self._present.values(), now=now)
        self.evaluated = now

    async def _evaluate(self, rule: AlertRule, figures: AlertFigures, seen: "_Seen") -> None:
        await asyncio.sleep(0)
        own = {each.subject: each for each in seen.known if (each.tenant, each.rule) == (rule.tenant, rule.name)}
        try:
            samples = await figures.samples(rule, own.keys())
        except BrokerUnavailable as error:
            _log.warning("rule %s: not evaluated, broker unavailable: %s", rule.name, error)
            return
        if samples is None:
            return
        found = await _evaluate_in_steps(rule, samples, own, seen)
        if await self._write(rule.name, rule, found, seen.now) and any(
            each.state is AlertState.FIRING for each in found.alerts
        ):
            seen.firing.add((rule.tenant, rule.name))

    async def _end_orphans(self, known: Sequence[Alert], kept: Mapping[tuple[str, str], AlertRule], now: int) -> None:
        """End the alerts of disabled or removed rules."""
        left: dict[tuple[str, str], list[Alert]] = {}
        for each in known:
            rule = kept.get((each.tenant, each.rule))
            if each.state is not AlertState.RESOLVED and (rule is None or not rule.is_enabled):
                left.setdefault((each.tenant, each.rule), []).append(each)
        for key, alerts in left.items():
            await self._write(key[1], kept.get(key), end_alerts(alerts, now), now)

    async def _write(self, name: str, rule: AlertRule | None, found: Evaluation, now: int) -> bool:
        """Write an evaluation and its notices. Returns False if another scheduler was faster."""
        if not await self._alerts.commit(found.alerts, self._notices(rule, found, now)):
            _log.info("rule %s: another scheduler has evaluated it meanwhile", name)
            return False
        self._present.update((_key(each), each) for each in found.alerts)
        for change in found.changes:
            _log.info("alert %s %s: %s", name, change.alert.subject, change.kind)
        return True

    def _notices(self, rule: AlertRule | None, found: Evaluation, now: int) -> list[AlertNotice]:
        """Build the notices of all changes, one per channel if the channel allows it; a removed rule has none."""
        if rule is None or not found.changes:
            return []
        return [
            AlertNotice(
                id=notice_id(rule, channel, changes), channel=channel, rule=rule, changes=changes, at=now, next=now
            )
            for channel in rule.channels
            if is_told(channel, rule.severity)
            for changes in ([[change] for change in found.changes] if is_told_singly(channel) else [found.changes])
        ]

    async def _beat(self) -> None:
        """Send the heartbeat; an external monitor raises an alarm if it is missing."""
        now = asyncio.get_running_loop().time()
        if not self._settings.heartbeat or now < self._beat_at:
            return
        self._beat_at = now + _HEARTBEAT
        try:
            # The URL was set by the operator of the scheduler, not by a user.
            await post(self._settings.heartbeat, b"{}", headers={}, allows_private=True)
        except DeliveryFailed as error:
            _log.warning("sending the alert heartbeat failed: %s", error)


def _key(alert: Alert) -> tuple[str, str, str]:
    return alert.tenant, alert.rule, alert.subject


def _firing(known: Sequence[Alert], rules: Sequence[AlertRule]) -> set[tuple[str, str]]:
    """Return the rules with a firing alert, by tenant and name."""
    firing = {(each.tenant, each.rule) for each in known if each.state is AlertState.FIRING}
    return firing & {(rule.tenant, rule.name) for rule in rules}
