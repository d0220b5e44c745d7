"""Schedule entries: a task, its arguments, a trigger and a policy; and how runtime schedules are stored."""

import dataclasses
import functools
import hashlib
import re
from collections.abc import Mapping
from datetime import date
from typing import Any, Final, cast

import msgspec
from msgspec.structs import replace

from taskmq.errors import InvalidArguments, InvalidOption, MalformedMessage
from taskmq.middleware.chain import Sending
from taskmq.model.envelope import JSON, Envelope, decode_envelope, encode_envelope
from taskmq.model.jobs.details import JobDetail
from taskmq.model.keys import check_reachable, split_tenant_key, tenant_key
from taskmq.model.runs.graphs import WorkflowContent, encode_workflow
from taskmq.model.topology import DEFAULT_QUEUE
from taskmq.schedules import triggers
from taskmq.schedules.policy import DEFAULT_POLICY, SchedulePolicy, read_policy
from taskmq.schedules.target import StoredWorkflow, read_content, tasks_of
from taskmq.schedules.triggers import Trigger
from taskmq.tasks.definition import define
from taskmq.tasks.job_options import DefinitionOptions
from taskmq.tasks.task import Task

_ADDRESS: Final = re.compile(r" at 0x[0-9a-f]+")


class ScheduleEntry(msgspec.Struct, frozen=True):
    """A recurring call of one task, or start of one workflow.

    Attributes:
        name: unique name; a tenant's begins with the tenant, such as `@acme:nightly`.
        task: the task to call; of a workflow, that of its first step; of a stored one, a stand-in with its name.
        is_dynamic: whether it was added at run time and is stored in the state.
        workflow: the workflow to start instead of the task alone.
        definition, definition_version: the template of the call.
        job_options: options of its jobs besides those of the task or template, as plain JSON values.
    """

    name: str
    task: Task[..., Any]
    trigger: Trigger
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = msgspec.field(default_factory=dict[str, Any])
    policy: SchedulePolicy = DEFAULT_POLICY
    is_dynamic: bool = False
    workflow: WorkflowContent | StoredWorkflow | None = None
    definition: str = ""
    definition_version: int = 0
    job_options: DefinitionOptions = msgspec.field(default_factory=DefinitionOptions)

    @property
    def tenant(self) -> str:
        """Tenant that owns its jobs; "" if the schedule names none."""
        return split_tenant_key(self.name)[0]

    @property
    def starts(self) -> str:
        """Description of what it starts, for people."""
        if self.definition:
            return f"{self.definition} version {self.definition_version} ({self.task.name})"
        if isinstance(self.workflow, StoredWorkflow):
            return f"workflow {self.workflow.name}"
        return self.task.name if self.workflow is None else f"workflow of {', '.join(tasks_of(self.workflow))}"


@functools.lru_cache(maxsize=1_000)
def task_elsewhere(name: str, queue: str) -> Task[..., Any]:
    """Return a stand-in for a task whose code this app lacks: a name, a queue, and any arguments."""

    async def elsewhere(*args: Any, **kwargs: Any) -> None:
        raise InvalidOption(f"task {name} is not defined in this app; called with {args} and {kwargs}")

    return define(elsewhere, {"name": name, "queue": queue})


# The path `/schedules/explain` is taken.
_RESERVED: Final = frozenset({"explain"})


def check_schedule_name(name: str) -> str:
    """Return the tenant in a schedule's name; "" for none.

    Raises:
        InvalidOption: the name is invalid.
    """
    if not name or not name.isprintable():
        raise InvalidOption(f"schedule {name[:80]!r}: a name must be printable text")
    tenant, own = split_tenant_key(name)
    if tenant and (not own or tenant_key(tenant, own) != name):
        meant = tenant_key(tenant, own or "NAME")
        raise InvalidOption(f"schedule {name!r}: write {meant!r} for a schedule of tenant {tenant!r}")
    check_reachable(own if tenant else name, what="schedule", reserved=_RESERVED)
    return tenant


def rule_of(trigger: Trigger) -> str:
    """Return a text that identifies a trigger; equal triggers have the same text in every process."""
    said = _ADDRESS.sub("", f"{type(trigger).__qualname__} {trigger!r}")
    return hashlib.sha256(said.encode()).hexdigest()[:12]


_TYPE: Final = "type"
_DATE: Final = "date"


_NOTHING: Final = msgspec.Raw(b"null")


class _Definition(msgspec.Struct, frozen=True, omit_defaults=True):
    task: str
    trigger: dict[str, Any]
    args: msgspec.Raw = msgspec.Raw(b"[]")
    kwargs: msgspec.Raw = msgspec.Raw(b"{}")
    policy: dict[str, Any] = {}
    workflow: msgspec.Raw = _NOTHING
    stored_workflow: StoredWorkflow | None = None
    # In a job store: the call as submitted, and its queue, so that the scheduler needs no code of the app.
    queue: str = ""
    call: msgspec.Raw = _NOTHING
    detail: JobDetail | None = None
    options: dict[str, Any] = {}


_decoder = msgspec.json.Decoder(_Definition)


def check_arguments(entry: ScheduleEntry, content_type: str) -> None:
    """Check that the task accepts the schedule's arguments.

    Raises:
        InvalidOption: it does not.
    """
    if entry.workflow is not None:
        # The steps were checked when the workflow was planned.
        return
    check_not_unique(entry)
    args, kwargs = entry.args, dict(entry.kwargs)
    try:
        encoded = entry.task.signature.encode(args, kwargs, content_type)
        if entry.is_dynamic:
            entry.task.signature.decode(*encoded, content_type)
        if entry.task.order_key is not None:
            entry.task.order_key.of(args, kwargs)
    except InvalidArguments as error:
        what = "these arguments" if args or kwargs else "without arguments"
        raise InvalidOption(f"schedule {entry.name!r}: the task must run {what}: {error}") from error


def check_not_unique(entry: ScheduleEntry) -> None:
    """Reject a schedule of a task with unique calls.

    Raises:
        InvalidOption: the task has `unique=`.
    """
    if entry.workflow is None and entry.task.plan.unique is not None:
        raise InvalidOption(
            f"schedule {entry.name!r}: task {entry.task.name} has unique=, which would silently drop occurrences: "
            "remove unique=, and set overlap='skip' on the schedule"
        )


def check_without_store(entry: ScheduleEntry) -> None:
    """Reject a schedule that needs a job store, if the app has none.

    Raises:
        InvalidOption: it starts a workflow, or the task has `lane="store"`.
    """
    if entry.workflow is not None:
        raise InvalidOption(
            f"schedule {entry.name!r}: workflows need a store: give the app store='postgresql://...' or, on one "
            "host, store='sqlite:///jobs.db', and run `taskmq scheduler` instead of `taskmq beat`"
        )
    if entry.task.call_plan.lane == "store":
        raise InvalidOption(
            f"schedule {entry.name!r}: task {entry.task.name} has lane='store', but the app has no store, so a beat "
            "would send its calls to the broker: give the app a store and run `taskmq scheduler`, or omit lane="
        )


def write_definition(entry: ScheduleEntry) -> bytes:
    """Encode the definition for the state.

    Raises:
        InvalidOption: its trigger is not one of `taskmq.schedules.triggers`.
        EncodeError: its arguments cannot be encoded as JSON.
    """
    return msgspec.json.encode(_definition(entry, _encode_trigger(entry.trigger, entry.name)))


def write_stored(entry: ScheduleEntry, call: Sending | None) -> bytes:
    """Encode the definition for a job store.

    Omits a custom trigger of a schedule that the code defines: only schedulers of that app fire it.

    Args:
        call: the message of its call; None for a workflow.

    Raises:
        InvalidOption, EncodeError: as `write_definition`.
    """
    try:
        trigger = _encode_trigger(entry.trigger, entry.name)
    except InvalidOption:
        if entry.is_dynamic:
            raise
        trigger = {_TYPE: "", "rule": rule_of(entry.trigger)}
    definition = _definition(entry, trigger)
    if call is not None:
        envelope, made = call.envelope, call.envelope.enqueued or 0
        envelope = replace(
            envelope,
            id="",
            enqueued=0,
            eta=None if envelope.eta is None else envelope.eta - made,
            expires=None if envelope.expires is None else envelope.expires - made,
            root=None,
            parent=None,
        )
        detail = None if call.submission is None else call.submission.detail
        definition = replace(
            definition,
            queue=call.queue,
            call=msgspec.Raw(encode_envelope(envelope)),
            detail=detail,
            options=dict(entry.job_options),
        )
    return msgspec.json.encode(definition)


class StoredRule(msgspec.Struct, frozen=True):
    """Data that a scheduler needs to fire a schedule of a job store.

    Attributes:
        call: a JSON envelope created at the epoch; None for a workflow.
        queue: queue of the call.
        workflow: the workflow to start instead.
    """

    name: str
    trigger: Trigger
    policy: SchedulePolicy
    task: str
    queue: str
    call: Envelope | None
    detail: JobDetail | None
    workflow: WorkflowContent | StoredWorkflow | None


def read_stored(kept: bytes, *, name: str, own: ScheduleEntry | None) -> StoredRule:
    """Decode the schedule that a job store holds under `name`.

    Args:
        own: the entry in this app's code, for custom triggers.

    Raises:
        InvalidOption: it cannot be decoded or started here.
    """
    found = _decode(kept, name)
    if found.trigger.get(_TYPE):
        trigger = cast("Trigger", _decode_value(found.trigger, name))
    elif own is not None and rule_of(own.trigger) == found.trigger.get("rule"):
        trigger = own.trigger
    else:
        raise InvalidOption(f"schedule {name!r}: its trigger is a custom one that this app does not define")
    policy = read_policy(found.policy, schedule=name)
    if (workflow := _workflow_of(found, name)) is not None:
        return StoredRule(name, trigger, policy, found.task, "", None, None, workflow)
    try:
        call = decode_envelope(bytes(found.call))
    except MalformedMessage as error:
        raise InvalidOption(f"schedule {name!r}: its call in the store cannot be read: {error}") from error
    return StoredRule(name, trigger, policy, found.task, found.queue, call, found.detail, None)


def _definition(entry: ScheduleEntry, trigger: dict[str, Any]) -> _Definition:
    policy = entry.policy.as_options()
    if isinstance(entry.workflow, StoredWorkflow):
        return _Definition(entry.task.name, trigger, policy=policy, stored_workflow=entry.workflow)
    if entry.workflow is not None:
        text = msgspec.Raw(encode_workflow(entry.workflow)[1])
        return _Definition(entry.task.name, trigger, policy=policy, workflow=text)
    kwargs = dict(entry.kwargs)
    # Identical in each process that defines it, so that none sees a change.
    signature = entry.task.signature
    raws = signature.canonical(entry.args, kwargs, signature.encode(entry.args, kwargs, JSON), keeps_keys=True)
    return _Definition(entry.task.name, trigger, *raws, policy)


def _workflow_of(found: _Definition, name: str) -> WorkflowContent | StoredWorkflow | None:
    if found.stored_workflow is not None:
        return found.stored_workflow
    return None if found.workflow == _NOTHING else read_content(bytes(found.workflow), schedule=name)


def _decode(kept: bytes, name: str) -> _Definition:
    try:
        return _decoder.decode(kept)
    except msgspec.MsgspecError as error:
        raise InvalidOption(f"schedule {name!r}: its definition cannot be read: {error}") from error


def read_definition(kept: bytes, *, name: str, tasks: Mapping[str, Task[..., Any]]) -> ScheduleEntry:
    """Decode the schedule that the state holds under `name`.

    Raises:
        InvalidOption: this app has no such task, and the definition is none of a job store, which has the whole call;
            or it cannot be read.
    """
    found = _decode(kept, name)
    try:
        args = msgspec.json.decode(found.args, type=list[Any])
        kwargs = msgspec.json.decode(found.kwargs, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise InvalidOption(f"schedule {name!r}: its definition in the state cannot be read: {error}") from error
    workflow = _workflow_of(found, name)
    task = tasks.get(found.task)
    if task is None:
        queue = found.queue or ("" if workflow is None else DEFAULT_QUEUE)
        if not queue:
            raise InvalidOption(f"schedule {name!r}: this app has no task {found.task!r}")
        task = task_elsewhere(found.task, queue)
    trigger = cast("Trigger", _decode_value(found.trigger, name))
    policy = read_policy(found.policy, schedule=name)
    detail = found.detail or JobDetail()
    return ScheduleEntry(
        name,
        task,
        trigger,
        tuple(args),
        kwargs,
        policy,
        is_dynamic=True,
        workflow=workflow,
        definition=detail.definition,
        definition_version=detail.definition_version,
        job_options=cast("DefinitionOptions", found.options),
    )


def _encode_trigger(trigger: object, name: str) -> dict[str, Any]:
    """Return a trigger as data: its class and its arguments."""
    kind = type(trigger)
    if getattr(triggers, kind.__name__, None) is not kind or not dataclasses.is_dataclass(trigger):
        raise InvalidOption(
            f"schedule {name!r}: a trigger of class {kind.__qualname__} cannot be stored; use one of "
            "taskmq.schedules.triggers, or define the schedule in the code"
        )
    facts: dict[str, Any] = {_TYPE: kind.__name__}
    for field in dataclasses.fields(trigger):
        if field.init:
            facts[field.name] = _encode_value(getattr(trigger, field.name), name)
    return facts


def _encode_value(value: object, name: str) -> Any:
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, date):
        return {_DATE: value.isoformat()}
    if isinstance(value, tuple | list | set | frozenset):
        return [_encode_value(each, name) for each in cast("list[object]", value)]
    return _encode_trigger(value, name)


def _decode_value(data: object, name: str) -> Any:
    if isinstance(data, list):
        return tuple(_decode_value(each, name) for each in cast("list[object]", data))
    if not isinstance(data, dict):
        return data
    facts = cast("dict[str, Any]", data)
    if _DATE in facts:
        return date.fromisoformat(facts[_DATE])
    kind = getattr(triggers, str(facts.get(_TYPE)), None)
    if not isinstance(kind, type) or not dataclasses.is_dataclass(kind):
        raise InvalidOption(f"schedule {name!r}: this taskmq has no trigger {facts.get(_TYPE)!r}")
    known = {field.name for field in dataclasses.fields(kind)}
    given = {key: _decode_value(value, name) for key, value in facts.items() if key != _TYPE}
    if unknown := given.keys() - known:
        raise InvalidOption(f"schedule {name!r}: this taskmq's {kind.__name__} knows no {sorted(unknown)}")
    return kind(**given)
