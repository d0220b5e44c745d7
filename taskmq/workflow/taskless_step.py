"""Steps that run no task: waits for signals, sleeps, and other workflows."""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, Literal, ParamSpec, TypeVar, overload

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from taskmq.errors import InvalidOption
from taskmq.model.envelope import JSON
from taskmq.model.identity import check_answerer
from taskmq.model.jobs.call_schemas import schema_of
from taskmq.model.runs.graphs import StepContent
from taskmq.model.units import Duration, parse_duration
from taskmq.model.values.return_type import PLAIN, ReturnType
from taskmq.workflow.model.contents import ContentBuilder, escape
from taskmq.workflow.named_workflow import NamedWorkflow
from taskmq.workflow.parts import Workflow
from taskmq.workflow.shapes import Shape
from taskmq.workflow.step_call import Rule, StepTask, check_condition

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")

_NO_NAME: Final = re.compile(r"[^A-Za-z0-9_-]")


class TasklessStep(Workflow[R_co]):
    """A step that waits or runs another workflow.

    Attributes:
        label: its name, unless an earlier step has it.
        shape: type of its value.
    """

    __slots__ = ("_task", "content", "label", "shape")

    def __init__(self, label: str, content: StepContent, shape: Shape, *, task: StepTask | None = None) -> None:
        self.label: str = _NO_NAME.sub("_", label)
        self.content: StepContent = content
        self.shape: Shape = shape
        self._task = task

    def first_task(self) -> StepTask | None:
        return self._task

    def add_to(
        self,
        builder: ContentBuilder,
        before: Sequence[Any],
        *,
        named: Mapping[str, Any] | None = None,
        rule: Rule = "all",
    ) -> Any:
        return builder.add(self.label, self.content, self.shape, before, named=named, rule=rule)

    def when(self, condition: str) -> "TasklessStep[R_co]":
        """The same step, which is skipped unless a condition is met, such as `steps.check.result > 3`.

        Raises:
            InvalidOption: the condition cannot be parsed.
        """
        content = replace(self.content, condition=check_condition(condition))
        return TasklessStep(self.label, content, self.shape, task=self._task)


@overload
def wait(
    signal: str,
    form: type[T],
    *,
    timeout: Duration | None = None,
    on_timeout: Literal["fail", "skip"] = "fail",
    default: T | UnsetType = UNSET,
    roles: Sequence[str] = (),
    name: str | None = None,
) -> TasklessStep[T]: ...
@overload
def wait(
    signal: str,
    form: Mapping[str, Any] | None = None,
    *,
    timeout: Duration | None = None,
    on_timeout: Literal["fail", "skip"] = "fail",
    default: Any = UNSET,
    roles: Sequence[str] = (),
    name: str | None = None,
) -> TasklessStep[Any]: ...
def wait(
    signal: str,
    form: Any = None,
    *,
    timeout: Duration | None = None,
    on_timeout: Literal["fail", "skip"] = "fail",
    default: Any = UNSET,
    roles: Sequence[str] = (),
    name: str | None = None,
) -> TasklessStep[Any]:
    """Create a step that waits for a signal, without a worker; its value is the signal's.

    Args:
        signal: name of the signal.
        form: type of the signal's value, or its JSON Schema; None: any value.
        timeout: how long it waits; None: without limit.
        on_timeout: whether it fails or is skipped without a signal in time.
        default: its value without a signal in time, instead.
        roles: roles that may send the signal, and groups as `group:NAME`; none: anyone.
        name: name of the step. Default: that of the signal.

    Raises:
        InvalidOption: an option is invalid.
        EncodeError: the default does not fit the form.
    """
    if not signal:
        raise InvalidOption("wait(''): give the name of a signal")
    for role in roles:
        try:
            check_answerer(role)
        except InvalidOption as error:
            raise InvalidOption(f"wait({signal!r}): {error}") from None
    if timeout is None and (on_timeout != "fail" or default is not UNSET):
        raise InvalidOption(f"wait({signal!r}): on_timeout= and default= need a timeout=")
    shape, schema = PLAIN, form
    if form is not None and not isinstance(form, Mapping):
        shape, schema = ReturnType(form), schema_of(form) or None
    end: Any = on_timeout
    if default is not UNSET:
        end = {"value": msgspec.json.decode(shape.encode(default, JSON))}
    content = StepContent(
        wait=signal,
        form=None if schema is None else dict(schema),
        roles=tuple(roles),
        timeout=None if timeout is None else _plain(timeout, "timeout"),
        on_timeout=end,
    )
    return TasklessStep(name or signal, content, shape)


def sleep(until: Duration | datetime, *, name: str = "sleep") -> TasklessStep[None]:
    """Create a step that waits for a duration or until an instant, without a worker; its value is None.

    Raises:
        InvalidOption: it is no duration, or the instant has no time zone.
    """
    if isinstance(until, datetime):
        if until.tzinfo is None:
            raise InvalidOption(f"sleep({until!r}): a datetime with a time zone, for example datetime.now(UTC)")
        return TasklessStep(name, StepContent(sleep=until.isoformat()), PLAIN)
    return TasklessStep(name, StepContent(sleep=_plain(until, "sleep")), PLAIN)


@overload
def subworkflow(workflow: NamedWorkflow[P, R_co], /, *args: P.args, **kwargs: P.kwargs) -> TasklessStep[R_co]: ...
@overload
def subworkflow(workflow: str, /, **params: Any) -> TasklessStep[Any]: ...
def subworkflow(workflow: Any, /, *args: Any, **kwargs: Any) -> TasklessStep[Any]:
    """Create a step that runs a stored workflow and waits for it; its value is that of the run.

    Args:
        workflow: a named workflow of this code, or the name of any.

    Raises:
        InvalidArguments, EncodeError: the parameters do not fit.
    """
    shape: Shape = PLAIN
    task: StepTask | None = None
    if isinstance(workflow, str):
        name = workflow
        params = {param: msgspec.Raw(PLAIN.encode(value, JSON)) for param, value in kwargs.items()}
    else:
        named: NamedWorkflow[..., Any] = workflow
        name, task, shape = named.name, named.task, named.shape or PLAIN
        params = named.encode_params(args, kwargs)
    arguments = {param: escape(msgspec.json.decode(value)) for param, value in params.items()}
    content = StepContent(workflow=name, arguments=arguments)
    return TasklessStep(name.rpartition(".")[2], content, shape, task=task)


def _plain(duration: Duration, what: str) -> str | float:
    parse_duration(duration, what=what)
    return duration.total_seconds() if isinstance(duration, timedelta) else duration
