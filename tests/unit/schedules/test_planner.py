"""The emitted instants, compared with a walk through all of them."""

from bisect import bisect_right
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskmq.schedules.planner import Due, instants_between, plan_due, take_from
from taskmq.schedules.policy import SchedulePolicy, read_policy
from taskmq.schedules.triggers import Every, Trigger
from taskmq.schedules.triggers.trigger import most_recent

SECOND = 1_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE


@dataclass(frozen=True)
class _Listed:
    """A trigger with these instants and no others."""

    instants: tuple[int, ...]

    def next_after(self, instant: int, /) -> int | None:
        place = bisect_right(self.instants, instant)
        return self.instants[place] if place < len(self.instants) else None

    def describe(self) -> str:
        return "listed"


_triggers = st.one_of(
    st.builds(Every, st.integers(1, 5_000), st.just(0)),
    st.builds(lambda instants: _Listed(tuple(sorted(instants))), st.sets(st.integers(0, 60_000), min_size=1)),
)
_policies = st.builds(
    SchedulePolicy,
    catchup=st.sampled_from(["skip", "once", "all"]),
    late_after=st.integers(0, 10_000),
    catchup_window=st.integers(0, 60_000),
    catchup_limit=st.integers(1, 50),
)


@given(trigger=_triggers, policy=_policies, mark=st.integers(0, 50_000), slept=st.integers(0, 50_000))
def test_every_due_instant_is_emitted_or_missed_or_put_into_a_backlog(
    trigger: Trigger, policy: SchedulePolicy, mark: int, slept: int
) -> None:
    now = mark + slept
    everything = instants_between(trigger, mark, now, limit=10**6)

    emitted, backlog, missed, rounds = _play(trigger, policy, mark, now)

    assert emitted == sorted(set(emitted))
    assert not set(emitted) & set(backlog)
    assert set(emitted) | set(backlog) <= set(everything)
    assert len(emitted) + len(backlog) + missed == len(everything)
    # A late instant is emitted whatever the policy says.
    late = [instant for instant in everything if instant >= now - policy.late_after]
    assert emitted[len(emitted) - len(late) :] == late
    old = [instant for instant in everything if instant < now - policy.late_after]
    wanted = [instant for instant in old if instant > now - policy.catchup_window]
    if policy.catchup == "skip":
        assert (emitted, backlog) == (late, [])
    elif policy.catchup == "once":
        is_wanted = bool(old and old[-1] in wanted and not late)
        assert (emitted, backlog) == (late or old[-1:] if is_wanted else late, [])
    else:
        assert (emitted, backlog) == (late, wanted[-policy.catchup_limit :])
    assert rounds <= len(everything) / 100 + 2


def _play(trigger: Trigger, policy: SchedulePolicy, mark: int, now: int) -> tuple[list[int], list[int], int, int]:
    """Plan until nothing is due; return the emitted, backlogged and missed instants."""
    emitted: list[int] = []
    backlog: list[int] = []
    missed = rounds = 0
    while (due := plan_due(trigger, mark=mark, now=now, policy=policy)).mark != mark:
        assert mark < due.mark <= now
        mark = due.mark
        emitted += due.emit
        missed += due.missed
        rounds += 1
        if due.backlog is not None:
            after, has_more = due.backlog[0] - 1, True
            while has_more:
                found, has_more = take_from(trigger, after=after, until=due.backlog[1], limit=7)
                backlog += found
                after = found[-1]
    assert due == Due(mark=mark)
    return emitted, backlog, missed, rounds


@pytest.mark.parametrize(
    ("options", "emitted", "backlog", "missed"),
    [
        ({"catchup": "skip"}, 0, 0, 120),
        ({"catchup": "once"}, 1, 0, 119),
        ({"catchup": "once", "catchup_window": "10s"}, 0, 0, 120),
        ({"catchup": "all"}, 0, 100, 20),
        ({"catchup": "all", "catchup_limit": 1_000}, 0, 120, 0),
        ({"catchup": "all", "catchup_limit": 7}, 0, 7, 113),
        ({"catchup": "all", "catchup_limit": 1_000, "catchup_window": "1h"}, 0, 60, 60),
        ({"catchup": "skip", "late_after": "3m"}, 3, 0, 117),
        ({"catchup": "all", "catchup_limit": 1_000, "late_after": "3m"}, 3, 117, 0),
    ],
    ids=str,
)
def test_the_policy_decides_on_two_hours_without_a_beat(
    options: dict[str, Any], emitted: int, backlog: int, missed: int
) -> None:
    policy = read_policy(options, schedule="minutely")
    began = 1_700_000_040_000
    assert began % MINUTE == 0
    # 45 seconds after the last of the 120.
    now = began + 2 * HOUR + 45 * SECOND

    played = _play(Every(MINUTE), policy, began, now)

    assert (len(played[0]), len(played[1]), played[2]) == (emitted, backlog, missed)


def test_the_last_instant_is_found_long_after_it() -> None:
    assert most_recent(_Listed((3, 5, 7)), 3, 5_000) == 7
    assert most_recent(_Listed((3, 5, 7)), 3, 6) == 5


@given(instants=st.sets(st.integers(0, 10**7), min_size=1, max_size=50), data=st.data())
def test_the_most_recent_instant_of_any_trigger_is_found(instants: set[int], data: st.DataObject) -> None:
    first = data.draw(st.sampled_from(sorted(instants)))
    now = data.draw(st.integers(first, 2 * 10**7))

    assert most_recent(_Listed(tuple(sorted(instants))), first, now) == max(each for each in instants if each <= now)


def test_years_without_a_beat_are_not_searched_second_by_second() -> None:
    looks = 0

    class Counted:
        def next_after(self, instant: int, /) -> int:
            nonlocal looks
            looks += 1
            return instant // SECOND * SECOND + SECOND

        def describe(self) -> str:
            return "every second"

    policy = SchedulePolicy(catchup="all", catchup_window=10 * 365 * 24 * HOUR, catchup_limit=1_000)

    due = plan_due(Counted(), mark=0, now=365 * 24 * HOUR, policy=policy)

    assert due.backlog is not None
    assert due.backlog[1] - due.backlog[0] == 999 * SECOND
    assert looks < 20_000
