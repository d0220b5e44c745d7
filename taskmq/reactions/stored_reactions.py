"""Reactions that were made at run time: rows in the job store, beside those of schedules.

They wait for ends of stored jobs and of runs. A scheduler delivers these, and submits the calls to the store.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal, cast

import msgspec
from msgspec.structs import replace

from taskmq.contracts.jobs import JobScheduleStore, ScheduleChange, StoredSchedule
from taskmq.contracts.stores import KeptRecord, RecordChange
from taskmq.errors import InvalidOption, ReactionNotFound
from taskmq.model.keys import reaction_record_key
from taskmq.reactions.model.conditions import JobEnds, job, run
from taskmq.reactions.model.expressions import Expression, all_of, any_of, at_least
from taskmq.reactions.pending_store import read_pending
from taskmq.reactions.reactions import Reaction, Reactions, ReactionStatus, status_of
from taskmq.tasks.tasks import Tasks

_log = logging.getLogger("taskmq.scheduler")

# Rows of schedules belong to an app; this is no app's name.
_OWNER: Final = "taskmq.reactions/"
_MOST: Final = 1_000
_DEEPEST: Final = 10


class ReactionRule(msgspec.Struct, frozen=True, kw_only=True):
    """The definition of a stored reaction.

    Attributes:
        task: the task to call, as a stored job.
        when: its condition as data, see `read_expression`.
        debounce, limit, at_limit: as for `@app.on`.
        since: when it was made, ms since the epoch.
    """

    task: str
    when: dict[str, Any]
    debounce: str | float = 0
    limit: str | float | None = None
    at_limit: Literal["drop", "call"] = "drop"
    since: int = 0


def read_expression(data: Mapping[str, Any], *, depth: int = 0) -> Expression:
    """Read a condition from data, such as `{"kind": "job", "tasks": [...], "states": [...]}`, and such data joined.

    The end of a run is `{"kind": "run", "workflow": "...", "states": [...]}`.

    Joined are `parts` by the kinds `all_of`, `any_of` and `at_least`, the last one with a `count`.

    Raises:
        InvalidOption: it is no such condition.
    """
    kind, parts = data.get("kind"), _as_list(data.get("parts"))
    if kind == "job":
        tasks, states = data.get("tasks"), data.get("states", ["succeeded"])
        if _are_texts(tasks) and _are_texts(states):
            return job(*cast("list[str]", tasks), state=cast("list[str]", states))
    elif kind == "run":
        workflow, states = data.get("workflow"), data.get("states", ["succeeded"])
        if isinstance(workflow, str) and _are_texts(states):
            return run(workflow, cast("list[str]", states))
    elif kind in {"all_of", "any_of", "at_least"} and parts is not None and depth < _DEEPEST:
        found = [read_expression(_as_data(part), depth=depth + 1) for part in parts]
        if kind == "all_of":
            return all_of(*found)
        if kind == "any_of":
            return any_of(*found)
        if isinstance(count := data.get("count"), int):
            return at_least(count, *found)
    raise InvalidOption(
        'when: give {"kind": "job", "tasks": [...], "states": [...]}, {"kind": "run", "workflow": "...", '
        '"states": [...]}, or such conditions as "parts" of the kind "all_of", "any_of" or "at_least" '
        '(with a "count")'
    )


class StoredReactions:
    """The stored reactions of an app, and their records."""

    def __init__(self, app_name: str, tasks: Tasks, reactions: Reactions, store: JobScheduleStore) -> None:
        self._app_name = app_name
        self._owner = _OWNER + app_name
        self._tasks = tasks
        self._reactions = reactions
        self._store = store
        # The last ones read, with their definitions: schedulers read all each second.
        self._known: dict[str, tuple[bytes, Reaction | None]] = {}

    async def list_all(self) -> list[Reaction]:
        """Return the app's stored reactions by name, up to 1,000; those that cannot be read are left out."""
        known: dict[str, tuple[bytes, Reaction | None]] = {}
        for row in await self._store.list(self._owner, limit=_MOST):
            definition, reaction = self._known.get(row.name, (None, None))
            known[row.name] = row.definition, reaction if definition == row.definition else self._read_or_log(row)
        self._known = known
        return [reaction for _, reaction in known.values() if reaction is not None]

    async def check(self, name: str, rule: ReactionRule) -> Reaction:
        """Return the reaction that `put` would store; raises the errors of `put`."""
        if name in self._reactions:
            raise InvalidOption(f"reaction {name!r} is defined in the code already")
        # The store takes what follows for the tenant that owns the record.
        if name.startswith("@"):
            raise InvalidOption(f"reaction {name!r}: a name must not begin with @; choose another")
        others = [each for each in await self.list_all() if each.name != name]
        if len(others) >= _MOST:
            raise InvalidOption(f"reaction {name!r}: the app has {_MOST} stored reactions; remove some")
        reaction = self._build(name, rule, others)
        if missing := sorted(_tasks_of(reaction) - self._tasks.keys()):
            raise InvalidOption(f"reaction {name!r}: the app has no task {missing[0]!r}")
        return reaction

    async def put(self, name: str, rule: ReactionRule) -> Reaction:
        """Create or replace a reaction. If its condition stays the same, it keeps its events.

        Raises:
            InvalidOption: the app's code defines a reaction of that name, the name begins with `@`, the app has no
                such task, the task does not accept the events, or the condition is invalid.
        """
        reaction = await self.check(name, rule)
        while True:
            (row,) = await self._store.find(self._owner, [name])
            record = b"" if row is None else row.record
            if row is not None:
                earlier = msgspec.json.decode(row.definition, type=ReactionRule)
                if read_expression(earlier.when) == read_expression(rule.when):
                    rule = replace(rule, since=earlier.since)
            change = ScheduleChange(
                app=self._owner, name=name, before=row, definition=msgspec.json.encode(rule), record=record
            )
            if (await self._store.write([change]))[0]:
                return reaction

    async def remove(self, name: str) -> None:
        """Remove a reaction, with its events.

        Raises:
            InvalidOption: the app's code defines it.
            ReactionNotFound: there is no reaction of that name.
        """
        if name in self._reactions:
            raise InvalidOption(f"reaction {name!r} is defined in the code: remove it there")
        while True:
            row = await self._find(name)
            change = ScheduleChange(app=self._owner, name=name, before=row, is_removed=True)
            if (await self._store.write([change]))[0]:
                return

    async def get(self, name: str) -> Reaction:
        """Return a stored reaction.

        Raises:
            ReactionNotFound: there is none of that name.
            InvalidOption: the app's code does not have its tasks any more.
        """
        return self._read(await self._find(name))

    async def get_rule(self, name: str) -> ReactionRule:
        """Return the definition of a stored reaction, even if the app's code does not have its tasks any more.

        Raises:
            ReactionNotFound: there is none of that name.
        """
        return msgspec.json.decode((await self._find(name)).definition, type=ReactionRule)

    async def status(self, reaction: Reaction) -> ReactionStatus:
        """Return the status of a stored reaction."""
        (pending,) = await read_pending(self, [reaction_record_key(self._app_name, reaction.name)])
        return status_of(reaction, pending)

    async def read(self, names: Sequence[str]) -> list[KeptRecord | None]:
        """See `PendingRecords`."""
        rows = await self._store.find(self._owner, [self._name_of(key) for key in names])
        return [KeptRecord(str(row.version), row.record) if row is not None and row.record else None for row in rows]

    async def swap(self, changes: Sequence[RecordChange], *, ttl: float) -> list[KeptRecord | None]:  # noqa: ARG002 - kept as long as the reaction
        """See `PendingRecords`.

        Raises:
            ReactionNotFound: the reaction was removed.
        """
        return [await self._swap(change) for change in changes]

    async def _swap(self, change: RecordChange) -> KeptRecord | None:
        assert change.after is not None
        row = await self._find(self._name_of(change.name))
        before = str(row.version) if row.record else ""
        if change.before == before:
            written = ScheduleChange(
                app=self._owner, name=row.name, before=row, definition=row.definition, record=change.after.value
            )
            if (await self._store.write([written]))[0]:
                return change.after
            row = await self._find(row.name)
        return KeptRecord(str(row.version), row.record) if row.record else None

    def _name_of(self, key: str) -> str:
        return key.removeprefix(reaction_record_key(self._app_name, ""))

    async def _find(self, name: str) -> StoredSchedule:
        (row,) = await self._store.find(self._owner, [name])
        if row is None:
            raise ReactionNotFound(f"no reaction {name!r}; list them with `taskmq reaction list`")
        return row

    def _read_or_log(self, row: StoredSchedule) -> Reaction | None:
        try:
            return self._read(row)
        except (InvalidOption, msgspec.MsgspecError) as error:
            _log.error("reaction %s: cannot read what the store has, leaving it out: %s", row.name, error)
            return None

    def _read(self, row: StoredSchedule) -> Reaction:
        return self._build(row.name, msgspec.json.decode(row.definition, type=ReactionRule))

    def _build(self, name: str, rule: ReactionRule, others: Iterable[Reaction] = ()) -> Reaction:
        if (task := self._tasks.get(rule.task)) is None:
            raise InvalidOption(f"reaction {name!r}: the app has no task {rule.task!r}")
        expression = read_expression(rule.when)
        reaction = self._reactions.build(
            task,
            expression,
            name=name,
            debounce=rule.debounce,
            limit=rule.limit,
            at_limit=rule.at_limit,
            others=others,
        )
        return replace(reaction, is_dynamic=True, since=rule.since)


def _tasks_of(reaction: Reaction) -> set[str]:
    conditions = reaction.plan.conditions
    return {task for each in conditions if isinstance(each, JobEnds) for task in each.tasks}


def _are_texts(value: object) -> bool:
    texts = _as_list(value)
    return texts is not None and all(isinstance(each, str) for each in texts)


def _as_list(value: object) -> list[object] | None:
    return cast("list[object]", value) if isinstance(value, list) else None


def _as_data(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}
