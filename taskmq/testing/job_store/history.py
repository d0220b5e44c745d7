"""What is remembered of runs, over lists and dictionaries: the reference that adapters are compared with."""

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from taskmq.contracts.history import AlertNotice, FailureFilter, FailurePage, KeptRule, NoticeTurn, RollupFilter
from taskmq.contracts.jobs import JobRecord
from taskmq.model.history.alerts import Alert, AlertRule, AlertState, Silence, check_limits, check_silence
from taskmq.model.history.channels import channel_host
from taskmq.model.history.logs import LogFilter, LogPage, RunLog, StoredLine, standard_level
from taskmq.model.history.rollups import Rollup, RollupKey, RunFailure
from taskmq.model.identity import AuditEntry

__all__ = ["HistoryAtWork", "HistoryModel", "MemoryHistory"]


class HistoryModel:
    """What several stores on one database have in common."""

    def __init__(self) -> None:
        self.lines: list[StoredLine] = []
        self.known: set[tuple[str, int, int]] = set()
        self.rollups: dict[RollupKey, Rollup] = {}
        self.failures: list[RunFailure] = []
        self.numbers = 0
        self.rules: dict[tuple[str, str], KeptRule] = {}
        self.alerts: dict[tuple[str, str, str], Alert] = {}
        self.silences: dict[str, Silence] = {}
        self.notices: dict[str, AlertNotice] = {}

    def next_number(self) -> int:
        self.numbers += 1
        return self.numbers

    def forget_jobs(self, jobs: Collection[str]) -> None:
        self.lines = [line for line in self.lines if line.job not in jobs]
        self.known = {key for key in self.known if key[0] not in jobs}
        self.failures = [one for one in self.failures if one.job not in jobs]

    def forget_tenant(self, tenant: str) -> None:
        self.lines = [line for line in self.lines if line.tenant != tenant]
        self.failures = [one for one in self.failures if one.tenant != tenant]
        self.rollups = {key: one for key, one in self.rollups.items() if key.tenant != tenant}
        self.rules = {key: one for key, one in self.rules.items() if key[0] != tenant}
        self.alerts = {key: one for key, one in self.alerts.items() if key[0] != tenant}
        self.silences = {key: one for key, one in self.silences.items() if one.tenant != tenant}
        self.notices = {key: one for key, one in self.notices.items() if one.rule.tenant != tenant}


class HistoryAtWork(NamedTuple):
    """The model, the time, the job under way with a token, and how the audit is written."""

    model: HistoryModel
    now: int
    under_way: Callable[[str, int], JobRecord | None]
    note: Callable[[int, Sequence[AuditEntry]], None]


_AtWork = Callable[[], HistoryAtWork]


class MemoryHistory:
    """The `HistoryStore` of a `MemoryJobStore`.

    Args:
        at_work: gives what there is, or says why there is nothing.
    """

    def __init__(self, at_work: _AtWork) -> None:
        self.logs = _MemoryLogs(at_work)
        self.rollups = _MemoryRollups(at_work)
        self.alerts = _MemoryAlerts(at_work)


class _MemoryLogs:
    """A `LogStore`."""

    def __init__(self, at_work: _AtWork) -> None:
        self._at_work = at_work

    async def add(self, logs: Sequence[RunLog]) -> int:
        model, _, under_way, _ = self._at_work()
        before = len(model.lines)
        for log in logs:
            if (job := under_way(log.id, log.token)) is None:
                continue
            for line, each in enumerate(log.lines, log.first):
                key = (log.id, log.token, line)
                if key in model.known:
                    continue
                model.known.add(key)
                model.lines.append(
                    StoredLine(
                        number=model.next_number(),
                        at=each.at,
                        level=standard_level(each.level),
                        logger=each.logger,
                        message=each.message,
                        job=log.id,
                        attempt=log.attempt,
                        worker=log.worker,
                        tenant=job.tenant,
                        task=job.task,
                        queue=job.queue,
                    )
                )
        return len(model.lines) - before

    async def page(
        self, which: LogFilter, *, after: int | None = None, limit: int = 50, oldest_first: bool = False
    ) -> LogPage:
        lines = self._at_work().model.lines
        found = [line for line in (lines if oldest_first else reversed(lines)) if _fits(which, line)]
        if oldest_first:
            found = [line for line in found if after is None or line.number > after][:limit]
            return LogPage(found, found[-1].number if found else after)
        found = [line for line in found if after is None or line.number < after]
        return LogPage(found[:limit], found[limit - 1].number if len(found) > limit else None)

    async def forget(self, *, level: int, before: int, limit: int = 1_000) -> int:
        model = self._at_work().model
        old = sorted((line for line in model.lines if line.level == level and line.at < before), key=_at)[:limit]
        gone = {line.number for line in old}
        model.lines = [line for line in model.lines if line.number not in gone]
        return len(gone)


class _MemoryRollups:
    """A `RollupStore`."""

    def __init__(self, at_work: _AtWork) -> None:
        self._at_work = at_work

    async def add(self, rollups: Sequence[Rollup], failures: Sequence[RunFailure] = ()) -> None:
        model = self._at_work().model
        for one in rollups:
            model.rollups.setdefault(one.key, Rollup(one.key)).merge(one)
        for failure in failures:
            model.failures.append(replace(failure, number=model.next_number()))

    async def rollups(
        self, which: RollupFilter, *, after: RollupKey | None = None, limit: int = 50_000
    ) -> list[Rollup]:
        sums: dict[RollupKey, Rollup] = {}
        for key, one in self._at_work().model.rollups.items():
            tenant = "" if which.is_whole else key.tenant
            whole = RollupKey(key.minute // which.step * which.step, key.task, key.queue, tenant)
            sums.setdefault(whole, Rollup(whole)).merge(one)
        return [
            sums[key]
            for key in sorted(sums)
            if which.since <= key.minute < which.until
            and (after is None or key > after)
            and which.task in (None, key.task)
            and which.queue in (None, key.queue)
            and which.tenant in (None, key.tenant)
            and (which.tenants is None or key.tenant in which.tenants)
        ][:limit]

    async def failures(self, which: FailureFilter, *, after: int | None = None, limit: int = 50) -> FailurePage:
        found = [
            one
            for one in reversed(self._at_work().model.failures)
            if which.task in (None, one.task)
            and which.queue in (None, one.queue)
            and which.tenant in (None, one.tenant)
            and which.job in (None, one.job)
            and (which.jobs is None or one.job in which.jobs)
            and which.error in (None, one.error)
            and _is_within(one.at, which.since, which.until)
            and (after is None or one.number < after)
        ]
        return FailurePage(found[:limit], found[limit - 1].number if len(found) > limit else None)

    async def forget(self, *, before: int, limit: int = 1_000) -> int:
        model = self._at_work().model
        keys = [key for key in sorted(model.rollups) if key.minute < before][:limit]
        for key in keys:
            del model.rollups[key]
        old = {one.number for one in [one for one in model.failures if one.at < before][:limit]}
        model.failures = [one for one in model.failures if one.number not in old]
        return len(keys) + len(old)


class _MemoryAlerts:
    """An `AlertStore`."""

    def __init__(self, at_work: _AtWork) -> None:
        self._at_work = at_work

    async def rules(self, tenant: str | None = None) -> list[KeptRule]:
        rules = self._at_work().model.rules
        return [rules[key] for key in sorted(rules) if tenant in (None, key[0])]

    async def put_rule(
        self, rule: AlertRule, *, version: int | None = None, audit: AuditEntry | None = None
    ) -> int | None:
        at_work = self._at_work()
        present = at_work.model.rules.get((rule.tenant, rule.name))
        before = 0 if present is None else present.version
        if version not in (None, before):
            return None
        check_limits(rule, [each.rule for each in at_work.model.rules.values() if each.rule.tenant == rule.tenant])
        at_work.model.rules[rule.tenant, rule.name] = KeptRule(rule, before + 1)
        _note(at_work, audit)
        return before + 1

    async def remove_rule(self, tenant: str, name: str, *, audit: AuditEntry | None = None) -> bool:
        at_work = self._at_work()
        model = at_work.model
        was_there = model.rules.pop((tenant, name), None) is not None
        model.alerts = {key: alert for key, alert in model.alerts.items() if key[:2] != (tenant, name)}
        _note(at_work, audit if was_there else None)
        return was_there

    async def alerts(self, tenant: str | None = None) -> list[Alert]:
        alerts = self._at_work().model.alerts
        return [alerts[key] for key in sorted(alerts) if tenant in (None, key[0])]

    async def silences(self, *, ended: bool = False) -> list[Silence]:
        model, now, _, _ = self._at_work()
        found = [silence for silence in model.silences.values() if ended or silence.ends > now]
        return sorted(found, key=lambda silence: (silence.begins, silence.id))

    async def add_silence(self, silence: Silence, *, audit: AuditEntry | None = None) -> None:
        at_work = self._at_work()
        check_silence(silence, await self.silences())
        at_work.model.silences[silence.id] = silence
        _note(at_work, audit)

    async def remove_silence(self, silence_id: str, *, audit: AuditEntry | None = None) -> bool:
        at_work = self._at_work()
        was_there = at_work.model.silences.pop(silence_id, None) is not None
        _note(at_work, audit if was_there else None)
        return was_there

    async def commit(self, alerts: Sequence[Alert], notices: Sequence[AlertNotice]) -> bool:
        model = self._at_work().model
        for alert in alerts:
            present = model.alerts.get(_key(alert))
            if alert.version != (0 if present is None else present.version):
                return False
        for alert in alerts:
            model.alerts[_key(alert)] = replace(alert, version=alert.version + 1)
        for notice in notices:
            model.notices.setdefault(notice.id, notice)
        return True

    async def take_notice(self, *, lease_ms: int, turn: NoticeTurn = NoticeTurn()) -> AlertNotice | None:  # noqa: B008 - frozen
        model, now, _, _ = self._at_work()
        due = sorted(
            (one.rule.tenant <= turn.after, one.rule.tenant, one.next, one.id)
            for one in model.notices.values()
            if one.next is not None
            and one.next <= now
            and one.rule.tenant not in turn.tenants
            and (one.rule.tenant, channel_host(one.channel)) not in turn.hosts
        )
        if not due:
            return None
        first = model.notices[due[0][3]]
        taken = model.notices[first.id] = replace(first, next=now + lease_ms, tries=first.tries + 1)
        return taken

    async def settle_notice(self, notice: AlertNotice, *, retry_at: int | None) -> None:
        model = self._at_work().model
        present = model.notices.get(notice.id)
        if present is not None and present.tries == notice.tries:
            model.notices[notice.id] = replace(present, next=retry_at)

    async def notices(self, tenant: str | None = None, *, limit: int = 50) -> list[AlertNotice]:
        found = [one for one in self._at_work().model.notices.values() if tenant in (None, one.rule.tenant)]
        return sorted(found, key=lambda one: (-one.at, one.id))[:limit]

    async def forget(self, *, before: int) -> None:
        model = self._at_work().model
        model.silences = {key: one for key, one in model.silences.items() if one.ends >= before}
        model.notices = {key: one for key, one in model.notices.items() if one.next is not None or one.at >= before}
        model.alerts = {
            key: one
            for key, one in model.alerts.items()
            if one.state is not AlertState.RESOLVED or one.changed >= before
        }


def _note(at_work: HistoryAtWork, audit: AuditEntry | None) -> None:
    if audit is not None:
        at_work.note(at_work.now, [audit])


def _key(alert: Alert) -> tuple[str, str, str]:
    return alert.tenant, alert.rule, alert.subject


def _at(line: StoredLine) -> int:
    return line.at


def _fits(which: LogFilter, line: StoredLine) -> bool:
    return (
        which.job in (None, line.job)
        and which.tenant in (None, line.tenant)
        and which.task in (None, line.task)
        and which.attempt in (None, line.attempt)
        and line.level >= which.level
        and _lowered(which.text) in _lowered(line.message)
        and _is_within(line.at, which.since, which.until)
    )


def _is_within(at: int, since: int | None, until: int | None) -> bool:
    return (since is None or at >= since) and (until is None or at < until)


def _lowered(text: str) -> str:
    return "".join(letter.lower() if letter.isascii() else letter for letter in text)
