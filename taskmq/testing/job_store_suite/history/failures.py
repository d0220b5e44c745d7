"""Tests of groups of failures and their marks."""

import asyncio
from typing import Final

from msgspec.structs import replace

from taskmq.errors import LimitReached
from taskmq.model.history.failure_groups import FailureKey, FailureMark
from taskmq.model.history.rollups import RunFailure
from taskmq.model.identity import AuditEntry
from taskmq.model.states import JobState
from taskmq.testing.job_store_suite.driver import error
from taskmq.testing.job_store_suite.history.kit import HistoryCase, history_of
from taskmq.testing.runner import case, raises

_HOUR: Final = 3_600_000
_AUDIT: Final = AuditEntry(action="failures.mute")
_KEY: Final = FailureKey("acme", "☂", "shop.NoCard")
_MARK: Final = FailureMark(key=_KEY, state="muted", at=5, until=9, by="ann", note="known")


class FailureGroupCases(HistoryCase):
    """Every guarantee of `FailureGroupStore`."""

    @case
    async def test_failures_of_both_lanes_are_counted_by_group_and_step(self) -> None:
        driver = self.driver()
        store, at = history_of(driver), await driver.store.now_ms()
        for message in ("no", "x" * 300):
            job = await driver.dispatch_new(task="charge", tenant="acme")
            await driver.expect_accepted(job, "failed", error=error(message, "shop.NoCard"))
        await driver.make(JobState.EXPIRED, task="charge")
        await driver.make(JobState.UPSTREAM_FAILED, task="charge")
        await driver.make(JobState.SUCCEEDED, task="charge")
        sent = RunFailure(
            at=at - 7 * _HOUR, job="j", event="dead", task="send", queue="q", tenant="acme", worker="w 1"
        )
        await store.rollups.add(
            [],
            [
                replace(sent, error="Timeout", message="slow"),
                replace(sent, reason="lost", at=at - 2 * _HOUR),
                replace(sent, reason="lost", at=at - 2 * _HOUR + 1, worker="later"),
                replace(sent, tenant="", event="parked"),
            ],
        )

        found = await store.failures.counts(since=at - 3 * _HOUR, step=_HOUR)

        assert {(*one.key, one.count) for one in found} == {
            ("acme", "charge", "shop.NoCard", 2),
            ("", "charge", "expired", 1),
            ("acme", "send", "Timeout", 1),
            ("acme", "send", "lost", 2),
            ("", "send", "parked", 1),
        }
        by_error = {one.key.error: one for one in found}
        assert {name: one.slot for name, one in by_error.items() if one.key.task == "send"} == {
            "Timeout": -1, "parked": -1, "lost": 1
        }  # fmt: skip
        assert by_error["shop.NoCard"].slot >= 2
        assert by_error["shop.NoCard"].message == "x" * 200
        lost = by_error["lost"]
        assert (lost.first, lost.last, lost.first_worker) == (at - 2 * _HOUR, at - 2 * _HOUR + 1, "w 1")
        assert (by_error["expired"].first_worker, bool(by_error["shop.NoCard"].first_worker)) == ("", True)

    @case
    async def test_only_the_newest_failures_of_a_tenant_are_counted(self) -> None:
        driver = self.driver()
        failures = history_of(driver).failures
        for tenant, kind in (("acme", "Old"), ("acme", "New"), ("other", "Theirs")):
            job = await driver.dispatch_new(tenant=tenant)
            await driver.expect_accepted(job, "failed", error=error("no", kind))
            failed = RunFailure(at=1, job=kind, event="dead", task="t", queue="q", tenant=tenant, error=f"{kind}Sent")
            await history_of(driver).rollups.add([], [failed])

        async def errors(tenant: str | None, most: int = 50) -> list[str]:
            found = await failures.counts(since=0, step=2**52, tenant=tenant, most=most)
            return sorted(one.key.error for one in found)

        assert await errors("acme") == ["New", "NewSent", "Old", "OldSent"]
        assert await errors("acme", most=1) == ["New", "NewSent"]
        assert await errors(None, most=1) == ["Theirs", "TheirsSent"]
        assert await errors("") == await errors("nobody") == await errors("nul\0") == []

    @case
    async def test_each_group_has_one_mark(self) -> None:
        failures, other = self.history().failures, self.history().failures
        resolved = replace(_MARK, state="resolved", until=None)
        theirs = replace(_MARK, key=_KEY._replace(tenant="beta"))

        await failures.put_mark(_MARK, audit=_AUDIT)
        await failures.put_mark(theirs, audit=_AUDIT)
        await other.put_mark(resolved, audit=_AUDIT)

        assert await failures.marks() == [resolved, theirs]
        assert await failures.marks("beta") == [theirs]
        assert await failures.marks("nul\0") == []
        assert await other.remove_mark(_KEY, audit=_AUDIT)
        assert not await failures.remove_mark(_KEY, audit=_AUDIT)
        assert not await failures.remove_mark(_KEY._replace(task="\0"), audit=_AUDIT)
        assert await failures.marks() == [theirs]

    @case
    async def test_marks_of_failures_are_audited(self) -> None:
        driver = self.driver()
        failures = history_of(driver).failures

        await failures.put_mark(_MARK, audit=_AUDIT)
        await failures.remove_mark(_KEY, audit=AuditEntry(action="failures.reopen"))
        await failures.remove_mark(_KEY, audit=AuditEntry(action="failures.again"))

        assert await driver.store.identity.audit.count_unsealed() == 2

    @case
    async def test_the_marks_of_a_tenant_are_limited(self) -> None:
        failures = self.history().failures
        marks = [replace(_MARK, key=_KEY._replace(task=str(number))) for number in range(500)]
        await asyncio.gather(*(failures.put_mark(mark, audit=_AUDIT) for mark in marks))

        with raises(LimitReached):
            await failures.put_mark(_MARK, audit=_AUDIT)
        await failures.put_mark(replace(marks[0], note="again"), audit=_AUDIT)
        await failures.put_mark(replace(_MARK, key=_KEY._replace(tenant="")), audit=_AUDIT)

        assert len(await failures.marks("acme")) == 500

    @case
    async def test_marks_that_have_no_effect_any_more_are_forgotten(self) -> None:
        failures = self.history().failures
        kept = [
            replace(_MARK, key=_KEY._replace(task="forever"), until=None),
            replace(_MARK, key=_KEY._replace(task="new"), state="resolved", at=10, until=None),
            replace(_MARK, key=_KEY._replace(task="until"), until=10),
        ]
        for mark in (*kept, _MARK, replace(kept[1], key=_KEY._replace(task="old"), at=9)):
            await failures.put_mark(mark, audit=_AUDIT)

        await failures.forget(before=10)

        assert await failures.marks() == kept
