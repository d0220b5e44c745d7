"""Calls of tasks as steps of a workflow."""

from collections.abc import Mapping
from typing import Any, Generic, Literal, Protocol, TypeVar, cast

import msgspec
from msgspec.structs import replace

from taskmq.client.producer import AppServices
from taskmq.errors import InvalidOption
from taskmq.model.codec import Signature
from taskmq.model.runs.conditions import ConditionError, parse_condition
from taskmq.model.values.return_type import ReturnType
from taskmq.options.keys import OrderKey
from taskmq.options.plans import CallPlan, TaskPlan
from taskmq.options.task_options import CallOptions

R_co = TypeVar("R_co", covariant=True)

Rule = Literal["all", "any", "none_failed", "always"]
"""Rule that decides when a step of a graph starts; see `Dag.add`."""


class StepTask(Protocol):
    """Requirements of a workflow on a task: a `taskmq.tasks.task.Task`, which makes steps of its calls."""

    name: str
    plan: TaskPlan
    signature: Signature
    order_key: OrderKey | None

    @property
    def call_plan(self) -> CallPlan: ...

    @property
    def returns(self) -> ReturnType: ...

    @property
    def services(self) -> AppServices: ...


class StepCall(msgspec.Struct, frozen=True):
    """A call of a task as a step of a workflow.

    Attributes:
        plan: the options that the step's own override; None: the task's, as they are when it is sent.
        options: further options of the step, which count from its turn.
        is_fed: whether the values of the steps before it precede its arguments.
        condition: whether it runs once it may start; "": always.
    """

    task: StepTask
    plan: CallPlan | None
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    options: CallOptions
    is_fed: bool
    condition: str = ""

    def with_options(self, options: CallOptions) -> "StepCall":
        return replace(self, options=cast("CallOptions", {**self.options, **options}))

    def when(self, condition: str) -> "StepCall":
        """Return the call with a condition; raises as `check_condition` does."""
        return replace(self, condition=check_condition(condition))


def check_condition(condition: str) -> str:
    """Return the condition of a step.

    Raises:
        InvalidOption: it cannot be parsed.
    """
    try:
        parse_condition(condition)
    except ConditionError as error:
        raise InvalidOption(f"when({condition!r}): {error}") from error
    return condition


class TaskStep:
    """A step that calls a task."""

    __slots__ = ("call",)

    def __init__(self, call: StepCall) -> None:
        self.call: StepCall = call


class CompleteStep(TaskStep):
    """A step with all arguments: `task.s(...)` with them, or `task.si(...)`."""

    __slots__ = ()


class GraphNode(Generic[R_co]):
    """A node of a graph; the key of its value when the run has ended.

    Attributes:
        name: unique in its graph.
    """

    __slots__ = ("graph", "name", "number")

    def __init__(self, graph: object, name: str, number: int) -> None:
        self.graph: object = graph
        self.name: str = name
        self.number: int = number

    def __repr__(self) -> str:
        return f"<Node {self.name}>"
