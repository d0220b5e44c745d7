"""`app.reactions`: the tasks of an app that are called on events."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final, Literal

import msgspec
from msgspec.structs import replace

from taskmq.client.producer import Producer
from taskmq.client.sessions import Sessions, blocking
from taskmq.contracts.stores import require_store
from taskmq.errors import InvalidArguments, InvalidOption, ReactionNotFound, UnsupportedFeature
from taskmq.model.keys import reaction_record_key
from taskmq.model.runs.records import RunState
from taskmq.model.states import JobState
from taskmq.model.topology import TOPIC_QUEUE
from taskmq.model.units import Duration, parse_duration, to_datetime, to_ms
from taskmq.reactions.model.conditions import (
    Condition,
    FileArrives,
    JobEnds,
    MessageComes,
    QueueMessageComes,
    TimeComes,
    WorkflowRunEnds,
)
from taskmq.reactions.model.events import FileArrived, JobEnded, MessageArrived, ReactionEvent, RunEnded, TimeCame
from taskmq.reactions.model.expressions import AllOf, AnyOf, AtLeast, Expression, Joined
from taskmq.reactions.model.pending import PendingReaction, ReactionPlan
from taskmq.reactions.pending_store import read_pending
from taskmq.schedules.triggers import for_schedule
from taskmq.tasks.task import Task
from taskmq.tasks.tasks import Tasks

_THEN: Final = datetime(2027, 1, 1, tzinfo=UTC)


class Reaction(msgspec.Struct, frozen=True):
    """A task and the events on which it is called.

    Attributes:
        is_dynamic: whether it was made at run time: it is kept in the job store, and its calls are stored jobs.
        since: when it was made at run time, ms since the epoch by the store's clock: earlier ends do not count.
    """

    name: str
    task: Task[..., Any]
    plan: ReactionPlan
    is_dynamic: bool = False
    since: int = 0

    @property
    def is_submitted(self) -> bool:
        """Whether its calls go to the job store."""
        return self.is_dynamic or self.task.call_plan.lane == "store"

    @property
    def takes_list(self) -> bool:
        """Whether the task gets a list of events, instead of the one event of a single condition."""
        return isinstance(self.plan.expression, Joined)

    @property
    def is_direct(self) -> bool:
        """Whether each event is one call, so that no state is needed."""
        return not self.plan.debounce and _each_is_enough(self.plan.expression)

    @property
    def needs_beat(self) -> bool:
        """Whether the reaction needs a beat, because workers do not see all of its events."""
        return not self.is_dynamic and (
            not self.is_direct
            or not all(isinstance(each, JobEnds | WorkflowRunEnds) for each in self.plan.conditions)
        )

    @property
    def needs_scheduler(self) -> bool:
        """Whether only schedulers see its events, and no beat is needed."""
        return self.is_dynamic or (
            not self.needs_beat and all(isinstance(each, WorkflowRunEnds) for each in self.plan.conditions)
        )

    def queue_of(self, app: str, number: int) -> str:
        """Return the queue of messages for one of the conditions; "" if it needs none."""
        match self.plan.conditions[number]:
            case MessageComes() | QueueMessageComes(queue=""):
                name = f"{TOPIC_QUEUE}{app}.{self.name}"
                return name if len(self.plan.conditions) == 1 else f"{name}.{number}"
            case QueueMessageComes(queue=queue):
                return queue
            case _:
                return ""

    def arguments(self, events: list[ReactionEvent]) -> tuple[Any, ...]:
        """Return the arguments of the call."""
        return (events,) if self.takes_list else (events[0],)

    def describe(self) -> str:
        """Describe the rule in plain English."""
        plan = self.plan
        rule = f"when {plan.expression.describe()}"
        if plan.debounce:
            rule += f", and nothing more for {plan.debounce / 1000:g} s"
        if plan.limit:
            end = "calls with the events that came" if plan.at_limit == "call" else "forgets the events"
            rule += f"; {plan.limit / 1000:g} s after the first event it {end}"
        return rule


class ReactionStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Snapshot of a reaction that keeps state.

    Attributes:
        received: events since the last call, by the condition's description.
        waiting: number of calls that wait for the broker.
        fired: number of calls that the broker has confirmed.
        failed: number of calls that could not be sent because their messages were too large.
        dropped: how often the limit of the wait forgot the events.
        last: when the last call was confirmed.
    """

    name: str
    received: dict[str, ReactionEvent]
    waiting: int
    fired: int
    failed: int
    dropped: int
    last: datetime | None


class Reactions(Mapping[str, Reaction]):
    """The reactions that an app's code defines, by name."""

    def __init__(self, app_name: str, tasks: Tasks, producer: Producer) -> None:
        self._app_name = app_name
        self._tasks = tasks
        self._producer = producer
        self._by_name: dict[str, Reaction] = {}

    def __getitem__(self, name: str) -> Reaction:
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._loaded)

    def __len__(self) -> int:
        return len(self._loaded)

    @property
    def _loaded(self) -> dict[str, Reaction]:
        # Loads the included modules, which may define reactions.
        len(self._tasks)
        return self._by_name

    @property
    def _sessions(self) -> Sessions:
        return self._producer.sessions

    def define(
        self,
        task: Task[..., Any],
        expression: Expression,
        *,
        name: str | None = None,
        debounce: Duration = 0,
        limit: Duration | None = None,
        at_limit: Literal["drop", "call"] = "drop",
    ) -> None:
        """Register a reaction of a task to an expression.

        Raises:
            InvalidOption: the name is taken, the task does not accept the events, the reactions would call each other
                forever, or the expression is invalid.
        """
        label = name or task.name
        if label in self._by_name:
            raise InvalidOption(f"reaction {label!r} is defined twice; give one of them another name=")
        self._by_name[label] = self.build(
            task, expression, name=label, debounce=debounce, limit=limit, at_limit=at_limit
        )

    def build(
        self,
        task: Task[..., Any],
        expression: Expression,
        *,
        name: str,
        debounce: Duration = 0,
        limit: Duration | None = None,
        at_limit: Literal["drop", "call"] = "drop",
        others: Iterable[Reaction] = (),
    ) -> Reaction:
        """Return a reaction that is not registered.

        Args:
            others: further reactions that must not form a circle with it.

        Raises:
            InvalidOption: as for `define`.
        """
        if not isinstance(expression, Expression):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidOption(
                f"reaction {name!r}: {expression!r} is not a condition: use job(), run(), file(), message(), amqp(), "
                "all_of(), any_of() or at_least() of taskmq.reactions; for a time alone, @app.every or @app.cron"
            )
        if not name.isprintable():
            raise InvalidOption(f"reaction {name!r}: a name must be printable text")
        plan = ReactionPlan(
            _resolve_hashes(expression, name),
            to_ms(parse_duration(debounce, what="debounce")),
            0 if limit is None else to_ms(parse_duration(limit, what="limit")),
            at_limit,
        )
        reaction = Reaction(name, task, plan)
        if limit is not None and (not plan.limit or reaction.is_direct):
            raise InvalidOption(
                f"reaction {name!r}: limit={limit!r}: give more than 0 s, and a condition that waits: all_of(), "
                "at_least(), a time or debounce="
            )
        self._check_arguments(reaction)
        self._check_circle(reaction, others)
        return reaction

    def waiting_for(self, task: str) -> list[tuple[Reaction, int, JobEnds]]:
        """Return the reactions to jobs of this task, each with the number of its condition."""
        return [
            (reaction, number, condition)
            for reaction in self._loaded.values()
            for number, condition in enumerate(reaction.plan.conditions)
            if isinstance(condition, JobEnds) and task in condition.tasks
        ]

    @property
    def awaited_tasks(self) -> set[str]:
        """Tasks whose jobs some reaction waits for.

        Raises:
            InvalidOption: the app does not have one of them.
        """
        known = self._tasks
        found: set[str] = set()
        for reaction in self._by_name.values():
            for condition in reaction.plan.conditions:
                if isinstance(condition, JobEnds):
                    found.update(condition.tasks)
                    if missing := sorted(set(condition.tasks) - known.keys()):
                        raise InvalidOption(
                            f"reaction {reaction.name!r} waits for jobs of {missing[0]!r}, and this app has no such "
                            "task; for events of other apps use a topic exchange and message()"
                        )
        return found

    def check_lanes(self, *, at_beat: bool) -> None:
        """Check that a process without a job store can make the calls of its reactions.

        Args:
            at_beat: check the calls made by a beat; otherwise those that workers make when jobs end.

        Raises:
            UnsupportedFeature: some of the calls go to the store.
        """
        called = [each for each in self.values() if each.needs_beat == at_beat and each.is_submitted]
        if stored := sorted({each.task.name for each in called if at_beat or self._awaits_sent(each)}):
            raise UnsupportedFeature(
                f"reactions call tasks with lane='store', and the app has no store: {', '.join(stored)}"
            )

    def _awaits_sent(self, reaction: Reaction) -> bool:
        """Whether jobs that were sent to the broker can meet a condition; of stored jobs, schedulers see the ends."""
        names = [task for each in reaction.plan.conditions if isinstance(each, JobEnds) for task in each.tasks]
        return not reaction.is_direct or any(
            name not in self._tasks or self._tasks[name].call_plan.lane != "store" for name in names
        )

    async def astatus(self, name: str) -> ReactionStatus:
        """Return the status of a reaction that keeps state.

        Raises:
            ReactionNotFound: there is no reaction of that name.
            StateUnavailable: the state could not be reached.
            UnsupportedFeature: the app has no state.
        """
        if name not in self._loaded:
            raise ReactionNotFound(f"no reaction {name!r}; list them with `taskmq reaction list`")
        schedules = self._producer.sessions.current().stores.schedules
        store = require_store(schedules, "reactions to several events need")
        (pending,) = await read_pending(store, [reaction_record_key(self._app_name, name)])
        return status_of(self._by_name[name], pending)

    status = blocking(astatus)

    def _check_arguments(self, reaction: Reaction) -> None:
        for condition in reaction.plan.conditions:
            sample = _sample(condition)
            try:
                reaction.task.signature.encode(reaction.arguments([sample]), {}, self._producer.content_type)
            except InvalidArguments as error:
                wanted = f"a list of {type(sample).__name__}" if reaction.takes_list else f"a {type(sample).__name__}"
                raise InvalidOption(
                    f"reaction {reaction.name!r}: the task must accept {wanted} as its only argument: {error}"
                ) from error

    def _check_circle(self, reaction: Reaction, others: Iterable[Reaction]) -> None:
        followers: dict[str, set[str]] = {}
        for each in (*self._by_name.values(), *others, reaction):
            # An expression that also needs other events breaks the circle.
            if _each_is_enough(each.plan.expression):
                for condition in each.plan.conditions:
                    for task in condition.tasks if isinstance(condition, JobEnds) else ():
                        followers.setdefault(task, set()).add(each.task.name)
        reached: set[str] = set()
        waiting = [reaction.task.name]
        while waiting:
            for follower in followers.get(waiting.pop(), ()):
                if follower == reaction.task.name:
                    raise InvalidOption(
                        f"reaction {reaction.name!r}: the end of a job of {follower} would start the next one forever"
                    )
                if follower not in reached:
                    reached.add(follower)
                    waiting.append(follower)


def status_of(reaction: Reaction, pending: PendingReaction) -> ReactionStatus:
    """Return the status of a reaction from its record."""
    conditions = reaction.plan.conditions
    return ReactionStatus(
        name=reaction.name,
        # The event may have been recorded for an earlier version of the code.
        received={
            conditions[number].describe(): recorded.event
            for number, recorded in sorted(pending.came.items())
            if number < len(conditions)
        },
        waiting=len(pending.firings),
        fired=pending.fired,
        failed=pending.failed,
        dropped=pending.dropped,
        last=None if pending.last is None else to_datetime(pending.last),
    )


def _each_is_enough(expression: Expression) -> bool:
    match expression:
        case AllOf() | AtLeast():
            return False
        case AnyOf(parts):
            return all(_each_is_enough(part) for part in parts)
        case TimeComes():
            # The last instant has to be recorded.
            return False
        case _:
            return True


def _resolve_hashes(expression: Expression, name: str) -> Expression:
    """Derive `H` in cron expressions from the reaction's name."""
    match expression:
        case AllOf(parts):
            return AllOf(tuple(_resolve_hashes(part, name) for part in parts))
        case AnyOf(parts):
            return AnyOf(tuple(_resolve_hashes(part, name) for part in parts))
        case AtLeast(count, parts):
            return AtLeast(count, tuple(_resolve_hashes(part, name) for part in parts))
        case TimeComes(trigger):
            return replace(expression, trigger=for_schedule(trigger, name))
        case _:
            return expression


def _sample(condition: Condition) -> ReactionEvent:
    match condition:
        case JobEnds(tasks):
            return JobEnded(job_id="1", task=tasks[0], state=JobState.SUCCEEDED.value, finished=_THEN)
        case WorkflowRunEnds(workflow):
            return RunEnded(run_id="1", workflow=workflow, state=RunState.SUCCEEDED.value, finished=_THEN)
        case FileArrives(pattern):
            return FileArrived(path=pattern, size=0, modified=_THEN)
        case MessageComes(patterns):
            return MessageArrived(routing_key=patterns[0], body=b"")
        case QueueMessageComes():
            return MessageArrived(routing_key="", body=b"")
        case TimeComes():
            return TimeCame(instant=_THEN)
