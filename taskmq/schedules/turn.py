"""A turn of a schedule: what is claimed now, and when to look again. Pure: record in, record out."""

from collections.abc import Mapping
from typing import Final, Protocol

import msgspec
from msgspec.structs import replace

from taskmq.model.keys import scheduled_job_id
from taskmq.schedules.definition import rule_of
from taskmq.schedules.planner import instants_between, plan_due, take_from
from taskmq.schedules.policy import SchedulePolicy
from taskmq.schedules.record import PENDING_MS, ActiveRun, Emitted, MissedSpan, OccurrenceClaim, ScheduleRecord
from taskmq.schedules.triggers import Trigger, jitter_of

LEASE_MS: Final = 10_000
"""Time after which another replica takes over a claim, ms."""
LONGEST_RETRY_MS: Final = 300_000
"""The longest time until a refused start or a failed turn is tried again, ms."""
_MOST_DOUBLINGS: Final = 5
_MOST_REASON: Final = 500

_MOST_CLAIMS: Final = 32
_LATE: Final = 1_000
# Covers all backlogs of a schedule: its turn is one transaction, and others of its partition wait for it.
_MOST_OF_BACKLOGS: Final = 100
_PACE: Final = 1_000
# A clock set back by more than this was wrong before.
_CORRECTION: Final = 3_600_000


class Timed(Protocol):
    """A schedule, or a store's view of one: something due by a rule."""

    @property
    def name(self) -> str: ...
    @property
    def trigger(self) -> Trigger: ...
    @property
    def policy(self) -> SchedulePolicy: ...


class Replica(msgspec.Struct, frozen=True):
    """The replica that claims occurrences.

    Attributes:
        app: the app's name.
        owner: identifies this replica.
        holds_back: whether an occurrence that cancels earlier ones is emitted only once these have ended. Otherwise
            it is emitted at once, and the beat that runs them waits.
    """

    app: str
    owner: str
    holds_back: bool = False


class Turn(msgspec.Struct):
    """Result of a turn.

    Attributes:
        claims: occurrences that this replica must publish.
        cancel: jobs to cancel to make room.
        wake: when to look again, ms; None: not before something changes.
        is_watched: whether others may change the record, so that it must be read now and then.
    """

    claims: list[OccurrenceClaim] = msgspec.field(default_factory=list[OccurrenceClaim])
    cancel: list[str] = msgspec.field(default_factory=list[str])
    wake: int | None = None
    is_watched: bool = False


def take_turn(record: ScheduleRecord, entry: Timed, *, now: int, replica: Replica) -> Turn:
    """Claim what is due at `now`; changes the record in place."""
    turn = Turn()
    _check_mark(record, entry, now)
    _take_over(record, turn, now, replica)
    if entry.policy.overlap != "allow":
        record.active = record.live(now)
    if record.paused is None:
        state = _TurnState(record, entry, turn, now, replica)
        state.release_buffered()
        state.emit_due()
        state.emit_backlogs()
    record.failures, record.failure = 0, ""
    turn.wake = next_look(record, entry, now)
    turn.is_watched = record.paused is not None or bool(record.buffered)
    return turn


def complete(record: ScheduleRecord, claims: list[OccurrenceClaim], *, at: int, jitter: int = 0) -> None:
    """Record that the broker confirmed these occurrences at `at`; they were due `jitter` after their instants."""
    done = {(claim.instant, claim.run): claim for claim in claims}
    for key in [(claim.instant, claim.run) for claim in record.claims]:
        # An occurrence confirmed by two replicas is recorded once.
        if (claim := done.get(key)) is not None:
            record.counts.fired += 1
            record.counts.late += claim.kind == "due" and at - claim.instant - jitter > _LATE
            record.remember(Emitted(claim.instant, at, claim.kind))
    record.claims = [claim for claim in record.claims if (claim.instant, claim.run) not in done]


def give_up(record: ScheduleRecord, claims: list[OccurrenceClaim], jobs: list[str]) -> None:
    """Record that these occurrences can never be published."""
    gone = {(claim.instant, claim.run) for claim in claims}
    kept = [claim for claim in record.claims if (claim.instant, claim.run) not in gone]
    record.counts.failed += len(record.claims) - len(kept)
    record.claims = kept
    record.active = [run for run in record.active if run.job_id not in jobs]


def postpone(record: ScheduleRecord, refused: Mapping[OccurrenceClaim, str], now: int) -> None:
    """Record why these occurrences were refused; each is tried again later, at last every five minutes."""
    reasons = {(claim.instant, claim.run): reason for claim, reason in refused.items()}
    record.claims = [
        replace(
            claim,
            until=now + _retry_after(claim.refusals),
            refusals=claim.refusals + 1,
            refused=reason[:_MOST_REASON],
        )
        if (reason := reasons.get((claim.instant, claim.run))) is not None
        else claim
        for claim in record.claims
    ]


def put_off(record: ScheduleRecord, reason: str, now: int) -> int:
    """Record why a turn failed, and return when to try again (ms): as for refused starts."""
    again = now + _retry_after(record.failures)
    record.failures += 1
    record.failure = reason[:_MOST_REASON]
    return again


def _retry_after(earlier: int) -> int:
    return min(LEASE_MS << min(earlier, _MOST_DOUBLINGS), LONGEST_RETRY_MS)


def release_claims(record: ScheduleRecord, claims: list[OccurrenceClaim]) -> None:
    """Release these claims for other replicas: this one stops without publishing them."""
    mine = {(claim.instant, claim.run, claim.owner) for claim in claims}
    record.claims = [
        replace(claim, until=0) if (claim.instant, claim.run, claim.owner) in mine else claim
        for claim in record.claims
    ]


def next_look(record: ScheduleRecord, entry: Timed, now: int) -> int | None:
    """Return when to look at the schedule again, ms; None: not before something changes."""
    looks = [claim.until for claim in record.claims]
    if record.paused is None:
        looks += [backlog.next for backlog in record.backlogs]
        following = entry.trigger.next_after(record.mark or now)
        if following is not None:
            following += jitter_of(entry.name, entry.policy.jitter)
            # Later if one turn could not do everything.
            looks.append(following if following > now else now + _PACE)
    return min(looks, default=None)


def next_instant(record: ScheduleRecord, entry: Timed, now: int) -> int | None:
    """Return the first instant that no turn has decided on, ms; in the past if it is overdue."""
    if record.mark is None or record.rule != rule_of(entry.trigger):
        return entry.trigger.next_after(now)
    return entry.trigger.next_after(max(record.mark, record.resumed or 0))


def _check_mark(record: ScheduleRecord, entry: Timed, now: int) -> None:
    """Reset the mark if it belongs to another trigger or to a clock that was wrong."""
    rule = rule_of(entry.trigger)
    if record.mark is None or record.rule != rule:
        # The backlog of an earlier rule was due by that rule.
        record.mark, record.rule = now, rule
        record.buffered = []
        record.backlogs = [backlog for backlog in record.backlogs if backlog.run]
        record.resumed = None
    elif record.mark > now + _CORRECTION:
        record.mark = now
    if record.resumed is not None:
        if entry.policy.on_resume == "skip":
            found = instants_between(entry.trigger, record.mark, record.resumed, limit=10_000)
            record.counts.missed += len(found)
            record.mark = max(record.mark, record.resumed)
        record.resumed = None


def _take_over(record: ScheduleRecord, turn: Turn, now: int, replica: Replica) -> None:
    kept: list[OccurrenceClaim] = []
    for found in record.claims:
        claim = found
        if claim.until <= now:
            claim = replace(claim, owner=replica.owner, until=now + LEASE_MS)
            turn.claims.append(claim)
        kept.append(claim)
    record.claims = kept


class _TurnState:
    """State of a turn that decides which occurrences to emit, one after the other."""

    def __init__(self, record: ScheduleRecord, entry: Timed, turn: Turn, now: int, replica: Replica) -> None:
        self._record = record
        self._entry = entry
        self._policy = entry.policy
        self._turn = turn
        self._now = now
        self._replica = replica

    def release_buffered(self) -> None:
        """Emit buffered occurrences for which earlier ones have ended."""
        record = self._record
        while record.buffered and self._has_room():
            self._claim(record.buffered.pop(0), "buffered")

    def emit_due(self) -> None:
        """Decide about the occurrences that became due since the mark."""
        record = self._record
        if len(record.claims) >= _MOST_CLAIMS or record.mark is None:
            return
        # Jitter does not make an occurrence late.
        now = self._now - jitter_of(self._entry.name, self._policy.jitter)
        due = plan_due(self._entry.trigger, mark=record.mark, now=now, policy=self._policy)
        record.mark = due.mark
        record.counts.missed += due.missed
        record.counts.coalesced += due.coalesced
        if due.backlog is not None:
            first, last = due.backlog
            record.backlogs = [*record.backlogs, MissedSpan("catchup", "", first - 1, last, self._now)]
        for instant in due.emit:
            self._emit(instant, "due" if now - instant <= self._policy.late_after else "catchup")

    def emit_backlogs(self) -> None:
        """Emit the next few of each backlog."""
        kept: list[MissedSpan] = []
        left = _MOST_OF_BACKLOGS
        for backlog in self._record.backlogs:
            if backlog.next > self._now:
                kept.append(backlog)
                continue
            limit = min(self._policy.catchup_rate, left)
            if self._waits_for_room():
                limit = min(limit, self._policy.max_concurrency - len(self._record.active))
            if limit <= 0 or len(self._record.claims) >= _MOST_CLAIMS:
                kept.append(MissedSpan(backlog.kind, backlog.run, backlog.after, backlog.until, self._now + _PACE))
                continue
            instants, has_more = take_from(self._entry.trigger, after=backlog.after, until=backlog.until, limit=limit)
            left -= len(instants)
            for instant in instants:
                self._claim(instant, backlog.kind, backlog.run)
            if has_more:
                kept.append(MissedSpan(backlog.kind, backlog.run, instants[-1], backlog.until, self._now + _PACE))
        self._record.backlogs = kept

    def _emit(self, instant: int, kind: str) -> None:
        record, policy = self._record, self._policy
        if not self._has_room():
            if policy.overlap in ("skip", "buffer_one", "buffer_all"):
                if len(record.buffered) < policy.most_buffered:
                    record.buffered = [*record.buffered, instant]
                else:
                    record.counts.skipped += 1
                return
            self._turn.cancel += [run.job_id for run in record.active]
            if self._replica.holds_back:
                record.counts.skipped += len(record.buffered)
                record.buffered = [instant]
                return
        self._claim(instant, kind)

    def _waits_for_room(self) -> bool:
        if self._policy.overlap == "cancel_other":
            return self._replica.holds_back
        return self._policy.overlap != "allow"

    def _has_room(self) -> bool:
        return self._policy.overlap == "allow" or len(self._record.active) < self._policy.max_concurrency

    def _claim(self, instant: int, kind: str, run: str = "") -> None:
        claim = OccurrenceClaim(instant, run, self._replica.owner, self._now + LEASE_MS, kind)
        self._record.claims = [*self._record.claims, claim]
        self._turn.claims.append(claim)
        if self._policy.overlap != "allow":
            job_id = scheduled_job_id(self._replica.app, self._entry.name, instant, run)
            self._record.active = [*self._record.active, ActiveRun(job_id, self._now + PENDING_MS)]
