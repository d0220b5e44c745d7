"""Checks, once a second, whether runs have to give way in the queues of one partition.

    no job in flight may be stopped                              -> nothing to do
    a pool or class has been below its guarantee for `preempt_after`, and has waiting jobs
      -> evictions (pure) -> an event for each, by compare-and-set on its version -> sent to the workers, again every
         5 s until it is reported -> the job is ready again, its attempt not counted

A request is in the store before a worker receives it. A scheduler that takes over the partition reads it there, and
asks no other run instead. The job returns by its report, its message, or the loss of its worker, so nothing here
loses it, runs it twice or counts an attempt.

Jobs that wait at the broker ahead of a job with a guarantee are recalled, even if they may not be stopped: they have
not started, so only their turn is lost.
"""

import asyncio
import logging
import secrets
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

from taskmq.client.session import Session
from taskmq.contracts.broker_abilities import Broadcasting
from taskmq.contracts.jobs import JobRecord, JobStore, JobUpdate, Lane, Pick
from taskmq.durable.service import pause
from taskmq.errors import StoreUnavailable
from taskmq.model.commands import PREEMPT, Command, Preemption, command_topic, encode_command
from taskmq.model.jobs.pools import QueuePolicy, preemption_reason
from taskmq.model.nodes import HostNode, JobNeeds, NodeTold, capacity_of
from taskmq.model.states import JobState
from taskmq.scheduler.fairness import Guarantees
from taskmq.scheduler.partition import PartitionState
from taskmq.scheduler.placement import Claim, Eviction, Occupant, compute_missing, plan_evictions
from taskmq.scheduler.signals import LiveWorkers
from taskmq.scheduler.status import SchedulerCounts
from taskmq.stored_jobs.new_jobs import name_of

_log = logging.getLogger("taskmq.scheduler")

_PERIOD: Final = 1.0
_AGAIN: Final = 5.0
# A run that continues this long after its grace cannot be stopped: an older worker or an unresponsive thread has it.
_STUCK: Final = 10.0
_MOST: Final = 100
_MOST_READ: Final = 1000
_SLOT: Final = JobNeeds()

_Key = tuple[str, int]


@dataclass(slots=True)
class _Leaving:
    """A run that was asked to leave.

    Attributes:
        until: when its grace ends, by the loop's clock.
        notified: when the request was last sent to the workers.
    """

    asked: Preemption
    until: float
    notified: float | None = None


class PreemptionWatch:
    """A service that stops runs of one partition for jobs of pools below their guarantee.

    If the slots of a queue's live workers are unknown, no run is stopped there.
    """

    def __init__(
        self,
        session: Session,
        store: JobStore,
        state: PartitionState,
        workers: LiveWorkers,
        *,
        partition: int,
        counts: SchedulerCounts,
    ) -> None:
        self._session = session
        self._store = store
        self._state = state
        self._ledger = state.ledger
        self._workers = workers
        self._partition = partition
        self._counts = counts
        self._leaving: dict[_Key, _Leaving] = {}
        # Cache of how often jobs in flight have given way in a row.
        self._times: dict[_Key, int] = {}
        self._owed_since: dict[tuple[str, str], float] = {}
        self._has_checked_earlier = False
        self._is_stopping = asyncio.Event()

    def stop(self) -> None:
        """See `Service`."""
        self._is_stopping.set()

    async def run(self) -> None:
        """Check once a second until `stop`. Waits while the store is unavailable."""
        while not await pause(self._is_stopping, _PERIOD):
            if not self._ledger.giving_way:
                self._forget_all()
                continue
            try:
                await self._check_all()
            except StoreUnavailable as error:
                _log.debug("partition %d: checking for preemption failed, will retry: %s", self._partition, error)

    async def _check_all(self) -> None:
        now = await self._store.now_ms()
        records = [
            record
            for record in await self._store.dispatching.in_flight(self._partition, dispatched_before=now)
            if self._ledger.find(record.id, record.token) is not None
        ]
        self._forget_those_gone(records)
        await self._find_earlier_requests(records)
        lanes: defaultdict[str, list[Lane]] = defaultdict(list)
        for lane in await self._store.dispatching.lanes(self._partition):
            lanes[lane.queue].append(lane)
        by_queue: defaultdict[str, list[JobRecord]] = defaultdict(list)
        for record in records:
            by_queue[record.queue].append(record)
        recalled: list[Preemption] = []
        for queue, jobs in by_queue.items():
            if any(self._gives_way(record) for record in jobs):
                recalled += await self._check_queue(queue, jobs, lanes[queue], now)
        self._send_requests(recalled)

    async def _check_queue(
        self, queue: str, records: Sequence[JobRecord], lanes: Sequence[Lane], now: int
    ) -> list[Preemption]:
        """Ask runs of a queue to leave if needed. Returns the jobs to recall."""
        nodes = await self._nodes(queue, records)
        policy, pools = self._state.shares.rules_of(queue)
        promised = Guarantees(policy, pools, capacities=capacity_of(nodes))
        # A placed job occupies its node from the dispatch on.
        running = [
            record for record in records if record.state is JobState.RUNNING or self._state.rules.is_placed(queue)
        ]
        missing = compute_missing([self._occupant(record, promised) for record in running], promised.least)
        dispatched = [record for record in records if record not in running]
        claims = [
            Claim(record.id, groups, _SLOT)
            for record in sorted(dispatched, key=_by_dispatch)
            if missing.keys() & (groups := promised.groups(_lane_of(record)))
        ]
        claims += await self._waiting(lanes, promised, missing, now)
        ripe = self._find_ripe(queue, policy, missing, claims)
        if not ripe:
            return []
        await self._make_room([claim for claim in claims if ripe & {*claim.groups}], running, nodes, promised, policy)
        return _recall_ahead(dispatched, {claim.job for claim in claims})

    async def _nodes(self, queue: str, records: Sequence[JobRecord]) -> list[HostNode]:
        """Return the nodes of the queue, or one node that stands for all of its workers."""
        if self._state.rules.is_placed(queue):
            return await self._store.nodes.nodes()
        slots = self._workers.slots_of(queue)
        if slots is None:
            return []
        used = sum(record.state is JobState.RUNNING for record in records)
        told = NodeTold(name="", capacity={"slots": float(slots)}, runs_jobs=True)
        return [HostNode(id="", told=told, used={"slots": float(used)})]

    async def _waiting(
        self, lanes: Sequence[Lane], promised: Guarantees, missing: Mapping[str, int], now: int
    ) -> list[Claim]:
        """Return claims of jobs in the store, as many as the guarantees lack, highest priority first."""
        picks = [
            Pick(lane, min(sum(missing[group] for group in groups), _MOST))
            for lane in sorted(lanes, key=_by_priority)
            if (groups := missing.keys() & promised.groups(lane))
        ]
        if not picks:
            return []
        # Read some jobs of each lane, and few in total.
        each = max(_MOST_READ // max(len(picks), 1), 1)
        waiting = await self._store.nodes.waiting([Pick(pick.lane, min(pick.count, each)) for pick in picks])
        return [
            Claim(one.id, promised.groups(one.lane), one.needs or _SLOT)
            for one in waiting
            # Gangs start together, and expired jobs do not start.
            if not (one.needs or _SLOT).gang and (one.expires is None or one.expires > now)
        ]

    def _find_ripe(
        self, queue: str, policy: QueuePolicy, missing: Mapping[str, int], claims: Sequence[Claim]
    ) -> set[str]:
        """Return the pools and classes that have been below their guarantee for long enough."""
        now = _now()
        wanted = {group for claim in claims for group in claim.groups if group in missing}
        before = self._owed_since
        self._owed_since = {key: since for key, since in before.items() if key[0] != queue}
        for group in wanted:
            self._owed_since[queue, group] = before.get((queue, group), now)
        return {group for group in wanted if now - self._owed_since[queue, group] >= policy.preempt_after}

    async def _make_room(
        self,
        claims: Sequence[Claim],
        running: Sequence[JobRecord],
        nodes: Sequence[HostNode],
        promised: Guarantees,
        policy: QueuePolicy,
    ) -> None:
        by_id = {record.id: record for record in running}
        while True:
            occupants = [self._occupant(record, promised, policy) for record in running]
            plan = plan_evictions(claims, occupants, nodes, promised.least)
            unknown = [by_id[each.job] for each in plan if _key_of(by_id[each.job]) not in self._times]
            if not unknown:
                break
            for record in unknown:
                self._times[_key_of(record)] = await self._times_in_row(record.id)
        for_claim: defaultdict[str, list[str]] = defaultdict(list)
        for each in plan:
            if await self._ask(by_id[each.job], each, policy):
                for_claim[each.claim].append(each.job)
        for claim, leaving in for_claim.items():
            if self._state.rules.is_placed(by_id[leaving[0]].queue):
                self._state.placements.make_room(claim, leaving, until=_now() + policy.preempt_grace)

    async def _ask(self, record: JobRecord, eviction: Eviction, policy: QueuePolicy) -> bool:
        """Record that a run has to leave. Returns whether it was recorded."""
        reason = preemption_reason(eviction.group)
        update = JobUpdate(
            id=record.id,
            before=record.state,
            version=record.version,
            after=record.state,
            kind="preempt_requested",
            note=reason,
        )
        if await self._store.update(update) is None:
            # The job has changed; it is checked again in the next round.
            return False
        _log.info("asking job %s (task %s) to give way: %s", name_of(record), record.task, reason)
        self._counts.preempted += 1
        grace = policy.preempt_grace
        asked = Preemption(job=record.id, token=record.token, reason=reason, grace=grace)
        self._leaving[_key_of(record)] = _Leaving(asked, _now() + grace)
        return True

    async def _times_in_row(self, job_id: str) -> int:
        """Return how often the job has given way since its attempt started."""
        attempts = await self._store.attempts(job_id)
        since = max((each.ended or 0 for each in attempts), default=0)
        return Counter(each.kind for each in await self._store.events(job_id) if each.at >= since)["preempted"]

    async def _find_earlier_requests(self, records: Sequence[JobRecord]) -> None:
        """Find which runs an earlier holder has asked to leave."""
        if self._has_checked_earlier:
            return
        for record in records:
            key = _key_of(record)
            if record.state is not JobState.RUNNING or not self._gives_way(record):
                continue
            for event in await self._store.events(record.id):
                if event.kind == "preempt_requested" and event.at >= (record.dispatched or 0):
                    grace = self._state.shares.rules_of(record.queue)[0].preempt_grace
                    asked = Preemption(job=record.id, token=record.token, reason=event.note, grace=grace)
                    self._leaving.setdefault(key, _Leaving(asked, _now() + grace))
        self._has_checked_earlier = True

    def _send_requests(self, recalled: Sequence[Preemption]) -> None:
        broker, now = self._session.broker, _now()
        if not isinstance(broker, Broadcasting):
            return
        asked = list(recalled)
        for leaving in self._leaving.values():
            if not _is_stuck(leaving, now) and (leaving.notified is None or now - leaving.notified >= _AGAIN):
                leaving.notified = now
                asked.append(leaving.asked)
        for first in range(0, len(asked), _MOST):
            command = Command(id=secrets.token_hex(8), name=PREEMPT, jobs=tuple(asked[first : first + _MOST]))
            broker.announce(command_topic(PREEMPT), encode_command(command))

    def _occupant(self, record: JobRecord, promised: Guarantees, policy: QueuePolicy | None = None) -> Occupant:
        key = _key_of(record)
        leaving = self._leaving.get(key)
        is_leaving = record.cancel_requested is not None or (leaving is not None and not _is_stuck(leaving, _now()))
        may_again = policy is not None and self._times.get(key, 0) < policy.preempt_most
        placed = self._state.placements.find(record.id)
        return Occupant(
            job=record.id,
            groups=promised.groups(_lane_of(record)),
            node="" if placed is None else placed[0],
            amounts=_SLOT.amounts if placed is None else placed[1],
            priority=record.priority,
            began=record.started or record.dispatched or 0,
            gives_way=leaving is None and record.state is JobState.RUNNING and may_again and self._gives_way(record),
            is_leaving=is_leaving,
        )

    def _gives_way(self, record: JobRecord) -> bool:
        flight = self._ledger.find(record.id, record.token)
        return flight is not None and flight.gives_way

    def _forget_those_gone(self, records: Sequence[JobRecord]) -> None:
        there = {_key_of(record) for record in records}
        self._leaving = {key: leaving for key, leaving in self._leaving.items() if key in there}
        self._times = {key: times for key, times in self._times.items() if key in there}

    def _forget_all(self) -> None:
        self._leaving.clear()
        self._times.clear()
        self._owed_since.clear()


def _recall_ahead(dispatched: Sequence[JobRecord], claims: set[str]) -> list[Preemption]:
    """Return recalls for the jobs at the broker ahead of the first claimed one; for all, if none is claimed."""
    first = min((record.dispatched or 0 for record in dispatched if record.id in claims), default=inf)
    return [
        Preemption(job=record.id, token=record.token)
        for record in dispatched
        if record.id not in claims and (record.dispatched or 0) < first
    ]


def _is_stuck(leaving: _Leaving, now: float) -> bool:
    return now > leaving.until + _STUCK


def _key_of(record: JobRecord) -> _Key:
    return record.id, record.token


def _lane_of(record: JobRecord) -> Lane:
    return Lane(record.queue, record.priority, record.tenant)


def _by_dispatch(record: JobRecord) -> tuple[int, str]:
    return record.dispatched or 0, record.id


def _by_priority(lane: Lane) -> tuple[int, Lane]:
    return -lane.priority, lane


def _now() -> float:
    return asyncio.get_running_loop().time()
