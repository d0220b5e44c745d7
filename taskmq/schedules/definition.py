"""A schedule: a task, its arguments, when, and what if not; its form in the state where it was made at run time."""

import dataclasses
import functools
import hashlib
import re
from collections.abc import Collection, Mapping
from datetime import date
from typing import Any, Final, cast

import msgspec
from msgspec.structs import replace

from taskmq.contracts.jobs import JobDetail
from taskmq.errors import InvalidArguments, InvalidOption, MalformedMessage
from taskmq.middleware.chain import Sending
from taskmq.model.envelope import JSON, Envelope, decode_envelope, encode_envelope
from taskmq.model.keys import check_reachable, split_tenant_key, tenant_key
from taskmq.schedules import triggers
from taskmq.schedules.policy import DEFAULT_POLICY, SchedulePolicy, read_policy
from taskmq.schedules.target import read_graph, tasks_of, write_graph
from taskmq.schedules.triggers import Trigger
from taskmq.tasks.definition import define
from taskmq.tasks.task import Task
from taskmq.workflow.model.calls import Graph

__all__ = [
    "ScheduleEntry",
    "StoredRule",
    "check_arguments",
    "check_not_unique",
    "check_schedule_name",
    "check_without_store",
    "read_definition",
    "read_stored",
    "rule_of",
    "task_elsewhere",
    "write_definition",
    "write_stored",
]

_ADDRESS: Final = re.compile(r" at 0x[0-9a-f]+")


class ScheduleEntry(msgspec.Struct, frozen=True):
    """A recurring call of one task, or start of one workflow.

    Attributes:
        name: one of a tenant begins with the tenant, such as `@acme:nightly`.
        task: that is called; of a workflow, the one of its first step.
        is_dynamic: whether it was made at run time, and is kept in the state.
        workflow: what is started instead of the task alone.
        definition, definition_version: the template that the call was made from.
    """

    name: str
    task: Task[..., Any]
    trigger: Trigger
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = msgspec.field(default_factory=dict[str, Any])
    policy: SchedulePolicy = DEFAULT_POLICY
    is_dynamic: bool = False
    workflow: Graph | None = None
    definition: str = ""
    definition_version: int = 0

    @property
    def tenant(self) -> str:
        """Whom its jobs belong to; "" where it does not say."""
        return split_tenant_key(self.name)[0]

    @property
    def starts(self) -> str:
        """What it starts, for people."""
        if self.definition:
            return f"{self.definition} version {self.definition_version} ({self.task.name})"
        return self.task.name if self.workflow is None else f"workflow of {', '.join(tasks_of(self.workflow))}"


@functools.lru_cache(maxsize=1_000)
def task_elsewhere(name: str, queue: str) -> Task[..., Any]:
    """Replaces a task whose code this app does not have: a name, a queue, and any arguments."""

    async def elsewhere(*args: Any, **kwargs: Any) -> None:
        raise InvalidOption(f"task {name}: its code is not here, for {args} and {kwargs}")

    return define(elsewhere, {"name": name, "queue": queue})


# `/schedules/explain` is a path of its own.
_RESERVED: Final = frozenset({"explain"})


def check_schedule_name(name: str) -> str:
    """The tenant of the schedule of that name; "" for none.

    Raises:
        InvalidOption: it is no name.
    """
    if not name or not name.isprintable():
        raise InvalidOption(f"schedule {name!r}: a name is a text that can be printed")
    tenant, own = split_tenant_key(name)
    if tenant and (not own or tenant_key(tenant, own) != name):
        meant = tenant_key(tenant, own or "NAME")
        raise InvalidOption(f"schedule {name!r}: a name of tenant {tenant!r} is written {meant!r}")
    check_reachable(own if tenant else name, what="schedule", reserved=_RESERVED)
    return tenant


def rule_of(trigger: Trigger) -> str:
    """Tells a trigger from others: equal ones have the same, in every process."""
    said = _ADDRESS.sub("", f"{type(trigger).__qualname__} {trigger!r}")
    return hashlib.sha256(said.encode()).hexdigest()[:12]


_TYPE: Final = "type"
_DATE: Final = "date"


class _Definition(msgspec.Struct, frozen=True, omit_defaults=True):
    task: str
    trigger: dict[str, Any]
    args: msgspec.Raw = msgspec.Raw(b"[]")
    kwargs: msgspec.Raw = msgspec.Raw(b"{}")
    policy: dict[str, Any] = {}
    workflow: bytes = b""
    # In a job store: the call as it is submitted, and to which queue. So the scheduler needs no code of the app.
    queue: str = ""
    call: msgspec.Raw = msgspec.Raw(b"null")
    detail: JobDetail | None = None


_decoder = msgspec.json.Decoder(_Definition)


def check_arguments(entry: ScheduleEntry, content_type: str) -> None:
    """Refuse what the task cannot be called with.

    Raises:
        InvalidOption: it cannot.
    """
    if entry.workflow is not None:
        # Its steps were checked when it was compiled.
        if entry.policy.overlap != "allow":
            raise InvalidOption(
                f"schedule {entry.name!r}: overlap={entry.policy.overlap!r} is for tasks: no process counts how many "
                "workflows of a schedule run"
            )
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
    """Refuse a schedule of a task whose calls are unique.

    Raises:
        InvalidOption: its task says so.
    """
    if entry.workflow is None and entry.task.plan.unique is not None:
        raise InvalidOption(
            f"schedule {entry.name!r}: task {entry.task.name} has unique=, by which its occurrences would be dropped "
            "unseen: leave it out, and say overlap='skip' of the schedule"
        )


def check_without_store(entry: ScheduleEntry) -> None:
    """Refuse a schedule whose calls go to the job store, of an app that has none.

    Raises:
        InvalidOption: its task says so.
    """
    if entry.workflow is None and entry.task.call_plan.lane == "store":
        raise InvalidOption(
            f"schedule {entry.name!r}: task {entry.task.name} has lane='store', and the app has no store, so a beat "
            "would send its calls to the broker: give the app a store and run `taskmq scheduler`, or leave lane= out"
        )


def write_definition(entry: ScheduleEntry) -> bytes:
    """The definition as it is kept.

    Raises:
        InvalidOption: its trigger is none of `taskmq.schedules.triggers`.
        EncodeError: its arguments have no form as JSON.
    """
    return msgspec.json.encode(_definition(entry, _plain(entry.trigger, entry.name)))


def write_stored(entry: ScheduleEntry, call: Sending | None) -> bytes:
    """The definition as a job store keeps it.

    A trigger of the app's own is not in it, where the code defines the schedule: only schedulers of that app fire it.

    Args:
        call: the message of its call; None of a workflow.

    Raises:
        InvalidOption, EncodeError: as `write_definition`.
    """
    try:
        trigger = _plain(entry.trigger, entry.name)
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
        definition = replace(definition, queue=call.queue, call=msgspec.Raw(encode_envelope(envelope)), detail=detail)
    return msgspec.json.encode(definition)


class StoredRule(msgspec.Struct, frozen=True):
    """What a scheduler has to know to fire a schedule of a job store.

    Attributes:
        call: an envelope that was made at the epoch, in JSON; None of a workflow.
        queue: that the call goes to.
        detail: of its jobs.
        workflow: what is started instead.
    """

    name: str
    trigger: Trigger
    policy: SchedulePolicy
    task: str
    queue: str
    call: Envelope | None
    detail: JobDetail | None
    workflow: Graph | None


def read_stored(kept: bytes, *, name: str, own: ScheduleEntry | None, tasks: Collection[str]) -> StoredRule:
    """The schedule that a job store keeps under `name`.

    Args:
        own: what the code of this app says of it, for triggers that are the app's own.
        tasks: of this app, for workflows.

    Raises:
        InvalidOption: it cannot be read, or started, here.
    """
    found = _decoded(kept, name)
    if found.trigger.get(_TYPE):
        trigger = cast("Trigger", _value(found.trigger, name))
    elif own is not None and rule_of(own.trigger) == found.trigger.get("rule"):
        trigger = own.trigger
    else:
        raise InvalidOption(f"schedule {name!r}: its trigger is one of the app's own, and this app's code lacks it")
    policy = read_policy(found.policy, schedule=name)
    if found.workflow:
        workflow = read_graph(found.workflow, schedule=name, known=tasks)
        return StoredRule(name, trigger, policy, tasks_of(workflow)[0], "", None, None, workflow)
    try:
        call = decode_envelope(bytes(found.call))
    except MalformedMessage as error:
        raise InvalidOption(f"schedule {name!r}: its call in the store cannot be read: {error}") from error
    return StoredRule(name, trigger, policy, found.task, found.queue, call, found.detail, None)


def _definition(entry: ScheduleEntry, trigger: dict[str, Any]) -> _Definition:
    policy = entry.policy.as_options()
    if entry.workflow is not None:
        # Without a task, so that a beat which knows no workflows here leaves it to others.
        return _Definition("", trigger, policy=policy, workflow=write_graph(entry.workflow))
    kwargs = dict(entry.kwargs)
    # The same in each process that defines it, so that none sees a change where there is none.
    signature = entry.task.signature
    raws = signature.canonical(entry.args, kwargs, signature.encode(entry.args, kwargs, JSON), keeps_keys=True)
    return _Definition(entry.task.name, trigger, *raws, policy)


def _decoded(kept: bytes, name: str) -> _Definition:
    try:
        return _decoder.decode(kept)
    except msgspec.MsgspecError as error:
        raise InvalidOption(f"schedule {name!r}: its definition cannot be read: {error}") from error


def read_definition(kept: bytes, *, name: str, tasks: Mapping[str, Task[..., Any]]) -> ScheduleEntry:
    """The schedule that is kept under `name`.

    Raises:
        InvalidOption: this app has no such task, and the definition is none of a job store, which has the whole call;
            or it cannot be read.
    """
    found = _decoded(kept, name)
    try:
        args = msgspec.json.decode(found.args, type=list[Any])
        kwargs = msgspec.json.decode(found.kwargs, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise InvalidOption(f"schedule {name!r}: its definition in the state cannot be read: {error}") from error
    workflow = read_graph(found.workflow, schedule=name, known=tasks) if found.workflow else None
    task = tasks.get(found.task if workflow is None else tasks_of(workflow)[0])
    if task is None:
        if not found.queue:
            raise InvalidOption(f"schedule {name!r}: this app has no task {found.task!r}")
        task = task_elsewhere(found.task, found.queue)
    trigger = cast("Trigger", _value(found.trigger, name))
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
    )


def _plain(trigger: object, name: str) -> dict[str, Any]:
    """A trigger as data: its class, and what it was made of."""
    kind = type(trigger)
    if getattr(triggers, kind.__name__, None) is not kind or not dataclasses.is_dataclass(trigger):
        raise InvalidOption(
            f"schedule {name!r}: a trigger of class {kind.__qualname__} cannot be kept in the state; use one of "
            "taskmq.schedules.triggers, or define the schedule in the code"
        )
    facts: dict[str, Any] = {_TYPE: kind.__name__}
    for field in dataclasses.fields(trigger):
        if field.init:
            facts[field.name] = _plain_value(getattr(trigger, field.name), name)
    return facts


def _plain_value(value: object, name: str) -> Any:
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, date):
        return {_DATE: value.isoformat()}
    if isinstance(value, tuple | list | set | frozenset):
        return [_plain_value(each, name) for each in cast("list[object]", value)]
    return _plain(value, name)


def _value(data: object, name: str) -> Any:
    if isinstance(data, list):
        return tuple(_value(each, name) for each in cast("list[object]", data))
    if not isinstance(data, dict):
        return data
    facts = cast("dict[str, Any]", data)
    if _DATE in facts:
        return date.fromisoformat(facts[_DATE])
    kind = getattr(triggers, str(facts.get(_TYPE)), None)
    if not isinstance(kind, type) or not dataclasses.is_dataclass(kind):
        raise InvalidOption(f"schedule {name!r}: this taskmq has no trigger {facts.get(_TYPE)!r}")
    known = {field.name for field in dataclasses.fields(kind)}
    given = {key: _value(value, name) for key, value in facts.items() if key != _TYPE}
    if unknown := given.keys() - known:
        raise InvalidOption(f"schedule {name!r}: this taskmq's {kind.__name__} knows no {sorted(unknown)}")
    return kind(**given)
