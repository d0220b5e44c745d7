"""Polls of one schedule by replicas that start and stop: every instant is accounted for."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskmq import TaskMQ
from taskmq.contracts.stores import KeptRecord
from taskmq.model.keys import scheduled_job_id
from taskmq.schedules import ScheduleEntry, read_policy
from taskmq.schedules.planner import instants_between
from taskmq.schedules.record import MissedSpan, OccurrenceClaim, ScheduleRecord, decode_record, encode_record
from taskmq.schedules.triggers import Every
from taskmq.schedules.turn import (
    LEASE_MS,
    Replica,
    complete,
    give_up,
    next_instant,
    next_look,
    postpone,
    release_claims,
    take_turn,
)

START = 1_700_000_000_000
SECOND = 1_000
PERIOD = 10 * SECOND
RULE = Every(PERIOD)


def _entry(**options: Any) -> ScheduleEntry:
    app = TaskMQ("memory://turn")

    @app.task(name="tick")
    async def tick() -> None: ...

    return ScheduleEntry("tick", app.tasks["tick"], RULE, policy=read_policy(options, schedule="tick"))


def _replica(number: int = 1) -> Replica:
    return Replica("app", f"beat {number}")


_options = st.fixed_dictionaries(
    {"catchup": st.sampled_from(["skip", "once", "all"]), "late_after": st.sampled_from(["0s", "25s", "10m"])},
    optional={"overlap": st.sampled_from(["skip", "buffer_one", "buffer_all", "cancel_other"])},
)


def test_a_refused_occurrence_is_claimed_again_later_and_later() -> None:
    entry, record, now = _entry(), ScheduleRecord(), START
    take_turn(record, entry, now=now, replica=_replica())
    now += PERIOD
    claims = take_turn(record, entry, now=now, replica=_replica()).claims
    record.paused = now
    waits: list[int] = []
    for _ in range(8):
        (claim,) = claims
        postpone(record, {claim: "no"}, now)
        again = next_look(record, entry, now)
        assert again is not None
        waits.append((again - now) // SECOND)
        assert not take_turn(record, entry, now=again - 1, replica=_replica(2)).claims
        now, claims = again, take_turn(record, entry, now=again, replica=_replica(2)).claims

    assert waits == [10, 20, 40, 80, 160, 300, 300, 300]
    assert (claims[0].refused, claims[0].refusals) == ("no", 8)
    complete(record, claims, at=now)
    assert record.claims == []


@given(options=_options, seed=st.integers(0, 10**6))
def test_every_instant_up_to_the_mark_is_accounted_for(options: dict[str, Any], seed: int) -> None:
    entry, dice, now = _entry(**options), random.Random(seed), START
    kept = encode_record(ScheduleRecord())
    running: set[str] = set()
    in_hand: list[OccurrenceClaim] = []
    published: dict[int, int] = {}
    began: int | None = None

    for _ in range(40):
        record = decode_record(KeptRecord("v", kept), name="tick")
        match dice.randrange(6):
            case 0 | 1:
                now += dice.choice((SECOND, PERIOD, 7 * PERIOD, 30 * PERIOD))
            case 2 | 3:
                turn = take_turn(record, entry, now=now, replica=_replica(dice.randrange(3)))
                began = record.mark if began is None else began
                assert turn.wake is not None
                assert turn.wake > now
                # Published by the holder, or by no replica: then its lease ends.
                in_hand += [claim for claim in turn.claims if dice.random() < 0.7]
            case 4:
                for claim in in_hand:
                    published[claim.instant] = published.get(claim.instant, 0) + 1
                    running.add(scheduled_job_id("app", "tick", claim.instant))
                complete(record, in_hand, at=now)
                in_hand = []
            case _:
                for job_id in [*running]:
                    if dice.random() < 0.5:
                        running.discard(job_id)
                        record.active = [run for run in record.active if run.job_id != job_id]
        kept = encode_record(record)

        if record.mark is None or began is None:
            continue
        everything = instants_between(RULE, began, record.mark, limit=10**6)
        behind = [
            instant
            for backlog in record.backlogs
            for instant in instants_between(RULE, backlog.after, backlog.until, limit=10**6)
        ]
        claimed = [claim.instant for claim in record.claims]
        counts = record.counts
        places = [*claimed, *record.buffered, *behind]
        assert len(set(places)) == len(places)
        assert not set(places) - set(everything)
        assert counts.fired + len(places) + counts.missed + counts.skipped == len(everything)


def test_the_claim_of_a_silent_replica_is_taken_over_with_the_same_run() -> None:
    record, entry = ScheduleRecord(), _entry()
    take_turn(record, entry, now=START, replica=_replica(1))
    due = START + PERIOD
    (claim,) = take_turn(record, entry, now=due, replica=_replica(1)).claims

    assert take_turn(record, entry, now=due + LEASE_MS - 1, replica=_replica(2)).claims == []
    (again,) = (
        one for one in take_turn(record, entry, now=due + LEASE_MS, replica=_replica(2)).claims if one.instant == due
    )

    assert (again.instant, again.run, again.owner) == (claim.instant, claim.run, "beat 2")


def test_an_occurrence_confirmed_twice_is_counted_once() -> None:
    record, entry = ScheduleRecord(), _entry()
    take_turn(record, entry, now=START, replica=_replica())
    claims = take_turn(record, entry, now=START + PERIOD, replica=_replica()).claims

    complete(record, claims, at=START + PERIOD)
    complete(record, claims, at=START + PERIOD + 1)

    assert (record.counts.fired, record.claims, len(record.history)) == (1, [], 1)


def test_a_returned_claim_is_free_at_once_and_an_unsendable_one_is_not_retried() -> None:
    record, entry = ScheduleRecord(), _entry(overlap="skip")
    take_turn(record, entry, now=START, replica=_replica(1))
    now = START + PERIOD
    claims = take_turn(record, entry, now=now, replica=_replica(1)).claims

    release_claims(record, claims)
    (again,) = take_turn(record, entry, now=now, replica=_replica(2)).claims
    assert again.owner == "beat 2"
    # Too late: the claim belongs to another replica.
    release_claims(record, claims)
    assert take_turn(record, entry, now=now, replica=_replica(3)).claims == []

    give_up(record, [again], [scheduled_job_id("app", "tick", again.instant)])

    assert (record.claims, record.active, record.counts.failed) == ([], [], 1)


@pytest.mark.parametrize(("back", "emits"), [(30 * 60 * SECOND, False), (86_400 * SECOND, True)])
def test_a_clock_that_was_set_back_is_waited_for_or_counts_as_a_correction(back: int, emits: bool) -> None:
    record, entry = ScheduleRecord(), _entry()
    take_turn(record, entry, now=START, replica=_replica())
    now = START - back

    take_turn(record, entry, now=now, replica=_replica())
    turn = take_turn(record, entry, now=now + PERIOD, replica=_replica())

    assert bool(turn.claims) is emits


def test_a_new_rule_starts_over_and_keeps_a_requested_backfill() -> None:
    record, entry = ScheduleRecord(), _entry(catchup="all")
    take_turn(record, entry, now=START, replica=_replica())
    record.backlogs = [MissedSpan("catchup", "", 0, 1, 0), MissedSpan("backfill", "backfill-1", 0, 1, START * 2)]
    record.buffered = [1]
    record.rule = "another"

    turn = take_turn(record, entry, now=START + 100 * PERIOD, replica=_replica())

    assert turn.claims == []
    assert (record.mark, record.buffered, [one.kind for one in record.backlogs]) == (
        START + 100 * PERIOD,
        [],
        ["backfill"],
    )


def test_too_many_open_claims_prevent_new_ones() -> None:
    record, entry = ScheduleRecord(), _entry(late_after="1d")
    take_turn(record, entry, now=START, replica=_replica())
    now = START
    for _ in range(50):
        now += PERIOD
        turn = take_turn(record, entry, now=now, replica=Replica("app", f"{now}"))
        # There is no broker, so nothing is published.
        assert turn.wake is not None
        assert turn.wake > now

    assert len(record.claims) == 32
    for claim in record.claims:
        complete(record, [claim], at=now)
    assert len(take_turn(record, entry, now=now, replica=_replica()).claims) == 50 - 32


def test_the_next_instant_is_in_the_past_while_no_replica_decides_on_it() -> None:
    record, entry, later = ScheduleRecord(), _entry(), START + 30 * PERIOD

    assert next_instant(record, entry, later) == RULE.next_after(later)
    take_turn(record, entry, now=START, replica=_replica())
    assert next_instant(record, entry, later) == RULE.next_after(START)
    take_turn(record, entry, now=later, replica=_replica())
    assert next_instant(record, entry, later) == RULE.next_after(later)


def test_no_instant_of_a_pause_or_a_former_rule_is_overdue() -> None:
    record, entry, later = ScheduleRecord(), _entry(), START + 30 * PERIOD
    take_turn(record, entry, now=START, replica=_replica())

    record.resumed = later
    assert next_instant(record, entry, later) == RULE.next_after(later)
    record.resumed, record.rule = None, "another"
    assert next_instant(record, entry, later) == RULE.next_after(later)
