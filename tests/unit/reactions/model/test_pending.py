"""Decisions from recorded events."""

from collections import deque
from datetime import UTC, datetime

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from taskmq.reactions import JobEnded, TimeCame, all_of, any_of, at_least, file, job
from taskmq.reactions.model.pending import (
    LEASE_MS,
    MOST_FIRINGS,
    PendingReaction,
    ReactionCall,
    ReactionPlan,
    RecordedEvent,
    confirm,
    record_event,
    tick,
    wake_of,
)
from taskmq.schedules.triggers import every, once

START = 1_700_000_000_000
BOTH = ReactionPlan(all_of(job("a"), job("b")))
EITHER = ReactionPlan(any_of(job("a"), job("b")))


def _end_event(name: str) -> RecordedEvent:
    return RecordedEvent(
        name, JobEnded(job_id=name, task="a", state="succeeded", finished=datetime(2027, 1, 1, tzinfo=UTC))
    )


def _names(firing: ReactionCall) -> list[str]:
    return [each.job_id for each in firing.events if isinstance(each, JobEnded)]


def _note(pending: PendingReaction, plan: ReactionPlan, number: int, name: str, now: int = START) -> bool:
    return record_event(pending, plan, number=number, recorded=_end_event(name), now=now)


def test_both_events_are_needed_in_any_order_and_the_last_of_each_counts() -> None:
    pending = PendingReaction()

    for name in ("b1", "b2"):
        _note(pending, BOTH, 1, name)
        assert not pending.firings
    _note(pending, BOTH, 0, "a1")

    (firing,) = tick(pending, BOTH, now=START, owner="me")
    assert _names(firing) == ["a1", "b2"]
    assert not pending.came


def test_an_event_is_recorded_once_even_after_the_condition_fired() -> None:
    pending = PendingReaction()

    for _ in range(3):
        _note(pending, EITHER, 0, "a1")

    assert len(pending.firings) == 1
    confirm(pending, {pending.firings[0].id}, now=START)
    _note(pending, EITHER, 0, "a1")
    assert (pending.fired, pending.firings, pending.last) == (1, [], START)


def test_another_beat_takes_over_a_firing_with_the_same_name() -> None:
    pending = PendingReaction()
    _note(pending, EITHER, 0, "a1")

    (first,) = tick(pending, EITHER, now=START, owner="one")
    assert tick(pending, EITHER, now=START + LEASE_MS - 1, owner="two") == []
    assert wake_of(pending, EITHER, now=START) == START + LEASE_MS
    (second,) = tick(pending, EITHER, now=START + LEASE_MS, owner="two")

    assert (first.id, first.owner, second.owner) == (second.id, "one", "two")
    # Both may report the confirm.
    confirm(pending, {first.id}, now=START)
    confirm(pending, {second.id}, now=START + 5)
    assert (pending.fired, pending.last, pending.firings) == (1, START, [])


def test_a_failed_firing_is_counted() -> None:
    pending = PendingReaction()
    _note(pending, EITHER, 0, "a1")

    confirm(pending, {pending.firings[0].id}, now=START, is_sent=False)

    assert (pending.fired, pending.failed, pending.firings) == (0, 1, [])


def test_a_time_and_a_job_fire_once_both_have_come() -> None:
    plan = ReactionPlan(all_of(job("a"), every("1h")))
    pending = PendingReaction()
    tick(pending, plan, now=START, owner="me")
    (due,) = [wake_of(pending, plan, now=START)]
    assert due is not None

    _note(pending, plan, 0, "a1", START + 1)
    assert tick(pending, plan, now=due - 1, owner="me") == []
    (firing,) = tick(pending, plan, now=due, owner="me")

    assert firing.events[1] == TimeCame(instant=datetime.fromtimestamp(due / 1000, UTC))
    # The next time needs the next job, however late that is; the last instant counts.
    late = due + 5 * 3_600_000 + 1
    confirm(pending, {firing.id}, now=due)
    assert tick(pending, plan, now=late, owner="me") == []
    _note(pending, plan, 0, "a2", late)
    (second,) = tick(pending, plan, now=late, owner="me")
    assert second.events[1] == TimeCame(instant=datetime.fromtimestamp((late - 1) / 1000, UTC))


def test_a_time_alone_is_enough_for_an_any_condition() -> None:
    plan = ReactionPlan(any_of(job("a"), every("1h")))
    pending = PendingReaction()
    tick(pending, plan, now=START, owner="me")

    # The last of the missed instants.
    (firing,) = tick(pending, plan, now=START + 10 * 3_600_000, owner="me")

    assert len(firing.events) == 1


def test_debouncing_waits_for_repeated_events() -> None:
    plan = ReactionPlan(any_of(job("a"), job("b")), debounce=30_000)
    pending = PendingReaction()

    for second in range(0, 100, 10):
        _note(pending, plan, second // 10 % 2, f"j{second}", START + second * 1000)
        assert tick(pending, plan, now=START + second * 1000, owner="me") == []
    quiet = START + 90_000 + 30_000
    assert wake_of(pending, plan, now=START) == quiet
    assert tick(pending, plan, now=quiet - 1, owner="me") == []
    (firing,) = tick(pending, plan, now=quiet, owner="me")

    assert _names(firing) == ["j80", "j90"]
    assert wake_of(pending, plan, now=quiet) == quiet + LEASE_MS


def test_two_of_three_events_fire_and_the_next_call_needs_two_more() -> None:
    plan, pending = ReactionPlan(at_least(2, job("a"), job("b"), job("c"))), PendingReaction()

    for number, name in ((0, "a1"), (0, "a2"), (2, "c1"), (1, "b1")):
        _note(pending, plan, number, name)

    (firing,) = tick(pending, plan, now=START, owner="me")
    assert _names(firing) == ["a2", "c1"]
    assert [recorded.id for recorded in pending.came.values()] == ["b1"]


def test_events_are_forgotten_when_the_wait_is_over() -> None:
    plan, pending = ReactionPlan(BOTH.expression, limit=1_000), PendingReaction()
    _note(pending, plan, 0, "a1")
    _note(pending, plan, 0, "a2", now=START + 900)
    assert wake_of(pending, plan, now=START + 900) == START + 1_000

    assert tick(pending, plan, now=START + 999, owner="me") == []
    assert (len(pending.came), pending.dropped) == (1, 0)
    assert tick(pending, plan, now=START + 1_000, owner="me") == []

    assert (pending.came, pending.dropped, wake_of(pending, plan, now=START + 1_000)) == ({}, 1, None)
    # The next wait begins with the next event.
    _note(pending, plan, 1, "b1", now=START + 5_000)
    _note(pending, plan, 0, "a3", now=START + 5_900)
    (firing,) = tick(pending, plan, now=START + 6_000, owner="me")
    assert _names(firing) == ["a3", "b1"]
    assert (pending.since, pending.dropped) == (None, 1)


def test_the_end_of_the_wait_may_call_with_the_events_that_came() -> None:
    plan = ReactionPlan(BOTH.expression, limit=1_000, at_limit="call")
    pending = PendingReaction()
    _note(pending, plan, 1, "b1")

    (firing,) = tick(pending, plan, now=START + 1_000, owner="me")

    assert _names(firing) == ["b1"]
    assert (pending.came, pending.dropped) == ({}, 0)


def test_the_limit_ends_the_debouncing_too() -> None:
    plan, pending = ReactionPlan(EITHER.expression, debounce=600, limit=1_000, at_limit="call"), PendingReaction()
    for name, at in (("a1", 0), ("a2", 500), ("a3", 900)):
        _note(pending, plan, 0, name, now=START + at)

    (firing,) = tick(pending, plan, now=START + 1_000, owner="me")

    assert _names(firing) == ["a3"]
    assert pending.due is None


def test_nothing_more_is_recorded_while_too_many_calls_wait_for_the_broker() -> None:
    plan = ReactionPlan(any_of(job("a"), every("1s")))
    pending = PendingReaction()
    for number in range(MOST_FIRINGS):
        assert _note(pending, plan, 0, str(number))
    before = msgspec.msgpack.encode(pending)

    assert not _note(pending, plan, 0, "one more")
    tick(pending, plan, now=START + 5000, owner="me")
    assert len(pending.firings) == MOST_FIRINGS
    assert _note(pending, plan, 0, "0"), "earlier events are"
    assert msgspec.msgpack.decode(before, type=PendingReaction).came == pending.came


def test_a_new_plan_drops_recorded_events_and_keeps_pending_calls() -> None:
    pending = PendingReaction()
    _note(pending, BOTH, 0, "a1")
    _note(pending, BOTH, 1, "b1")
    _note(pending, BOTH, 0, "a2")

    (firing,) = tick(pending, EITHER, now=START, owner="me")

    assert _names(firing) == ["a1", "b1"]
    assert not pending.came


@given(st.data())
def test_each_job_counts_once_despite_repeats_and_losses(data: st.DataObject) -> None:
    plan = data.draw(st.sampled_from([BOTH, EITHER, ReactionPlan(all_of(any_of(job("a"), job("b")), file("/c")))]))
    size = len(plan.conditions)
    jobs = data.draw(
        st.lists(st.integers(0, size - 1), max_size=30).map(
            lambda numbers: [(number, f"{number}.{at}") for at, number in enumerate(numbers)]
        )
    )
    pending = PendingReaction()
    expected: list[list[str]] = []
    came: dict[int, str] = {}
    sent: dict[str, list[str]] = {}
    now = START
    earlier: deque[tuple[int, str]] = deque(maxlen=20)
    for number, name in jobs:
        came[number] = name
        if plan is EITHER or (plan is BOTH and len(came) == 2) or (2 in came and len(came) > 1):
            expected.append([came[at] for at in sorted(came)])
            came = {}
        earlier.append((number, name))
        _note(pending, plan, number, name, now)
        for again in data.draw(st.lists(st.sampled_from(list(earlier)), max_size=3)):
            _note(pending, plan, *again, now)
        # The state contains the serialised form.
        pending = msgspec.msgpack.decode(msgspec.msgpack.encode(pending), type=PendingReaction)
        now += data.draw(st.integers(0, LEASE_MS))
        for firing in tick(pending, plan, now=now, owner=data.draw(st.sampled_from(["one", "two"]))):
            if data.draw(st.booleans()):
                assert sent.setdefault(firing.id, _names(firing)) == _names(firing)
                if data.draw(st.booleans()):
                    confirm(pending, {firing.id}, now=now)
    now += LEASE_MS
    for firing in tick(pending, plan, now=now, owner="last"):
        assert sent.setdefault(firing.id, _names(firing)) == _names(firing)
        confirm(pending, {firing.id}, now=now)

    assert sorted(sent.values()) == sorted(expected)
    assert pending.firings == []
    assert pending.fired == len(expected)


def test_a_time_that_never_recurs_wakes_no_beat() -> None:
    plan = ReactionPlan(all_of(job("a"), once(datetime(2020, 1, 1, tzinfo=UTC))))
    pending = PendingReaction()

    assert tick(pending, plan, now=START, owner="me") == []
    assert wake_of(pending, plan, now=START) is None
