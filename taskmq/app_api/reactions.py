"""Reactions: list, show, put and remove."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec

from taskmq.api.schedules import PutReactionBody, ReactionConditionView, ReactionLine, ReactionList, ReactionView
from taskmq.app_api.caller import AppCalls
from taskmq.errors import InvalidOption, NotPermitted, ReactionNotFound, UnsupportedFeature
from taskmq.model.identity import Permission
from taskmq.operations.schedule_facts import instant_text, plain_rule
from taskmq.reactions import (
    AllOf,
    AnyOf,
    AtLeast,
    Expression,
    FileArrives,
    JobEnds,
    MessageComes,
    QueueMessageComes,
    Reaction,
    ReactionRule,
    ReactionStatus,
    StoredReactions,
    TimeComes,
    WorkflowRunEnds,
)

_ALL = 1_000_000
_COUNTS = ("waiting", "fired", "failed", "dropped")


class AppReactions(AppCalls):
    """The app's reactions. They belong to no tenant, so a caller of one sees none."""

    async def get(self, name: str) -> ReactionView:
        """Return a reaction, what it waits for, and its calls.

        Raises:
            ReactionNotFound: no reaction has the name, or a tenant is selected.
            StateUnavailable: the state could not be reached.
        """
        reaction = self._own[name] if name in self._own else await self._open_seen(name).get(name)
        status = await self._status(reaction)
        shows_events = self._caller.may(Permission.JOBS_READ, None)
        received = {} if status is None else status.received
        words = [condition.describe() for condition in reaction.plan.conditions]
        counts: dict[str, Any] = {each: None if status is None else getattr(status, each) for each in _COUNTS}
        return ReactionView(
            **msgspec.structs.asdict(reaction_line(self._app.name, reaction)),
            conditions=[
                ReactionConditionView(
                    condition=each,
                    is_met=each in received,
                    event=msgspec.to_builtins(received[each]) if shows_events and each in received else None,
                )
                for each in words
            ],
            **counts,
            last=None if status is None or status.last is None else instant_text(status.last),
        )

    async def page(self, prefix: str = "", *, limit: int = 50, cursor: str | None = None) -> ReactionList:
        found = self._own | {each.name: each for each in await self._list_stored()}
        names = sorted(name for name in found if name.startswith(prefix) and name > (cursor or ""))
        shown = [reaction_line(self._app.name, found[name]) for name in names[:limit]]
        return ReactionList(shown, shown[-1].name if len(names) > limit else None)

    async def has(self, name: str) -> bool:
        """Whether a reaction has the name."""
        return name in self._own or await self._find_rule(name) is not None

    async def put(self, name: str, body: PutReactionBody) -> ReactionView:
        """Create or replace a reaction to ends of stored jobs or runs. With an equal condition it keeps its events.

        Raises:
            InvalidOption: it is defined in code, or it is invalid.
            NotPermitted: the caller has a tenant, or may not call the task or that of the replaced reaction.
            UnsupportedFeature: the app has no job store.
        """
        stored = self._open_stored()
        self._check_caller(body.task)
        if (replaced := await self._find_rule(name)) is not None:
            self._check_caller(replaced.task)
        rule = ReactionRule(
            task=body.task,
            when=body.when,
            debounce=body.debounce or 0,
            limit=body.limit,
            at_limit=body.at_limit,
            since=await self._app.sessions.store().now_ms(),
        )
        reaction = await stored.check(name, rule)
        after = {"task": body.task, "rule": reaction.describe()}
        await self._caller.note_action(self._app, "reaction.put", subject=name, after=after)
        await stored.put(name, rule)
        return await self.get(name)

    async def remove(self, name: str) -> None:
        """Remove a reaction created at run time, with its events. Jobs it started continue.

        Raises:
            ReactionNotFound: no reaction has the name, or a tenant is selected.
            InvalidOption: it is defined in code.
            NotPermitted: the caller may not call its task.
        """
        if name in self._own:
            raise InvalidOption(f"reaction {name!r} is defined in the code: remove it there")
        stored = self._open_seen(name)
        self._check_caller((await stored.get_rule(name)).task)
        await self._caller.note_action(self._app, "reaction.remove", subject=name)
        await stored.remove(name)

    async def list(self, prefix: str = "") -> AsyncIterator[ReactionLine]:
        for line in (await self.page(prefix, limit=_ALL)).items:
            yield line

    @property
    def _own(self) -> dict[str, Reaction]:
        return {} if self._caller.tenant else dict(self._app.reactions)

    def _open_stored(self) -> StoredReactions:
        if self._app.sessions.store_url is None:
            raise UnsupportedFeature("reactions made at run time need a job store: TaskMQ(..., store=...)")
        app = self._app
        return StoredReactions(app.name, app.tasks, app.reactions, app.sessions.store().schedules)

    async def _list_stored(self) -> Sequence[Reaction]:
        has_any = not self._caller.tenant and self._app.sessions.store_url is not None
        return await self._open_stored().list_all() if has_any else ()

    def _open_seen(self, name: str) -> StoredReactions:
        """Return the stored reactions that the caller sees; raise `ReactionNotFound` if there cannot be one."""
        if self._caller.tenant or self._app.sessions.store_url is None:
            raise ReactionNotFound(f"no reaction {name!r}; list them with `taskmq reaction list`")
        return self._open_stored()

    async def _find_rule(self, name: str) -> ReactionRule | None:
        try:
            return await self._open_seen(name).get_rule(name)
        except ReactionNotFound:
            return None

    def _check_caller(self, task: str) -> None:
        if self._caller.tenant:
            raise NotPermitted("reactions belong to no tenant, so only a role on the instance may change them")
        self._check_permission(task)

    async def _status(self, reaction: Reaction) -> ReactionStatus | None:
        if reaction.is_direct:
            return None
        if reaction.is_dynamic:
            return await self._open_stored().status(reaction)
        try:
            return await self._app.reactions.astatus(reaction.name)
        except UnsupportedFeature:
            return None


def reaction_line(app: str, reaction: Reaction) -> ReactionLine:
    """Build the line of a reaction in a list."""
    plan = reaction.plan
    queues = [reaction.queue_of(app, number) for number in range(len(plan.conditions))]
    return ReactionLine(
        name=reaction.name,
        starts=reaction.task.name,
        rule=reaction.describe(),
        when=_to_data(plan.expression),
        debounce=plan.debounce / 1000,
        limit=plan.limit / 1000 if plan.limit else None,
        at_limit=plan.at_limit,
        is_dynamic=reaction.is_dynamic,
        seen_by="scheduler" if reaction.needs_scheduler else "beat" if reaction.needs_beat else "worker",
        queues=[queue for queue in queues if queue],
    )


def _to_data(expression: Expression) -> dict[str, Any]:
    """Return an expression as plain data, without the password of a broker."""
    match expression:
        case AllOf(parts):
            return {"kind": "all_of", "parts": [_to_data(part) for part in parts]}
        case AnyOf(parts):
            return {"kind": "any_of", "parts": [_to_data(part) for part in parts]}
        case AtLeast(count, parts):
            return {"kind": "at_least", "count": count, "parts": [_to_data(part) for part in parts]}
        case JobEnds(tasks, states):
            return {"kind": "job", "tasks": [*tasks], "states": [state.value for state in states]}
        case WorkflowRunEnds(workflow, states):
            return {"kind": "run", "workflow": workflow, "states": [state.value for state in states]}
        case FileArrives(pattern, done, stable):
            return {"kind": "file", "pattern": pattern, "done": done, "stable": stable / 1000}
        case MessageComes(patterns, exchange):
            return {"kind": "message", "patterns": [*patterns], "exchange": exchange}
        case QueueMessageComes(url, queue, exchange, keys, prefetch):
            return {
                "kind": "amqp",
                "url": None if url is None else url.address,
                "queue": queue,
                "exchange": exchange,
                "keys": [*keys],
                "prefetch": prefetch,
            }
        case TimeComes(trigger):
            return {"kind": "time", "means": trigger.describe(), **plain_rule(trigger)}
