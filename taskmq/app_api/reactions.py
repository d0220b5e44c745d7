"""Reactions: list and show."""

from collections.abc import AsyncIterator
from typing import Any

import msgspec

from taskmq.api.schedules import ReactionConditionView, ReactionLine, ReactionList, ReactionView
from taskmq.app_api.caller import AppCalls
from taskmq.errors import ReactionNotFound, UnsupportedFeature
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
    ReactionStatus,
    TimeComes,
)

__all__ = ["AppReactions", "reaction_line"]

_COUNTS = ("waiting", "fired", "failed", "dropped")


class AppReactions(AppCalls):
    """The app's reactions. They belong to no tenant, so a caller of one sees none."""

    async def get(self, name: str) -> ReactionView:
        """Return a reaction, what it waits for, and its calls.

        Raises:
            ReactionNotFound: no reaction has the name, or a tenant is selected.
            StateUnavailable: the state could not be reached.
        """
        if name not in self._own:
            raise ReactionNotFound(f"no reaction {name!r}; list them with `taskmq reaction list`")
        reaction = self._own[name]
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
        """Return a page of the reactions whose names have this prefix."""
        names = sorted(name for name in self._own if name.startswith(prefix) and name > (cursor or ""))
        shown = [reaction_line(self._app.name, self._own[name]) for name in names[:limit]]
        return ReactionList(shown, shown[-1].name if len(names) > limit else None)

    async def list(self, prefix: str = "") -> AsyncIterator[ReactionLine]:
        """Iterate over the reactions with this prefix, ordered by name."""
        for line in (await self.page(prefix, limit=len(self._own))).items:
            yield line

    @property
    def _own(self) -> dict[str, Reaction]:
        return {} if self._caller.tenant else dict(self._app.reactions)

    async def _status(self, reaction: Reaction) -> ReactionStatus | None:
        if reaction.is_direct:
            return None
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
        is_dynamic=False,
        seen_by="beat" if reaction.needs_beat else "worker",
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
