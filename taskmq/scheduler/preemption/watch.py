"""Looks, once a second, whether runs have to give way, in the queues of one partition.

    nothing in flight allows it                                  -> no run is asked
    a pool or class has had less than its guarantee for `preempt_after`, and jobs of it wait
      -> who leaves (pure) -> an event of each, by compare-and-set on its version -> sent to the workers, again every
         5 s until its report has come -> the job is ready again, its attempt not counted

That a run was asked is in the store before a worker hears of it: a scheduler that takes the partition over reads it
there, and asks for no other run in its place. The job itself comes back by its report, its message, or the loss of
its worker: nothing that happens here in the middle loses it, runs it twice or counts an attempt.

Jobs that wait at the broker in front of one that is owed its place are recalled, whether they allow to be stopped or
not: they have not begun, and lose nothing but that.
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
from taskmq.contracts.broker import Broadcasting
from taskmq.contracts.jobs import JobRecord, JobStore, JobUpdate, Lane, Pick
from taskmq.durable.service import pause
from taskmq.errors import StoreUnavailable
from taskmq.model.commands import PREEMPT, Command, Preemption, command_topic, encode_command
from taskmq.model.jobs.pools import QueuePolicy, preemption_reason
from taskmq.model.nodes import HostNode, JobNeeds, NodeTold, capacity_of
from taskmq.model.states import JobState
from taskmq.scheduler.fairness import Guarantees
from taskmq.scheduler.partition import PartitionState, public_name
from taskmq.scheduler.placement import Claim, Eviction, Occupant, owed, plan_evictions
from taskmq.scheduler.signals import LiveWorkers
from taskmq.scheduler.status import SchedulerCounts

__all__ = ["PreemptionWatch"]

_log = logging.getLogger("taskmq.scheduler")

_LOOK: Final = 1.0
_AGAIN: Final = 5.0
# One that runs so long after its grace cannot be stopped: an older worker has it, or a thread that does not look.
_STUCK: Final = 10.0
_MOST: Final = 100
_LOOKED_AT: Final = 1000
_SLOT: Final = JobNeeds()

_Key = tuple[str, int]


@dataclass(slots=True)
class _Leaving:
    """A run that was asked to leave.

    Attributes:
        until: when its grace is over, by the loop's clock.
        told: when it was last sent to the workers.
    """

    asked: Preemption
    until: float
    told: float | None = None


class PreemptionWatch:
    """Has runs of one partition give way to jobs that are owed their place: a `Service`.

    Where the slots of a queue's live workers are unknown, nothing is stopped there.
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
        # How often those in flight have given way in a row, as far as that was needed.
        self._times: dict[_Key, int] = {}
        self._owed_since: dict[tuple[str, str], float] = {}
        self._has_recognised = False
        self._is_stopping = asyncio.Event()

    def stop(self) -> None:
        """See `Service`."""
        self._is_stopping.set()

    async def run(self) -> None:
        """Look once a second until `stop`. A store that is not there is waited for."""
        while not await pause(self._is_stopping, _LOOK):
            if not self._ledger.giving_way:
                self._forget_all()
                continue
            try:
                await self._look()
            except StoreUnavailable as error:
                _log.debug("partition %d: who has to give way is looked at later: %s", self._partition, error)

    async def _look(self) -> None:
        now = await self._store.now_ms()
        records = [
            record
            for record in await self._store.dispatching.in_flight(self._partition, dispatched_before=now)
            if self._ledger.find(record.id, record.token) is not None
        ]
        self._forget_those_gone(records)
        await self._recognise(records)
        lanes: defaultdict[str, list[Lane]] = defaultdict(list)
        for lane in await self._store.dispatching.lanes(self._partition):
            lanes[lane.queue].append(lane)
        by_queue: defaultdict[str, list[JobRecord]] = defaultdict(list)
        for record in records:
            by_queue[record.queue].append(record)
        recalled: list[Preemption] = []
        for queue, its in by_queue.items():
            if any(self._gives_way(record) for record in its):
                recalled += await self._look_at(queue, its, lanes[queue], now)
        self._tell(recalled)

    async def _look_at(
        self, queue: str, records: Sequence[JobRecord], lanes: Sequence[Lane], now: int
    ) -> list[Preemption]:
        """Have those leave who have to; the jobs that are to be recalled."""
        nodes = await self._nodes(queue, records)
        policy, pools = self._state.shares.described(queue)
        promised = Guarantees(policy, pools, capacities=capacity_of(nodes))
        # What was placed on a node has its room there from that moment on.
        running = [
            record for record in records if record.state is JobState.RUNNING or self._state.rules.is_placed(queue)
        ]
        missing = owed([self._occupant(record, promised) for record in running], promised.least)
        dispatched = [record for record in records if record not in running]
        claims = [
            Claim(record.id, groups, _SLOT)
            for record in sorted(dispatched, key=_by_dispatch)
            if missing.keys() & (groups := promised.groups(_lane_of(record)))
        ]
        claims += await self._waiting(lanes, promised, missing, now)
        ripe = self._ripe(queue, policy, missing, claims)
        if not ripe:
            return []
        await self._make_room([claim for claim in claims if ripe & {*claim.groups}], running, nodes, promised, policy)
        return _in_front(dispatched, {claim.job for claim in claims})

    async def _nodes(self, queue: str, records: Sequence[JobRecord]) -> list[HostNode]:
        """Where jobs of the queue run: nodes, or one that means all of its workers."""
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
        """Jobs in the store that are owed their place, as many as that is; the highest first."""
        picks = [
            Pick(lane, min(sum(missing[group] for group in groups), _MOST))
            for lane in sorted(lanes, key=_by_priority)
            if (groups := missing.keys() & promised.groups(lane))
        ]
        if not picks:
            return []
        # Each lane has a say, and however many there are, few of their jobs are read.
        each = max(_LOOKED_AT // max(len(picks), 1), 1)
        waiting = await self._store.nodes.waiting([Pick(pick.lane, min(pick.count, each)) for pick in picks])
        return [
            Claim(one.id, promised.groups(one.lane), one.needs or _SLOT)
            for one in waiting
            # A gang begins all at once, and a member that is over does not begin any more.
            if not (one.needs or _SLOT).gang and (one.expires is None or one.expires > now)
        ]

    def _ripe(self, queue: str, policy: QueuePolicy, missing: Mapping[str, int], claims: Sequence[Claim]) -> set[str]:
        """Those that have waited for long enough for what they are owed."""
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
        """Write down that a run is to leave; whether it is."""
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
            # Something has happened to it: it is looked at anew.
            return False
        _log.info("job %s (task %s) gives way: %s", public_name(record), record.task, reason)
        self._counts.preempted += 1
        grace = policy.preempt_grace
        asked = Preemption(job=record.id, token=record.token, reason=reason, grace=grace)
        self._leaving[_key_of(record)] = _Leaving(asked, _now() + grace)
        return True

    async def _times_in_row(self, job_id: str) -> int:
        """How often it has given way since its attempt began."""
        attempts = await self._store.attempts(job_id)
        since = max((each.ended for each in attempts), default=0)
        return Counter(each.kind for each in await self._store.events(job_id) if each.at >= since)["preempted"]

    async def _recognise(self, records: Sequence[JobRecord]) -> None:
        """Of what an earlier holder has dispatched: which runs it has asked to leave. Later ones are asked here."""
        if self._has_recognised:
            return
        for record in records:
            key = _key_of(record)
            if record.state is not JobState.RUNNING or not self._gives_way(record):
                continue
            for event in await self._store.events(record.id):
                if event.kind == "preempt_requested" and event.at >= (record.dispatched or 0):
                    grace = self._state.shares.described(record.queue)[0].preempt_grace
                    asked = Preemption(job=record.id, token=record.token, reason=event.note, grace=grace)
                    self._leaving.setdefault(key, _Leaving(asked, _now() + grace))
        self._has_recognised = True

    def _tell(self, recalled: Sequence[Preemption]) -> None:
        broker, now = self._session.broker, _now()
        if not isinstance(broker, Broadcasting):
            return
        asked = list(recalled)
        for leaving in self._leaving.values():
            if not _is_stuck(leaving, now) and (leaving.told is None or now - leaving.told >= _AGAIN):
                leaving.told = now
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


def _in_front(dispatched: Sequence[JobRecord], claims: set[str]) -> list[Preemption]:
    """Those that wait at the broker in front of the first that is owed its place; all, where none of those is."""
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
