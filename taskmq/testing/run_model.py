"""A reference for runs of workflows: the whole graph in dictionaries, evaluated again after each event.

It has no counters, cursors, generations of rows or transactions. The state machine must lead to the same states.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, cast

import msgspec

from taskmq.model.runs.conditions import ConditionError, parse_condition
from taskmq.model.runs.graphs import RunGraph
from taskmq.model.runs.paths import Path, PathError, find_value, paths_in, resolve
from taskmq.model.runs.records import InboxRow, RunState, StepKey
from taskmq.model.runs.rules import RuleName, StepState

_GOOD: Final = StepState.SUCCEEDED
_BAD: Final = (StepState.FAILED, StepState.UPSTREAM_FAILED)

_States = Sequence[StepState]
_RULES: Final[dict[RuleName, Callable[[_States, int], bool]]] = {
    "all_success": lambda states, _: all(each is _GOOD for each in states),
    "all_failed": lambda states, _: all(each in _BAD for each in states),
    "all_skipped": lambda states, _: all(each is StepState.SKIPPED for each in states),
    "all_done": lambda states, _: all(each.has_ended for each in states),
    "one_success": lambda states, _: _GOOD in states,
    "one_failed": lambda states, _: any(each in _BAD for each in states),
    "one_done": lambda states, _: any(each is _GOOD or each in _BAD for each in states),
    "none_failed": lambda states, _: all(each.has_ended and each not in _BAD for each in states),
    "none_failed_min_one_success": (
        lambda states, _: all(each.has_ended and each not in _BAD for each in states) and _GOOD in states
    ),
    "none_skipped": lambda states, _: all(each.has_ended and each is not StepState.SKIPPED for each in states),
    "all_done_min_one_success": lambda states, _: all(each.has_ended for each in states) and _GOOD in states,
    "at_least": lambda states, least: sum(each is _GOOD for each in states) >= least,
}
_FOR_OTHER_ENDS: Final = ("all_failed", "all_skipped", "one_failed", "one_done", "none_skipped")


class ModelStep(msgspec.Struct):
    """A step or a child.

    Attributes:
        error: error of its job.
        call: arguments of its last job: JSON data.
        items: of a step with children, their items or calls; None before its start.
        is_postponed: whether it waits for a quota.
    """

    state: StepState = StepState.WAITING
    error: str = ""
    generation: int = 0
    value: Any = None
    call: tuple[Any, Any] | None = None
    items: list[Any] | None = None
    children: list["ModelStep"] = msgspec.field(default_factory=list["ModelStep"])
    is_open: bool = False
    is_postponed: bool = False


class RunModel:
    """A run of a graph, which takes the rows of its inbox one after the other."""

    def __init__(self, graph: RunGraph, params: dict[str, Any]) -> None:
        self.steps: dict[str, ModelStep] = {name: ModelStep() for name in graph.order}
        self.state: RunState = RunState.RUNNING
        self.value: Any = None
        self.generation: int = 0
        self.cancelled: bool = False
        self.timed_out: bool = False
        self.is_queued: bool = graph.content.max_active_runs is not None
        self._is_full = False
        # Whether an operator holds it (False), and whether the run above it does (True).
        self._holds: set[bool] = set()
        self._releases = 0
        self._graph = graph
        self._params = params
        self._signals: list[InboxRow] = []
        self._settle()

    @property
    def has_ended(self) -> bool:
        """Whether all steps have ended."""
        return all(step.state.has_ended for step in self.steps.values())

    @property
    def is_held(self) -> bool:
        """Whether no step starts."""
        return bool(self._holds)

    def running(self) -> dict[StepKey, ModelStep]:
        """Return the running steps and children."""
        found = {StepKey(name): step for name, step in self.steps.items() if step.state is StepState.RUNNING}
        found |= {
            StepKey(name, index): child
            for name, step in self.steps.items()
            for index, child in enumerate(step.children)
            if child.state is StepState.RUNNING
        }
        return found

    def fill(self, *, is_full: bool) -> None:
        """Use up the quotas of all jobs, or give them room."""
        self._is_full = is_full
        self._settle()

    def apply(self, row: InboxRow) -> None:
        """Apply a row. An end counts for the generation in the row, in place of a job."""
        match row.kind:
            case "end":
                step = self.running().get(StepKey(row.step, row.child))
                if step is not None and step.generation == row.generation:
                    step.state, step.error = row.state, row.error
                    step.value = msgspec.json.decode(row.value)
            case "timer" if not row.step:
                is_present = row.generation == self.generation + self._releases
                if is_present and not self._holds and not self.has_ended and not self.cancelled:
                    self.timed_out = True
                    self._cancel()
            case "timer":
                step = self.steps[row.step]
                if step.state is StepState.RUNNING and step.generation == row.generation:
                    self._time_out(row.step, step)
            case "signal" if not self.has_ended and not self.cancelled:
                self._signals.append(row)
            case "cancel" if not self.has_ended:
                self._cancel()
            case "redrive" if self.has_ended:
                self._redrive(row.step)
            case "add" if self._takes_calls(row.step):
                batch = self.steps[row.step]
                batch.items = [*(batch.items or ()), *(msgspec.json.decode(call) for call in row.calls)]
            case "close" if self._takes_calls(row.step):
                self.steps[row.step].is_open = False
            case _:
                self._block(row)
        self._settle()

    def _block(self, row: InboxRow) -> None:
        if row.kind == "release":
            was_held = bool(self._holds)
            self._holds.discard(row.is_from_above)
            self._releases += was_held and not self._holds
        elif row.kind == "hold" and not self.has_ended and not self.cancelled:
            self._holds.add(row.is_from_above)
        elif row.kind == "begin" and row.generation == self.generation:
            self.is_queued = False

    def _takes_calls(self, name: str) -> bool:
        step = self.steps[name]
        return step.state is StepState.RUNNING and step.is_open and not self.cancelled

    def _time_out(self, name: str, step: ModelStep) -> None:
        content = self._graph.step(name)
        step.state, step.value = StepState.SUCCEEDED, None
        if content.wait:
            match content.on_timeout:
                case "fail":
                    step.state = StepState.FAILED
                case "skip":
                    step.state = StepState.SKIPPED
                case value:
                    step.value = value["value"]

    def _cancel(self) -> None:
        self.cancelled, self.is_queued = True, False
        self._holds.clear()
        for name, step in self.steps.items():
            content = self._graph.step(name)
            if step.state is StepState.WAITING or (
                step.state is StepState.RUNNING and content.kind in ("wait", "sleep")
            ):
                step.state = StepState.CANCELLED

    def _redrive(self, begin: str) -> None:
        self.cancelled = self.timed_out = False
        self.is_queued = self._graph.content.max_active_runs is not None
        self.generation += 1
        below = self._graph.below(begin) if begin else set[str]()
        again = [
            name for name in self._graph.order if (name in below if begin else self.steps[name].state is not _GOOD)
        ]
        for name in again:
            step = self.steps[name]
            is_batch = self._graph.step(name).batch
            keeps = not begin and step.items is not None and not set(self._graph.upstream[name]) & set(again)
            children = step.children if keeps else []
            self.steps[name] = ModelStep(
                generation=self.generation,
                items=step.items if keeps or is_batch else None,
                children=[child if child.state is _GOOD else ModelStep() for child in children],
                is_open=step.is_open,
            )

    def _settle(self) -> None:
        """Start and end steps until nothing changes."""
        while any(self._evaluate(name) for name in self._graph.order):
            pass
        if not self.has_ended:
            self.state = RunState.QUEUED if self.is_queued else RunState.RUNNING
            return
        self.is_queued = False
        self._holds.clear()
        if self.timed_out:
            self.state = RunState.FAILED
        elif self.cancelled:
            self.state = RunState.CANCELLED
        elif any(
            (step.state is StepState.FAILED or (step.state is StepState.UPSTREAM_FAILED and step.error))
            and not self._graph.step(name).may_fail
            for name, step in self.steps.items()
        ):
            self.state = RunState.FAILED
        else:
            self.state = RunState.SUCCEEDED
            self.value = resolve(self._graph.output(), self._look_up)

    def _evaluate(self, name: str) -> bool:
        step = self.steps[name]
        before = (step.state, [child.state for child in step.children], len(self._signals))
        is_still = self.is_held or self.is_queued or (step.is_postponed and self._is_full)
        if step.state is StepState.WAITING and not is_still:
            self._decide(name, step)
        if step.state is StepState.RUNNING:
            self._run(name, step)
        return before != (step.state, [child.state for child in step.children], len(self._signals))

    def _decide(self, name: str, step: ModelStep) -> None:
        states = [self.steps[each].state for each in self._graph.upstream[name]]
        rule = self._graph.rules[name]
        if _RULES[rule.name](states, rule.least):
            self._begin(name, step)
        elif all(each.has_ended for each in states):
            is_failure = rule.name not in _FOR_OTHER_ENDS and any(each in _BAD for each in states)
            step.state = StepState.UPSTREAM_FAILED if is_failure else StepState.SKIPPED

    def _begin(self, name: str, step: ModelStep) -> None:
        content = self._graph.step(name)
        try:
            if content.condition and not parse_condition(content.condition).is_met(self._look_up):
                step.state = StepState.SKIPPED
                return
            step.state = StepState.RUNNING
            if content.kind == "batch" and step.items is None:
                step.items, step.is_open = [], True
            elif content.each is not None:
                items = resolve(content.each, self._look_up)
                if not isinstance(items, list) or len(cast("Sequence[Any]", items)) > content.max_width:
                    step.state = StepState.FAILED
                    return
                step.items = items
            elif content.kind == "value":
                step.state, step.value = _GOOD, resolve(content.value, self._look_up)
            elif content.task or content.workflow:
                step.call = (resolve(content.args, self._look_up), resolve(content.arguments, self._look_up))
                if content.task and self._is_full:
                    step.state, step.is_postponed = StepState.WAITING, True
        except (ConditionError, PathError):
            step.state = StepState.FAILED

    def _run(self, name: str, step: ModelStep) -> None:
        """Start children of a running step and consume signals, and end it once nothing is left."""
        content = self._graph.step(name)
        if content.wait and (signal := self._find_signal(name, step)) is not None:
            self._signals.remove(signal)
            step.state, step.value = StepState.SUCCEEDED, msgspec.json.decode(signal.value)
        if not content.has_children:
            return
        items = step.items or []
        while not self.cancelled and len(step.children) < len(items):
            step.children.append(ModelStep())
        active = sum(child.state is StepState.RUNNING for child in step.children)
        for index, child in enumerate(step.children):
            if (
                child.state is StepState.WAITING
                and not self.cancelled
                and not self.is_held
                and (not content.limit or active < content.limit)
            ):
                active += self._begin_child(name, step, child, items[index])
                if child.is_postponed:
                    break
        if self.cancelled:
            done = not active
        else:
            done = not step.is_open and all(child.state.has_ended for child in step.children)
        if done:
            values = [child.value for child in step.children if child.state is _GOOD]
            if not step.is_open and len(values) == len(items):
                step.state, step.value = StepState.SUCCEEDED, values
            else:
                step.state = StepState.CANCELLED if self.cancelled else StepState.FAILED

    def _begin_child(self, name: str, step: ModelStep, child: ModelStep, item: Any) -> bool:
        content = self._graph.step(name)
        child.generation = step.generation
        child.is_postponed = self._is_full
        child.state = StepState.WAITING if self._is_full else StepState.RUNNING
        if content.batch:
            child.call = (item.get("args", []), item.get("kwargs", {}))
            return not self._is_full

        def look_up(path: Path) -> Any:
            return find_value(item, path) if path.root == "item" else self._look_up(path)

        uses_item = any(path.root == "item" for path in paths_in([content.args, content.arguments]))
        try:
            args = resolve(content.args, look_up)
            child.call = (args if uses_item else [item, *args], resolve(content.arguments, look_up))
        except PathError:
            child.state, child.is_postponed = StepState.FAILED, False
        return child.state is StepState.RUNNING

    def _find_signal(self, name: str, step: ModelStep) -> InboxRow | None:
        content = self._graph.step(name)
        for row in self._signals:
            is_for = row.name == content.wait and row.step in ("", name) and row.generation in (None, step.generation)
            if is_for and (not content.roles or set(content.roles) & set(row.roles or ())):
                return row
        return None

    def _look_up(self, path: Path) -> Any:
        match path.root:
            case "params":
                return find_value(self._params, path)
            case "state":
                return str(self.steps[path.step].state)
            case _:
                step = self.steps[path.step]
                return find_value(step.value, path) if step.state is _GOOD else None
