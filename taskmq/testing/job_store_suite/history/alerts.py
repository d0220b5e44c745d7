"""Tests of alert rules, alerts, silences, and notices."""

import asyncio
from typing import Any, Final

from msgspec.structs import replace

from taskmq.contracts.history import AlertNotice, KeptRule, NoticeTurn
from taskmq.errors import LimitReached
from taskmq.model.history.alerts import Alert, AlertChange, AlertRule, AlertState, Silence
from taskmq.testing.job_store_suite.history.kit import HistoryCase
from taskmq.testing.job_store_suite.identity.kit import BY
from taskmq.testing.runner import case, raises

_RULE: Final = AlertRule(
    name="too-many",
    metric="failure_rate",
    threshold=0.1,
    tenant="acme",
    task="mail.*",
    each="task",
    clear=0.05,
    channels=("mailto:a@b.c",),
    note="☂",
)
_HOUR: Final = 3_600_000


def _alert(subject: str = "task:mail.send", **fields: Any) -> Alert:
    given: dict[str, Any] = {
        "tenant": "acme",
        "rule": "too-many",
        "subject": subject,
        "state": AlertState.FIRING,
        "since": 5,
        "value": 0.5,
        "changed": 7,
        **fields,
    }
    return Alert(**given)


def _notice(
    notice_id: str, *, due: int | None = 0, tenant: str = "acme", channel: str = "mailto:a@b.c"
) -> AlertNotice:
    change = AlertChange(kind="firing", alert=_alert())
    rule = replace(_RULE, tenant=tenant)
    return AlertNotice(id=notice_id, channel=channel, rule=rule, changes=[change], at=3, next=due)


class AlertCases(HistoryCase):
    """Every guarantee of `AlertStore`."""

    @case
    async def test_a_rule_is_read_back_unchanged_and_counts_its_versions(self) -> None:
        alerts, other = self.history().alerts, self.history().alerts

        assert await alerts.put_rule(_RULE) == 1
        assert await alerts.put_rule(replace(_RULE, tenant="")) == 1
        assert await other.put_rule(_RULE, version=0) is None
        assert await other.put_rule(replace(_RULE, threshold=0.2), version=1) == 2
        assert await alerts.put_rule(_RULE, version=1) is None
        assert await alerts.put_rule(replace(_RULE, name="A"), version=0) == 1

        changed = KeptRule(replace(_RULE, threshold=0.2), 2)
        assert await other.rules("acme") == [KeptRule(replace(_RULE, name="A"), 1), changed]
        assert [each.rule.tenant for each in await alerts.rules()] == ["", "acme", "acme"]
        assert len(await alerts.rules("")) == 1

    @case
    async def test_removing_a_rule_removes_its_alerts(self) -> None:
        alerts = self.history().alerts
        await alerts.put_rule(_RULE)
        await alerts.put_rule(replace(_RULE, name="other"))
        await alerts.commit([_alert(), _alert(rule="other")], [])

        assert await alerts.remove_rule("acme", "too-many")
        assert not await alerts.remove_rule("acme", "too-many")
        assert not await alerts.remove_rule("\0", "too-many")

        assert [each.rule for each in await alerts.alerts()] == ["other"]
        assert [each.rule.name for each in await alerts.rules()] == ["other"]

    @case
    async def test_changes_to_rules_and_silences_are_audited(self) -> None:
        store = self.store()
        alerts, people = self.history().alerts, store.identity.audit
        silence = Silence(id="s", begins=0, ends=9, by="ann")

        def entry(action: str) -> Any:
            return BY.entry(action, kind="alert", subject="too-many", tenant="acme")

        await alerts.put_rule(_RULE, audit=entry("alert.put"))
        await alerts.put_rule(_RULE, version=7, audit=entry("alert.refused"))
        await alerts.add_silence(silence, audit=entry("alert.silence"))
        await alerts.remove_silence("s", audit=entry("alert.speak"))
        await alerts.remove_silence("s", audit=entry("alert.refused"))
        await alerts.remove_rule("acme", "too-many", audit=entry("alert.remove"))
        await alerts.remove_rule("acme", "too-many", audit=entry("alert.refused"))

        assert await people.count_unsealed() == 4

    @case
    async def test_thousands_of_alerts_are_read_in_order(self) -> None:
        alerts = self.history().alerts
        subjects = sorted(f"task:t{number}" for number in range(600))
        await alerts.commit([_alert(subject, rule=rule) for rule in ("b", "a") for subject in subjects[::-1]], [])

        expected = [(rule, subject) for rule in ("a", "b") for subject in subjects]
        assert [(each.rule, each.subject) for each in await alerts.alerts()] == expected
        assert [(each.rule, each.subject) for each in await alerts.alerts("acme")] == expected

    @case
    async def test_alerts_are_written_together_only_by_a_reader_of_the_latest(self) -> None:
        alerts, other = self.history().alerts, self.history().alerts
        assert await alerts.commit([], [])
        assert await alerts.commit([_alert(), _alert("")], [_notice("n1")])
        first, second = await other.alerts("acme")
        assert (first, second) == (_alert("", version=1), _alert(version=1))

        assert not await alerts.commit([_alert("new"), _alert()], [_notice("n2")])
        assert await other.commit([replace(second, value=0.7)], [_notice("n1", due=None)])
        assert not await alerts.commit([replace(second, value=0.9)], [])

        assert [(each.subject, each.value, each.version) for each in await alerts.alerts()] == [
            ("", 0.5, 1),
            ("task:mail.send", 0.7, 2),
        ]
        assert await alerts.alerts("") == []
        assert [(each.id, each.next) for each in await alerts.notices()] == [("n1", 0)]

    @case
    async def test_thousands_of_alerts_are_written_atomically(self) -> None:
        alerts, other = self.history().alerts, self.history().alerts
        firing = [_alert(f"task:t{number:04}", rule=rule) for rule in ("a", "b") for number in range(1_250)]
        notices = [_notice(f"n{number:04}") for number in range(1_250)]
        assert await alerts.commit(firing, notices)
        known = await other.alerts()
        assert known == [replace(each, version=1) for each in firing]
        assert len(await alerts.notices(limit=2_000)) == 1_250

        changed = [replace(each, value=0.7, state=AlertState.RESOLVED, changed=9) for each in known]
        for stale in (0, 1_249, 2_499):
            behind = [replace(each, version=0) if place == stale else each for place, each in enumerate(changed)]
            assert not await other.commit(behind, [_notice("never")])
        assert await alerts.alerts() == known
        assert len(await alerts.notices(limit=2_000)) == 1_250

        assert await other.commit([*changed, replace(changed[0], value=0.8)], [*notices, _notice("n")])
        assert [each.value for each in await alerts.alerts()] == [0.8, *[0.7] * 2_499]
        assert {each.version for each in await alerts.alerts()} == {2}
        assert len(await alerts.notices(limit=2_000)) == 1_251
        await alerts.forget(before=10)
        assert await other.alerts() == []

    @case
    async def test_only_one_of_many_concurrent_evaluators_writes(self) -> None:
        stores = [self.history().alerts for _ in range(3)]

        written = await asyncio.gather(*(store.commit([_alert()], [_notice("n")]) for store in stores * 3))

        assert written.count(True) == 1
        assert len(await stores[0].notices()) == 1

    @case
    async def test_the_notices_of_one_tenant_are_found_among_many(self) -> None:
        alerts = self.history().alerts
        others = [replace(_notice(f"o{number}"), rule=replace(_RULE, tenant="")) for number in range(5)]
        await alerts.commit([], [*others, _notice("theirs"), replace(_notice("later"), at=_notice("").at + 1)])

        assert [each.id for each in await alerts.notices("acme", limit=2)] == ["later", "theirs"]
        assert len(await alerts.notices("")) == 5
        assert len(await alerts.notices()) == 7
        assert await alerts.notices("\0") == []

    @case
    async def test_a_notice_is_leased_to_one_sender(self) -> None:
        alerts, other = self.history().alerts, self.history().alerts
        await alerts.commit([], [_notice("b"), _notice("a"), _notice("later", due=2**52)])

        taken = [await store.take_notice(lease_ms=_HOUR) for store in (alerts, other)]
        assert [notice and (notice.id, notice.tries) for notice in taken] == [("a", 1), ("b", 1)]
        assert await alerts.take_notice(lease_ms=_HOUR) is None

        first, second = taken
        assert first is not None
        assert second is not None
        assert first.changes == _notice("a").changes
        assert first.rule == _RULE
        await alerts.settle_notice(first, retry_at=None)
        await other.settle_notice(second, retry_at=1)
        again = await alerts.take_notice(lease_ms=_HOUR)
        assert again is not None
        assert (again.id, again.tries) == ("b", 2)
        # Another scheduler has claimed it by now.
        await other.settle_notice(second, retry_at=None)

        assert {each.id: each.next is None for each in await alerts.notices()} == {
            "a": True,
            "b": False,
            "later": False,
        }

    @case
    async def test_notices_of_tenants_are_sent_in_turn(self) -> None:
        alerts = self.history().alerts
        many = [_notice(f"a{number}", due=number) for number in range(3)]
        await alerts.commit([], [*many, _notice("b", due=7, tenant="beta"), _notice("i", due=8, tenant="")])

        taken: list[str] = []
        turn = NoticeTurn()
        while (notice := await alerts.take_notice(lease_ms=_HOUR, turn=turn)) is not None:
            taken.append(notice.id)
            turn = NoticeTurn(after=notice.rule.tenant)

        assert taken == ["a0", "b", "i", "a1", "a2"]

    @case
    async def test_notices_not_due_now_are_not_taken(self) -> None:
        alerts = self.history().alerts
        slow, quick = "https://slow.test/x", "slack+https://Quick.test:8443/y"
        await alerts.commit(
            [],
            [
                _notice("a", channel=slow),
                _notice("b", channel=quick),
                _notice("c", tenant="beta", channel=slow),
                _notice("d", tenant="beta"),
            ],
        )
        no_beta = frozenset({"beta"})
        hosts = frozenset({("acme", "slow.test"), ("acme", "quick.test:8443"), ("beta", "mail")})

        assert await alerts.take_notice(lease_ms=_HOUR, turn=NoticeTurn(tenants=no_beta, hosts=hosts)) is None
        third = await alerts.take_notice(lease_ms=_HOUR, turn=NoticeTurn(hosts=hosts))
        first = await alerts.take_notice(lease_ms=_HOUR, turn=NoticeTurn(tenants=no_beta))

        assert [notice and notice.id for notice in (third, first)] == ["c", "a"]

    @case
    async def test_the_rules_and_channels_of_a_tenant_are_limited(self) -> None:
        alerts = self.history().alerts
        rules = [replace(_RULE, name=f"r{number:03}", channels=(f"mailto:a{number}@b.c",)) for number in range(100)]
        await asyncio.gather(*(alerts.put_rule(rule) for rule in rules))

        with raises(LimitReached):
            await alerts.put_rule(_RULE)
        with raises(LimitReached):
            await alerts.put_rule(replace(rules[0], channels=("mailto:new@b.c", "mailto:newer@b.c")))
        assert await alerts.put_rule(replace(rules[0], threshold=0.5)) == 2
        assert await alerts.put_rule(replace(_RULE, tenant="")) == 1
        assert await alerts.put_rule(replace(_RULE, tenant="beta")) == 1

        assert len(await alerts.rules("acme")) == 100

    @case
    async def test_many_senders_claim_each_notice_once(self) -> None:
        stores = [self.history().alerts for _ in range(2)]
        await stores[0].commit([], [_notice(f"n{number}") for number in range(6)])

        taken = await asyncio.gather(*(store.take_notice(lease_ms=_HOUR) for store in stores * 4))

        assert sorted(notice.id for notice in taken if notice is not None) == [f"n{number}" for number in range(6)]

    @case
    async def test_the_active_silences_of_a_tenant_are_limited(self) -> None:
        alerts = self.history().alerts
        ended = Silence(id="ended", tenant="acme", begins=0, ends=5)
        silences = [Silence(id=f"s{number}", tenant="acme", begins=0, ends=2**52) for number in range(100)]
        for each in (ended, *silences):
            await alerts.add_silence(each)

        with raises(LimitReached):
            await alerts.add_silence(replace(silences[0], id="more"))
        await alerts.add_silence(replace(silences[0], note="longer", ends=2**52 + 1))
        await alerts.add_silence(replace(silences[0], id="another's", tenant="other"))
        await alerts.add_silence(replace(silences[0], id="of the instance", tenant=""))
        assert await alerts.remove_silence("s1")
        await alerts.add_silence(replace(silences[0], id="more"))

        assert len(await alerts.silences()) == 102

    @case
    async def test_silences_are_kept_until_they_end(self) -> None:
        store = self.store()
        now = await store.now_ms()
        alerts, other = self.history().alerts, self.history().alerts
        one = Silence(id="1", tenant="acme", rule="too-*", begins=now + 1, ends=now + _HOUR, by="ann", note="☂")
        over = Silence(id="2", begins=now, ends=now)

        await alerts.add_silence(replace(one, note=""))
        await alerts.add_silence(one)
        await alerts.add_silence(over)

        assert await other.silences() == [one]
        assert await other.silences(ended=True) == [over, one]
        assert await alerts.remove_silence("1")
        assert not await alerts.remove_silence("1")
        assert not await alerts.remove_silence("\0")
        assert await other.silences() == []

    @case
    async def test_old_alerts_notices_and_silences_are_deleted(self) -> None:
        alerts = self.history().alerts
        resolved = _alert("b", state=AlertState.RESOLVED)
        kept = _alert("c", state=AlertState.RESOLVED, changed=50)
        await alerts.commit([_alert("a"), resolved, kept], [_notice("sent", due=None), _notice("due")])
        await alerts.add_silence(Silence(id="old", begins=0, ends=5))
        await alerts.add_silence(Silence(id="new", begins=0, ends=2**52))

        await alerts.forget(before=10)

        assert [each.subject for each in await alerts.alerts()] == ["a", "c"]
        assert [each.id for each in await alerts.notices()] == ["due"]
        assert [each.id for each in await alerts.silences(ended=True)] == ["new"]
