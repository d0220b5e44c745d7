"""Schedules in workflow files: each belongs to the current version of its workflow, and has the workflow's name."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, cast

import msgspec

from taskmq.api.schedules import ScheduleFields, ScheduleRule
from taskmq.app import TaskMQ
from taskmq.contracts.jobs import StoredSchedule
from taskmq.errors import InvalidOption
from taskmq.model.keys import tenant_key
from taskmq.model.runs.graphs import WorkflowContent
from taskmq.model.runs.validation import WorkflowFault, find_wrong_parameter
from taskmq.model.topology import DEFAULT_QUEUE
from taskmq.operations.schedule_facts import build_trigger
from taskmq.schedules import ScheduleOptions
from taskmq.schedules.definition import ScheduleEntry, check_schedule_name, read_definition, task_elsewhere
from taskmq.schedules.policy import SchedulePolicy, read_policy
from taskmq.schedules.store_records import StoredRecords
from taskmq.schedules.target import StoredWorkflow, tasks_of
from taskmq.schedules.triggers import Trigger

SCHEDULE: Final = "schedule"
"""Word of a file for the schedule that starts the workflow."""

_RULE_FIELDS: Final = ScheduleRule.__struct_fields__


class FileSchedule(ScheduleFields, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The schedule in a workflow file.

    Attributes:
        params: parameters of its runs; those with a default may be omitted.
    """

    params: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])


def find_schedule_faults(raw: Any, params: Mapping[str, Mapping[str, Any]]) -> list[WorkflowFault]:
    """Return the faults of the schedule in a file.

    Args:
        params: JSON Schema of each parameter of the workflow.
    """
    try:
        fields = msgspec.convert(raw, FileSchedule)
    except msgspec.ValidationError as error:
        message, _, where = str(error).partition(" - at `$")
        return [WorkflowFault("", SCHEDULE + where.strip("`"), message)]
    if fields.job is not None:
        return [WorkflowFault("", f"{SCHEDULE}.job", "a step has the options of its jobs")]
    try:
        _read_rule(fields, SCHEDULE)
    except InvalidOption as error:
        return [WorkflowFault("", SCHEDULE, str(error).removeprefix(f"schedule {SCHEDULE!r}: "))]
    if wrong := find_wrong_parameter(params, fields.params):
        return [WorkflowFault("", f"{SCHEDULE}.params", wrong)]
    return []


class FileScheduleChange(NamedTuple):
    """A change of the schedule of one workflow.

    Attributes:
        name: its full name, with the tenant.
        before, after: its definitions; None: it does not exist.
    """

    name: str
    before: bytes | None
    after: bytes | None


class FileSchedules:
    """The schedules of an app that workflow files made.

    Args:
        tenant: tenant of the workflows; "" for none.
    """

    def __init__(self, app: TaskMQ, tenant: str) -> None:
        self._app = app
        self._tenant = tenant
        self._store = app.sessions.store()
        self._records = StoredRecords(self._store, app.name, app.producer)

    async def find_change(self, content: WorkflowContent) -> FileScheduleChange | None:
        """Return the change that gives a workflow the schedule of this content; None if it has that one.

        Raises:
            InvalidOption: a schedule of this name exists that no workflow file made.
        """
        name = tenant_key(self._tenant or None, content.workflow)
        (row,) = await self._store.schedules.find(self._app.name, [name])
        is_of_file = row is not None and self._is_of_file(row)
        if content.schedule is None:
            return FileScheduleChange(name, row.definition, None) if row is not None and is_of_file else None
        if name in self._app.schedules or (row is not None and not is_of_file):
            raise InvalidOption(
                f"workflow {content.workflow}: a schedule {name!r} exists that no workflow file made: remove it first"
            )
        after = self._encode(name, content)
        before = None if row is None else row.definition
        return None if after == before else FileScheduleChange(name, before, after)

    async def write(self, content: WorkflowContent) -> None:
        """Create, change or remove the schedule of a workflow, so that it is the one of this content.

        Raises:
            InvalidOption: as `find_change`.
        """
        while (change := await self.find_change(content)) is not None:
            if await self._records.define(change.name, before=change.before, after=change.after):
                return

    def _is_of_file(self, row: StoredSchedule) -> bool:
        if row.is_code:
            return False
        try:
            entry = read_definition(row.definition, name=row.name, tasks=self._app.tasks)
        except InvalidOption:
            # It calls a task whose code is elsewhere.
            return False
        return isinstance(entry.workflow, StoredWorkflow)

    def _encode(self, name: str, content: WorkflowContent) -> bytes:
        check_schedule_name(name)
        fields = msgspec.convert(content.schedule, FileSchedule)
        trigger, policy = _read_rule(fields, name)
        workflow = StoredWorkflow(content.workflow, fields.params, tuple(tasks_of(content)))
        stand_in = task_elsewhere(content.workflow, DEFAULT_QUEUE)
        return self._records.encode(
            ScheduleEntry(name, stand_in, trigger, policy=policy, is_dynamic=True, workflow=workflow)
        )


def _read_rule(fields: FileSchedule, schedule: str) -> tuple[Trigger, SchedulePolicy]:
    """Return the trigger and the policy of a schedule.

    Raises:
        InvalidOption: they are invalid.
    """
    given = {word: value for word in fields.__struct_fields__ if (value := getattr(fields, word)) is not None}
    trigger = build_trigger({word: value for word, value in given.items() if word in _RULE_FIELDS})
    policy = {word: value for word, value in given.items() if word in ScheduleOptions.__annotations__}
    return trigger, read_policy(cast("Any", policy), schedule=schedule)
