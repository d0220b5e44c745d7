"""Explanations of why a stored job does not run yet."""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

import msgspec

from taskmq.client.session import Session
from taskmq.contracts.jobs import HistoryEntry, JobRecord, JobStore, partition_key
from taskmq.model.jobs.pools import SLOTS_ASKED, TenantPool, known_reason, path_of, shares_of
from taskmq.model.jobs.quotas import free_from, run_name
from taskmq.model.nodes import JobNeeds, add_amounts, why_unplaced
from taskmq.model.resources import Amounts
from taskmq.model.states import UNDERWAY, JobState
from taskmq.model.topology import jobs_queue, node_queue
from taskmq.model.units import LAST_INSTANT, count_text, duration_text, to_datetime
from taskmq.options.limits import why_limited
from taskmq.stored_jobs.explanations.alternatives import Alternative, describe_turn, find_answer, list_remedies
from taskmq.stored_jobs.explanations.checks import CheckName, WaitCheck, list_checks
from taskmq.stored_jobs.explanations.expected_starts import StartEstimate
from taskmq.stored_jobs.explanations.queue_condition import WaitReason, examine_queue, find_pause
from taskmq.stored_jobs.explanations.start_estimate import estimate_start
from taskmq.stored_jobs.new_jobs import name_of

_MOST_NAMED: Final = 10
_SLOT: Final = JobNeeds()


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Reasons why a job waits.

    Attributes:
        answer: the sentence that says what the job waits for; empty for a job that has ended.
        reasons: sentences, most important first; empty for a job that has ended.
        items: the same reasons with their kinds and subjects.
        checks: of a job that waits, the checks before its run, in the order in which the scheduler applies them.
        start: of a ready job that nothing keeps from its run, its expected start; None if it cannot be estimated.
        alternatives: actions that would let the job start, or start earlier.
    """

    state: JobState
    answer: str = ""
    reasons: list[str]
    items: list[WaitReason] = []
    checks: list[WaitCheck] = []
    start: StartEstimate | None = None
    alternatives: list[Alternative] = []


async def explain_job(
    session: Session, store: JobStore, record: JobRecord, *, reader: str | None = None, expects_start: bool = True
) -> Explanation:
    """Explain what a job waits for, from the store, the state and the broker as far as they answer.

    Reasons name what could not be determined.

    Args:
        reader: the tenant that asks, which must not learn other tenants' names; None: an operator.
        expects_start: whether to estimate the start of a ready job, from up to five more calls of the store.

    Raises:
        StoreUnavailable: the store could not be reached.
    """
    now = await store.now_ms()
    reasons: list[WaitReason] = []
    at_broker: int | None = None
    match record.state:
        case JobState.HELD:
            reasons.append(await _explain_hold(store, record))
            reasons += await _explain_upstream(store, record)
            reasons += (await find_pause(session, record.queue, reader=reader))[0]
        case JobState.WAITING:
            reasons += await _explain_upstream(store, record) or [
                WaitReason(kind="dependency", text="it waits for other jobs")
            ]
            reasons += (await find_pause(session, record.queue, reader=reader))[0]
        case JobState.SCHEDULED | JobState.RETRYING:
            reasons.append(WaitReason(kind="time", text=_describe_time(record, now)))
            reasons += await _explain_interruption(store, record, reader)
            reasons += (await find_pause(session, record.queue, reader=reader))[0]
        case JobState.QUEUED:
            found, at_broker = await _explain_ready(session, store, record, now=now, reader=reader)
            reasons += found
        case JobState.DISPATCHED:
            reasons += await _explain_dispatched(session, store, record, reader)
        case JobState.RUNNING:
            text = f"it has been running on {record.worker or 'a worker'} since {_format(record.started)}"
            since = _instant(record.started)
            reasons.append(WaitReason(kind="running", text=text, subject=record.worker or "", since=since))
            reasons += await _explain_preemption(store, record, reader)
        case _:
            return Explanation(state=record.state, reasons=[])
    if record.state not in UNDERWAY and record.via == "store":
        partition = store.dispatching.partition_of(record.queue)
        if await store.dispatching.leases.find(partition_key(partition)) is None:
            # For a ready job this is the most important reason.
            index = 0 if record.state is JobState.QUEUED else len(reasons)
            text = f"no scheduler holds its queue's partition ({partition})"
            reasons.insert(index, WaitReason(kind="scheduler", text=text))
    outlook = None
    if expects_start and at_broker is not None and not any(each.is_obstacle for each in reasons):
        outlook = await estimate_start(store, record, now=now, at_broker=at_broker, reader=reader)
    if record.cancel_requested is not None:
        text = f"its worker was asked to stop it: {record.cancel_requested}"
        reasons.append(WaitReason(kind="cancellation", text=text))
    if (failure := record.failure) is not None:
        text = f"its last attempt failed: {failure.type_name}: {failure.message}"[:500]
        reasons.append(WaitReason(kind="error", text=text))
    checks = list_checks(record.state, reasons, is_placed=_needs_node(record), passed_at=_passed_at(record))
    remedies = list_remedies(reasons, is_suspended=bool(record.suspension), reader=reader)
    return Explanation(
        state=record.state,
        answer=describe_turn(record.queue, outlook.start, now) if outlook else find_answer(reasons, checks),
        reasons=[each.text for each in reasons],
        items=reasons,
        checks=checks,
        start=outlook.start if outlook else None,
        alternatives=[*remedies, *(outlook.alternatives if outlook else ())],
    )


async def _explain_hold(store: JobStore, record: JobRecord) -> WaitReason:
    """Say who holds the job, and since when if an operator does and its events are still kept."""
    if record.suspension:
        return WaitReason(kind="held", text=f"it is held, because {record.suspension}")
    # A job that nothing has changed was submitted as a held one.
    first = record.submitted if record.version == 1 else None
    since = next((each.at for each in reversed(await store.events(record.id)) if each.kind == "hold"), first)
    return WaitReason(kind="held", text="it is held by an operator", since=_instant(since))


def _passed_at(record: JobRecord) -> dict[CheckName, datetime | None]:
    """Return when a job passed its checks, as far as its record says so."""
    is_dispatched = record.state is JobState.DISPATCHED
    return {"time": to_datetime(record.due), "turn": _instant(record.dispatched) if is_dispatched else None}


def _describe_time(record: JobRecord, now: int) -> str:
    """Describe what a delayed job waits for."""
    left = f"in {duration_text(max(record.due - now, 0) / 1000)}"
    if record.suspension:
        return f"it is {record.suspension}" + (f", {left}" if record.due < LAST_INSTANT else "")
    what = "its next attempt" if record.state is JobState.RETRYING else "its time"
    return f"it waits for {what}, {_format(record.due)}, {left}"


async def _explain_ready(
    session: Session, store: JobStore, record: JobRecord, *, now: int, reader: str | None
) -> tuple[list[WaitReason], int | None]:
    """Explain why a ready job was not dispatched yet, and count those of its queue at the broker if that is known."""
    unknown: list[WaitReason] = []
    at_broker = None
    if record.via == "broker":
        condition = await examine_queue(session, record.queue, reader=reader)
        text = f"it returned to queue {record.queue!r} and waits for a worker there"
        waits = WaitReason(kind="turn", text=text, subject=record.queue)
        return [*condition.obstacles, waits, *condition.unknown], None
    if _needs_node(record):
        # A placed job is run by the workers of its node, not of its queue.
        paused, unknown = await find_pause(session, record.queue, reader=reader)
        reasons = paused + await _explain_placement(store, record)
    else:
        condition = await examine_queue(session, record.queue, reader=reader)
        reasons, unknown, at_broker = condition.obstacles, condition.unknown, condition.ready
    turn = "its turn" if not reasons else "that and for its turn"
    text = f"it has been ready since {_format(record.due)} and waits for {turn} in queue {record.queue!r}"
    reasons.append(WaitReason(kind="turn", text=text, subject=record.queue, since=to_datetime(record.due)))
    reasons += await _explain_interruption(store, record, reader)
    reasons += await _explain_limit(store, record)
    reasons += await _explain_quotas(store, record, now, reader)
    reasons += await _explain_turn(store, record, now)
    return reasons + unknown, at_broker


async def _explain_dispatched(
    session: Session, store: JobStore, record: JobRecord, reader: str | None
) -> list[WaitReason]:
    """Explain why no worker has the job's message yet, or how many workers may receive it."""
    placed = await store.nodes.find_placed([record.id])
    queue = node_queue(placed[0].node) if placed else record.queue
    condition = await examine_queue(session, queue, reader=reader)
    since = _instant(record.dispatched)
    message = f"its message has been in {jobs_queue(queue)} since {_format(record.dispatched)}"
    if condition.obstacles:
        waits = WaitReason(kind="message", text=message, subject=queue, since=since)
        return [*condition.obstacles, waits, *condition.unknown]
    workers = f"{condition.consumers} worker{' consumes' if condition.consumers == 1 else 's consume'}"
    # A tenant must not learn how many jobs others have in the queue.
    waiting = f", {condition.ready} messages wait" if condition.ready and reader is None else ""
    end = "it waits for a free slot, or has been running for less than a quarter of a second"
    text = f"{message}: {workers} that queue{waiting}; {end}"
    return [WaitReason(kind="message", text=text, subject=queue, since=since), *condition.unknown]


async def _explain_interruption(store: JobStore, record: JobRecord, reader: str | None) -> list[WaitReason]:
    """Explain why its last run was stopped, if it was."""
    events = [event for event in await store.events(record.id) if event.kind in ("preempted", "interrupted")]
    if not events or events[-1].at < (record.dispatched or 0):
        return []
    last = events[-1]
    why = f"interrupted: {last.note}" if last.kind == "interrupted" else _known_reason(last, reader)
    text = f"it was {why}, {_format(last.at)}: it continues in the same attempt when its turn comes"[:500]
    return [WaitReason(kind="interruption", text=text)]


async def _explain_preemption(store: JobStore, record: JobRecord, reader: str | None) -> list[WaitReason]:
    """Explain for which job it was asked to stop, if it was."""
    return [
        WaitReason(
            kind="interruption", text=f"it was asked to give way, {_format(event.at)}: {_known_reason(event, reader)}"
        )
        for event in await store.events(record.id)
        if event.kind == "preempt_requested" and event.at >= (record.dispatched or 0)
    ][:1]


def _known_reason(event: HistoryEntry, reader: str | None) -> str:
    return event.note if reader is None else known_reason(event.note, reader)


async def _explain_limit(store: JobStore, record: JobRecord) -> list[WaitReason]:
    """Explain which exhausted limit of its task holds it back, if a scheduler has recorded one."""
    gate = await store.dispatching.gate_of(record.id)
    return [WaitReason(kind="limit", text=why_limited(gate))] if gate else []


def _needs_node(record: JobRecord) -> bool:
    return record.detail is not None and record.detail.needs is not None


async def _explain_placement(store: JobStore, record: JobRecord) -> list[WaitReason]:
    """Explain why it is not placed on a node yet."""
    if record.detail is None or record.detail.needs is None:
        return []
    needs = record.detail.needs
    reasons = [WaitReason(kind="placement", text=why_unplaced(needs, await store.nodes.nodes())[0])]
    if needs.gang:
        text = f"it starts together with the {needs.gang_size} jobs of gang {needs.gang!r}"
        reasons.append(WaitReason(kind="placement", text=text))
    return reasons


async def _explain_quotas(store: JobStore, record: JobRecord, now: int, reader: str | None) -> list[WaitReason]:
    """Name the quotas that have no room for it, with the next free instant of an exhausted rate."""
    owner = "" if record.detail is None else record.detail.owner
    stored = await store.quotas()
    quotas = [each for each in stored.of(record.tenant, owner) if each.holds_back]
    names = [each.name for each in stored.stored_for(record.tenant, owner) if each.holds_back]
    usage = await store.quota_usage([run_name(each.tenant, each.user) for each in quotas])
    is_counted = any(each.running is not None for each in quotas)
    in_flight = await store.dispatching.count_in_flight(record.tenant) if is_counted else {}
    reasons: list[WaitReason] = []
    for quota, name in zip(quotas, names, strict=True):
        # Operators learn which quota to raise; a tenant knows only its own name.
        subject = name if reader is None else quota.name
        count = sum(in_flight.values()) if quota.user is None else in_flight.get(quota.user, 0)
        if quota.running is not None and count >= quota.running:
            jobs = count_text(quota.running, "job")
            text = f"quota {quota.name!r} allows {jobs} in flight at a time, over all queues, and has no room for it"
            reasons.append(WaitReason(kind="quota", text=text, subject=subject))
        used = usage.get(run_name(quota.tenant, quota.user))
        if quota.on_limit == "wait" and used is not None and (free := free_from(quota, used)) > now:
            jobs = count_text(quota.rate or 0, "job")
            text = f"quota {quota.name!r} allows {jobs} per second: the next one at {_format(round(free))}"
            reasons.append(WaitReason(kind="quota", text=text, subject=subject))
    return reasons


async def _explain_upstream(store: JobStore, record: JobRecord) -> list[WaitReason]:
    """Name the first unmet dependencies."""
    unmet = await store.unmet(record.id, limit=_MOST_NAMED + 1)
    reasons: list[WaitReason] = []
    for each in unmet[:_MOST_NAMED]:
        other = await store.get(each.id)
        if other is None:
            text = f"it waits for job {each.id} to be {each.condition}, but that job is no longer kept"
        elif other.state.is_final:
            text = f"it waits for a scheduler to notice that job {name_of(other)} is {other.state}"
        else:
            what = f"job {name_of(other)} of task {other.task}"
            text = f"it waits for {what} to be {each.condition}: that job is {other.state}"
        reasons.append(WaitReason(kind="dependency", text=text, subject=str(each.id)))
    if len(unmet) > _MOST_NAMED:
        text = f"and for more of the {len(record.detail.depends_on) if record.detail else 0} jobs it depends on"
        reasons.append(WaitReason(kind="dependency", text=text))
    return reasons


async def _explain_turn(store: JobStore, record: JobRecord, now: int) -> list[WaitReason]:
    """Describe the other tenants in its queue, its pool's share, and the pool's jobs in flight."""
    sharing = await store.sharing()
    lanes = await store.dispatching.lanes(store.dispatching.partition_of(record.queue))
    tenants = {lane.tenant for lane in lanes if lane.queue == record.queue} | {record.tenant}
    policy = sharing.queues.get(record.queue)
    reasons: list[WaitReason] = []
    if (others := len(tenants) - 1) > 0:
        text = f"{others} other {'tenant has' if others == 1 else 'tenants have'} jobs in that queue"
        reasons.append(WaitReason(kind="pool", text=text))
    if policy is not None and policy.policy in {"fair", "weighted"}:
        share = shares_of(tenants, sharing.pools, weighted=policy.policy == "weighted")[record.tenant]
        text = f"its pool gets {share:.1%} of the queue while all of them have jobs ({policy.policy})"
        reasons.append(WaitReason(kind="pool", text=text))
    return reasons + await _explain_caps(store, record, sharing.pools, now)


async def _explain_caps(
    store: JobStore, record: JobRecord, pools: Mapping[str, TenantPool], now: int
) -> list[WaitReason]:
    """Compare what its pools have in flight with their caps."""
    needs = _SLOT if record.detail is None or record.detail.needs is None else record.detail.needs
    capped = [pool for pool in path_of(record.tenant, pools) if pool.max.keys() & needs.amounts.keys()]
    if not capped:
        return []
    partition = store.dispatching.partition_of(record.queue)
    flights = [
        each
        for each in await store.dispatching.in_flight(partition, dispatched_before=now)
        if each.queue == record.queue
    ]
    placed = {each.job: each.amounts for each in await store.nodes.find_placed([each.id for each in flights])}
    reasons: list[WaitReason] = []
    for pool in capped:
        used: Amounts = {}
        for each in flights:
            if any(above.name == pool.name for above in path_of(each.tenant, pools)):
                used = add_amounts(used, placed.get(each.id, _SLOT.amounts))
        for name in sorted(pool.max.keys() & needs.amounts.keys()):
            have, most = used.get(name, 0.0), pool.max[name]
            limit = f"{count_text(most, 'job')} in flight" if name == SLOTS_ASKED else f"{most:g} {name}"
            is_full = have + needs.amounts[name] > most * (1 + 1e-9)
            effect = f"; this job needs {needs.amounts[name]:g} and waits until another one ends" if is_full else ""
            text = f"pool {pool.name!r} has {have:g} of at most {limit} in that queue{effect}"
            reasons.append(WaitReason(kind="cap" if is_full else "pool", text=text, subject=pool.name))
    return reasons


def _format(milliseconds: int | None) -> str:
    instant = _instant(milliseconds)
    return "at an unknown time" if instant is None else instant.isoformat(timespec="seconds")


def _instant(milliseconds: int | None) -> datetime | None:
    return None if milliseconds is None else to_datetime(milliseconds)
