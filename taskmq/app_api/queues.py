"""Queues: list, inspect, pause, resume, move and purge."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, TypedDict

from taskmq.api.queues import (
    BacklogPart,
    DemandView,
    MoreWorkersView,
    MovedView,
    QueueGroup,
    QueueLine,
    QueueLines,
    QueuePauseView,
    QueueView,
)
from taskmq.app_api.caller import AppCalls
from taskmq.app_api.views import instant_text, render_all, view_of
from taskmq.contracts.broker import QueueStats
from taskmq.contracts.jobs import Lane, QueueBacklog
from taskmq.events.control import reach_broker
from taskmq.model.commands import QueuePause
from taskmq.model.topology import PARKING, UNROUTABLE, dead_letter_queue, logical_queue
from taskmq.operations.queue_moves import move_messages
from taskmq.operations.queue_rates import QueueRates, advise, find_rates, plan_workers
from taskmq.operations.queues import (
    MOST_WAITING,
    count_delayed,
    count_lanes,
    find_backlogs,
    find_parts,
    find_pauses,
    list_queues,
    list_statuses,
    measure_demands,
    missing_queue,
    pause_queues,
    purge_queue,
    resume_queues,
    sum_counts,
)

_MOST_TENANTS: Final = 50


class _Stored(TypedDict):
    stored: int | None
    is_exact: bool
    oldest: str | None


class _Load(TypedDict):
    waiting: int
    running: int
    workers: int


class _Flow(TypedDict):
    entered: float | None
    left: float | None
    empty_in: float | None
    advice: str


class _Divided(TypedDict):
    by_tenant: list[BacklogPart]
    by_priority: list[BacklogPart]
    tenants: int


class AppQueues(AppCalls):
    """Queues of the broker. Methods raise `QueueMissing`."""

    async def get(self, name: str, *, within: float = 1.0) -> QueueView:
        session, queue = self._app.sessions.current(), self._app.producer.queue(name)
        await reach_broker(session.broker)
        parts = await find_parts(session.broker, queue)
        letters = await session.broker.stats([dead_letter_queue(name)])
        tasks = sorted(task.name for task in self._app.tasks.values() if task.queue == name)
        if not parts and not tasks:
            raise missing_queue(self._app, name)
        answers = await list_statuses(self._app, within)
        in_hand = sum_counts(each.unsettled for each in parts)
        if in_hand is None:
            # The broker does not count them.
            in_hand = sum(status.in_hand.get(name, 0) for status in answers)
        ready, consumers = sum(each.ready for each in parts), max((each.consumers for each in parts), default=0)
        paused = (await find_pauses(self._app) or {}).get(name)
        stored = _waiting_facts(await find_backlogs(self._app, [name]), name)
        lanes = await count_lanes(self._app, name)
        rates = (await find_rates(self._app)).get(name)
        load: _Load = {
            "waiting": ready + (stored["stored"] or 0),
            "running": in_hand,
            "workers": 0 if paused else consumers,
        }
        return QueueView(
            queue=name,
            kind=queue.kind,
            priorities=None if queue.ordered or queue.lanes else queue.priorities,
            ordered=queue.ordered,
            lanes=queue.lanes,
            max_length=queue.max_length,
            max_bytes=queue.max_bytes,
            delivery_limit=queue.delivery_limit,
            ready=ready,
            in_hand=in_hand,
            delayed=await count_delayed(self._app, queue, parts),
            dead=letters[0].ready if letters else 0 if parts else None,
            **stored,
            **_flow(rates, **load),
            more_workers=[view_of(MoreWorkersView, each) for each in plan_workers(rates, **load)],
            **_divide(lanes),
            consumers=consumers,
            paused=None if paused is None else _pause(paused),
            tasks=tasks,
            workers=[status.name for status in answers if name in status.queues],
            parts=[_line(each, {} if paused is None else {name: paused}) for each in parts],
        )

    async def pause(self, name: str, *, note: str = "") -> QueuePauseView:
        caller = self._caller
        pauses = await pause_queues(self._app, [name], note=note, by=caller.name, record=caller.note_action)
        return _pause(pauses[name])

    async def resume(self, name: str) -> bool:
        return bool(await resume_queues(self._app, [name], record=self._caller.note_action))

    async def purge(self, name: str) -> int:
        return await purge_queue(self._app, name, record=self._caller.note_action)

    async def move(self, name: str, to: str, *, count: int | None = None, task: str | None = None) -> MovedView:
        record = self._caller.note_action
        moved, stayed = await move_messages(self._app, name, to, count=count, task=task, record=record)
        return MovedView(moved=moved, stayed=stayed)

    async def list(self, queues: Sequence[str] = (), *, within: float = 1.0) -> QueueLines:
        """List queues with all their priority classes and dead letter queues.

        A queue of the app that RabbitMQ does not have yet is listed if jobs of the store wait for it.
        """
        found = await list_queues(self._app, queues, within=within)
        pauses = await find_pauses(self._app)
        lines = render_all(lambda each: _line(each, pauses), found.queues)
        names = {logical_queue(line.queue) for line in lines}
        own = {queue.name for queue in self._app.tasks.queues}
        missing = (own.intersection(queues) if queues else own) - names
        backlogs = await find_backlogs(self._app, sorted(names | missing))
        # A queue is declared by its first worker or sender; until then only the store has its jobs.
        lines += [
            _line(QueueStats(name, ready=0, unsettled=0, delayed=None, consumers=0), pauses)
            for name in sorted(missing.intersection(backlogs or ()))
        ]
        rates = await find_rates(self._app)
        return QueueLines(items=lines, delayed=found.delayed, queues=_groups(lines, pauses, backlogs, rates))

    async def demand(self, name: str) -> DemandView:
        """Count the jobs of a queue that need a slot of a worker now, in the store and at the broker.

        A queue that neither the app nor the broker has is known if stored jobs wait for it.
        """
        found = (await measure_demands(self._app, [name]))[name]
        is_known = (
            found.stored
            or name in [queue.name for queue in self._app.tasks.queues]
            or await self._app.sessions.current().broker.stats(self._app.producer.queue(name).physical)
        )
        if not is_known:
            raise missing_queue(self._app, name)
        return DemandView(
            queue=name,
            demand=(found.stored or 0) + found.ready + found.in_hand,
            stored=found.stored,
            is_exact=(found.stored or 0) < MOST_WAITING,
            ready=found.ready,
            in_hand=found.in_hand,
            oldest=None if found.oldest is None else instant_text(found.oldest),
        )


def _groups(
    lines: Sequence[QueueLine],
    pauses: Mapping[str, QueuePause] | None,
    backlogs: Mapping[str, QueueBacklog] | None,
    rates: Mapping[str, QueueRates],
) -> list[QueueGroup]:
    """Group RabbitMQ queues by app queue, in the order of their first parts."""
    parts: dict[str, list[QueueLine]] = {}
    for line in lines:
        parts.setdefault(logical_queue(line.queue), []).append(line)
    return [_group(name, found, pauses, backlogs, rates.get(name)) for name, found in parts.items()]


def _group(
    name: str,
    lines: Sequence[QueueLine],
    pauses: Mapping[str, QueuePause] | None,
    backlogs: Mapping[str, QueueBacklog] | None,
    rates: QueueRates | None,
) -> QueueGroup:
    letters = [line for line in lines if line.queue in (PARKING, UNROUTABLE, dead_letter_queue(name))]
    work = [line for line in lines if line not in letters]
    ready, in_hand = sum(line.ready for line in work), sum_counts(line.in_hand for line in work)
    consumers = max((line.consumers for line in work), default=0)
    is_paused = name in pauses if work and pauses is not None else None
    stored = _waiting_facts(backlogs, name)
    return QueueGroup(
        queue=name,
        ready=ready,
        in_hand=in_hand,
        delayed=sum_counts(line.delayed for line in work),
        consumers=consumers,
        is_paused=is_paused,
        dead=sum(line.ready for line in letters),
        **stored,
        **_flow(
            rates,
            waiting=ready + (stored["stored"] or 0),
            running=in_hand or 0,
            workers=0 if is_paused else consumers,
        ),
        parts=[line.queue for line in lines],
    )


def _waiting_facts(backlogs: Mapping[str, QueueBacklog] | None, name: str) -> "_Stored":
    if backlogs is None:
        return {"stored": None, "is_exact": True, "oldest": None}
    found = backlogs.get(name)
    return (
        {"stored": 0, "is_exact": True, "oldest": None}
        if found is None
        else {
            "stored": found.count,
            "is_exact": found.count < MOST_WAITING,
            "oldest": instant_text(found.oldest),
        }
    )


def _divide(lanes: Mapping[Lane, int]) -> "_Divided":
    tenants: Counter[str] = Counter()
    priorities: Counter[int] = Counter()
    for lane, jobs in lanes.items():
        tenants[lane.tenant] += jobs
        priorities[lane.priority] += jobs
    return {
        "by_tenant": [BacklogPart(name=name, jobs=jobs) for name, jobs in tenants.most_common(_MOST_TENANTS)],
        "by_priority": [
            BacklogPart(name=str(priority), jobs=jobs) for priority, jobs in sorted(priorities.items(), reverse=True)
        ],
        "tenants": len(tenants),
    }


def _flow(rates: QueueRates | None, *, waiting: int, running: int, workers: int) -> "_Flow":
    empty_in = rates.seconds_until_empty(waiting) if rates and workers and waiting else None
    return {
        "entered": None if rates is None else round(rates.entered, 3),
        "left": None if rates is None else round(rates.left, 3),
        "empty_in": None if empty_in is None else round(empty_in, 1),
        "advice": advise(rates, waiting=waiting, running=running, workers=workers),
    }


def _line(found: QueueStats, pauses: Mapping[str, QueuePause] | None) -> QueueLine:
    is_work = found.queue != dead_letter_queue(found.queue)
    paused = pauses.get(logical_queue(found.queue)) if pauses is not None and is_work else None
    return QueueLine(
        queue=found.queue,
        ready=found.ready,
        in_hand=found.unsettled,
        delayed=found.delayed,
        consumers=found.consumers,
        is_paused=None if pauses is None else paused is not None,
        paused=None if paused is None else _pause(paused),
    )


def _pause(pause: QueuePause) -> QueuePauseView:
    return QueuePauseView(since=instant_text(pause.since), note=pause.note, by=pause.by)
