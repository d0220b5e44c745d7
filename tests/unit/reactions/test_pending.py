"""What follows from what has come."""

from collections import deque
from datetime import UTC, datetime

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from taskmq.reactions import JobEnded, TimeCame, all_of, any_of, file, job
from taskmq.reactions.pending import (
    LEASE_MS,
    MOST_FIRINGS,
    Firing,
    Noted,
    Plan,
    Standing,
    confirm,
    note,
    tick,
    wake_of,
)
from taskmq.schedules.triggers import every, once

START = 1_700_000_000_000
BOTH = Plan(all_of(job("a"), job("b")))
EITHER = Plan(any_of(job("a"), job("b")))


def _ended(name: str) -> Noted:
    return Noted(name, JobEnded(job_id=name, task="a", state="succeeded", finished=datetime(2027, 1, 1, tzinfo=UTC)))


def _names(firing: Firing) -> list[str]:
    return [each.job_id for each in firing.happenings if isinstance(each, JobEnded)]


def _note(standing: Standing, plan: Plan, number: int, name: str, now: int = START) -> bool:
    return note(standing, plan, number=number, noted=_ended(name), now=now)


def test_both_have_to_come_in_whatever_order_and_the_last_of_each_counts() -> None:
    standing = Standing()

    for name in ("b1", "b2"):
        _note(standing, BOTH, 1, name)
        assert not standing.firings
    _note(standing, BOTH, 0, "a1")

    (firing,) = tick(standing, BOTH, now=START, owner="me")
    assert _names(firing) == ["a1", "b2"]
    assert not standing.came


def test_what_has_been_noted_is_noted_once_even_after_it_has_fired() -> None:
    standing = Standing()

    for _ in range(3):
        _note(standing, EITHER, 0, "a1")

    assert len(standing.firings) == 1
    confirm(standing, {standing.firings[0].id}, now=START)
    _note(standing, EITHER, 0, "a1")
    assert (standing.fired, standing.firings, standing.last) == (1, [], START)


def test_a_firing_whose_beat_dies_is_taken_over_with_the_same_name() -> None:
    standing = Standing()
    _note(standing, EITHER, 0, "a1")

    (first,) = tick(standing, EITHER, now=START, owner="one")
    assert tick(standing, EITHER, now=START + LEASE_MS - 1, owner="two") == []
    assert wake_of(standing, EITHER, now=START) == START + LEASE_MS
    (second,) = tick(standing, EITHER, now=START + LEASE_MS, owner="two")

    assert (first.id, first.owner, second.owner) == (second.id, "one", "two")
    # Both may say that it is confirmed.
    confirm(standing, {first.id}, now=START)
    confirm(standing, {second.id}, now=START + 5)
    assert (standing.fired, standing.last, standing.firings) == (1, START, [])


def test_a_firing_that_cannot_be_sent_is_counted() -> None:
    standing = Standing()
    _note(standing, EITHER, 0, "a1")

    confirm(standing, {standing.firings[0].id}, now=START, is_sent=False)

    assert (standing.fired, standing.failed, standing.firings) == (0, 1, [])


def test_time_and_a_job_fire_once_both_have_come() -> None:
    plan = Plan(all_of(job("a"), every("1h")))
    standing = Standing()
    tick(standing, plan, now=START, owner="me")
    (due,) = [wake_of(standing, plan, now=START)]
    assert due is not None

    _note(standing, plan, 0, "a1", START + 1)
    assert tick(standing, plan, now=due - 1, owner="me") == []
    (firing,) = tick(standing, plan, now=due, owner="me")

    assert firing.happenings[1] == TimeCame(instant=datetime.fromtimestamp(due / 1000, UTC))
    # The next time needs the next job, however late that is; the last instant counts.
    late = due + 5 * 3_600_000 + 1
    confirm(standing, {firing.id}, now=due)
    assert tick(standing, plan, now=late, owner="me") == []
    _note(standing, plan, 0, "a2", late)
    (second,) = tick(standing, plan, now=late, owner="me")
    assert second.happenings[1] == TimeCame(instant=datetime.fromtimestamp((late - 1) / 1000, UTC))


def test_time_alone_is_enough_where_any_is() -> None:
    plan = Plan(any_of(job("a"), every("1h")))
    standing = Standing()
    tick(standing, plan, now=START, owner="me")

    # Of what was missed, the last.
    (firing,) = tick(standing, plan, now=START + 10 * 3_600_000, owner="me")

    assert len(firing.happenings) == 1


def test_what_keeps_coming_is_waited_for() -> None:
    plan = Plan(any_of(job("a"), job("b")), debounce=30_000)
    standing = Standing()

    for second in range(0, 100, 10):
        _note(standing, plan, second // 10 % 2, f"j{second}", START + second * 1000)
        assert tick(standing, plan, now=START + second * 1000, owner="me") == []
    quiet = START + 90_000 + 30_000
    assert wake_of(standing, plan, now=START) == quiet
    assert tick(standing, plan, now=quiet - 1, owner="me") == []
    (firing,) = tick(standing, plan, now=quiet, owner="me")

    assert _names(firing) == ["j80", "j90"]
    assert wake_of(standing, plan, now=quiet) == quiet + LEASE_MS


def test_while_too_many_wait_for_the_broker_nothing_more_is_noted() -> None:
    plan = Plan(any_of(job("a"), every("1s")))
    standing = Standing()
    for number in range(MOST_FIRINGS):
        assert _note(standing, plan, 0, str(number))
    before = msgspec.msgpack.encode(standing)

    assert not _note(standing, plan, 0, "one more")
    tick(standing, plan, now=START + 5000, owner="me")
    assert len(standing.firings) == MOST_FIRINGS
    assert _note(standing, plan, 0, "0"), "what was noted before is"
    assert msgspec.msgpack.decode(before, type=Standing).came == standing.came


def test_another_plan_forgets_what_has_come_but_not_what_is_to_be_sent() -> None:
    standing = Standing()
    _note(standing, BOTH, 0, "a1")
    _note(standing, BOTH, 1, "b1")
    _note(standing, BOTH, 0, "a2")

    (firing,) = tick(standing, EITHER, now=START, owner="me")

    assert _names(firing) == ["a1", "b1"]
    assert not standing.came


@given(st.data())
def test_each_job_counts_once_whoever_notes_it_however_often_and_whatever_is_lost(data: st.DataObject) -> None:
    plan = data.draw(st.sampled_from([BOTH, EITHER, Plan(all_of(any_of(job("a"), job("b")), file("/c")))]))
    size = len(plan.conditions)
    jobs = data.draw(
        st.lists(st.integers(0, size - 1), max_size=30).map(
            lambda numbers: [(number, f"{number}.{at}") for at, number in enumerate(numbers)]
        )
    )
    standing = Standing()
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
        _note(standing, plan, number, name, now)
        for again in data.draw(st.lists(st.sampled_from(list(earlier)), max_size=3)):
            _note(standing, plan, *again, now)
        # What is in the state is what is written there.
        standing = msgspec.msgpack.decode(msgspec.msgpack.encode(standing), type=Standing)
        now += data.draw(st.integers(0, LEASE_MS))
        for firing in tick(standing, plan, now=now, owner=data.draw(st.sampled_from(["one", "two"]))):
            if data.draw(st.booleans()):
                assert sent.setdefault(firing.id, _names(firing)) == _names(firing)
                if data.draw(st.booleans()):
                    confirm(standing, {firing.id}, now=now)
    now += LEASE_MS
    for firing in tick(standing, plan, now=now, owner="last"):
        assert sent.setdefault(firing.id, _names(firing)) == _names(firing)
        confirm(standing, {firing.id}, now=now)

    assert sorted(sent.values()) == sorted(expected)
    assert standing.firings == []
    assert standing.fired == len(expected)


def test_a_time_that_never_comes_again_wakes_nobody() -> None:
    plan = Plan(all_of(job("a"), once(datetime(2020, 1, 1, tzinfo=UTC))))
    standing = Standing()

    assert tick(standing, plan, now=START, owner="me") == []
    assert wake_of(standing, plan, now=START) is None
