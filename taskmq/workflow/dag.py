"""Graphs: steps that wait for any others, each by its own rule."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from taskmq.errors import InvalidOption
from taskmq.workflow.model.contents import ContentBuilder
from taskmq.workflow.parts import Each, Group, OpenStep, Part, SingleStep, Workflow, check_part
from taskmq.workflow.step_call import GraphNode, Rule, StepTask
from taskmq.workflow.taskless_step import TasklessStep

A = TypeVar("A")

_RULES = ("all", "any", "none_failed", "always")


class DagEntry(msgspec.Struct, frozen=True):
    """An added part of a graph; nodes by their number."""

    part: Part
    name: str
    after: tuple[int, ...]
    into: Mapping[str, int]
    rule: Rule
    may_fail: bool


class Dag(Workflow[dict[str, Any]]):
    """Steps that wait for others. The value contains the value of each last step, by its name.

    Attributes:
        entries: the added parts.
    """

    __slots__ = ("entries",)

    def __init__(self) -> None:
        self.entries: list[DagEntry] = []

    def first_task(self) -> StepTask | None:
        return next((task for entry in self.entries if (task := entry.part.first_task()) is not None), None)

    def add_to(self, builder: ContentBuilder, before: Sequence[Any]) -> Any:  # noqa: ARG002 - refused
        raise InvalidOption("a dag cannot be a part of another workflow: add the other's steps to it")

    def step_names(self) -> list[str]:
        return [entry.name for entry in self.entries]

    def build(self, builder: ContentBuilder) -> Any:
        placed: list[Any] = []
        used: set[int] = set()
        may_fail: set[str] = set()
        for entry in self.entries:
            first = builder.size
            before = [placed[number].source for number in entry.after]
            named = {name: placed[number].source for name, number in entry.into.items()}
            used.update(entry.after, entry.into.values())
            if isinstance(entry.part, SingleStep | TasklessStep):
                one = entry.part.add_to(builder, before, named=named, rule=entry.rule)
            else:
                one = entry.part.add_to(builder, before)
            placed.append(builder.name(one, entry.name))
            if entry.may_fail:
                may_fail.update(builder.keys_since(first))
        parts = {entry.name: one for entry, one in zip(self.entries, placed, strict=True)}
        leaves = [entry.name for number, entry in enumerate(self.entries) if number not in used]
        return builder.plan_of_leaves(parts, leaves, may_fail=may_fail)

    def add(
        self,
        part: OpenStep[Any, A] | Workflow[A],
        *,
        after: Iterable[GraphNode[Any]] = (),
        into: Mapping[str, GraphNode[Any]] | None = None,
        rule: Rule = "all",
        name: str | None = None,
        may_fail: bool = False,
    ) -> GraphNode[A]:
        """Add a step, or a whole chain or group.

        Args:
            after: nodes that it waits for; unless the step is an `si(...)`, it gets their values, in this order,
                before its own arguments. None replaces a missing value, which the rule may allow.
            into: more nodes that it waits for, by the name of the argument for the value.
            rule: `all` of them have succeeded; `any` of them has; `none_failed`: all have ended, and none has
                failed; `always`: all have ended.
            name: default: the task's.
            may_fail: whether the run may succeed although it fails.

        Raises:
            InvalidOption: it waits for a node of another graph, the name is taken, or the rule is unknown or cannot
                be met.
        """
        check_part(part)
        if rule not in _RULES:
            raise InvalidOption(f"rule={rule!r}: one of {', '.join(map(repr, _RULES))}")
        if not isinstance(part, SingleStep | TasklessStep) and (rule != "all" or into):
            raise InvalidOption("rule= and into= are for one step; add the first one of a chain by itself")
        if isinstance(part, TasklessStep) and into and not part.content.workflow:
            raise InvalidOption("into= passes values to tasks and workflows, and this step has no parameters")
        if isinstance(part, Each) and into:
            raise InvalidOption("into= is not for each(...), whose calls have one value each")
        named = {key: self._number(node) for key, node in (into or {}).items()}
        before = tuple(self._number(node) for node in after)
        label = name or self._default_name(part)
        if rule == "any" and not (before or named):
            raise InvalidOption(f"node {label!r}: rule='any' needs nodes to wait for: give it after= or into=")
        if any(entry.name == label for entry in self.entries):
            raise InvalidOption(f"node {label!r} is defined twice; give one of them a name=")
        self.entries.append(DagEntry(part, label, before, named, rule, may_fail))
        return GraphNode(self, label, len(self.entries) - 1)

    def _number(self, node: GraphNode[Any]) -> int:
        if node.graph is not self:
            raise InvalidOption(f"{node!r} belongs to another graph")
        return node.number

    def _default_name(self, part: Part) -> str:
        label = _label_of(part)
        taken = {entry.name for entry in self.entries}
        found, number = label, 2
        while found in taken:
            found, number = f"{label}-{number}", number + 1
        return found


def dag() -> Dag:
    """Create an empty graph; call `add(...)` for each step, then `send()`.

    A step can only wait for earlier ones, so there is no cycle.
    """
    return Dag()


def _label_of(part: Part) -> str:
    if isinstance(part, SingleStep | TasklessStep):
        return part.label
    return "group" if isinstance(part, Group) else "chain"
