"""Contents of workflows, and the graphs that they describe.

A step waits for the steps in `needs`; without `needs`, for those that it refers to. Equal contents have equal
versions, whatever the order of their keys.
"""

import hashlib
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Annotated, Any, Final, Literal

import msgspec

from taskmq.model.runs.conditions import parse_condition
from taskmq.model.runs.paths import Path, paths_in
from taskmq.model.runs.rules import StepRule, parse_rule

StepKind = Literal["task", "each", "batch", "wait", "sleep", "workflow", "value"]

MAX_WIDTH: Final = 100_000
"""Maximum of children of one step."""

MOST_ACTIVE_RUNS: Final = 10_000
"""Maximum of `max_active_runs`."""


class StepContent(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
    rename={"arguments": "with", "condition": "if"},
):
    """A step of a workflow's content.

    Attributes:
        task: task that it runs; of an `each`, that its children run.
        each: list, or a reference to one, whose items become the first argument of its children, or `item`.
        spread: whether each item is a list of arguments.
        limit: maximum of concurrent children; 0: all.
        max_width: maximum of children.
        batch: whether it takes calls until it is closed.
        wait: name of the signal that it waits for.
        form: JSON Schema of the signal's value.
        roles: roles that may send the signal, and groups as `group:NAME`; empty: anyone.
        on_timeout: end of a wait without a signal: `fail`, `skip`, or `{"value": ...}`.
        sleep: duration or instant until which it waits.
        workflow: name of the workflow that it runs.
        builds: whether its value is the content of the other steps of the run.
        value: template of the value of a step that runs nothing.
        args, arguments: templates of the arguments or parameters.
        needs: its upstream steps; None: those that it refers to.
        rule: when it starts; see `RuleName`.
        condition: whether it runs once it may start.
        may_fail: whether its failure is not the run's.
        timeout: of a wait, a duration; else an option of its jobs.
        options: other options of its jobs.
    """

    task: str = ""
    each: Any = None
    spread: bool = False
    limit: int = 0
    max_width: int = 10_000
    batch: bool = False
    wait: str = ""
    form: dict[str, Any] | None = None
    roles: tuple[str, ...] = ()
    on_timeout: Any = "fail"
    sleep: Any = None
    workflow: str = ""
    builds: bool = False
    value: Any = None
    args: tuple[Any, ...] = ()
    arguments: dict[str, Any] = {}
    needs: tuple[str, ...] | None = None
    rule: Any = "all_success"
    condition: str = ""
    may_fail: bool = False
    timeout: Any = None
    options: dict[str, Any] = {}

    @property
    def kind(self) -> StepKind:
        """Kind of the step."""
        if self.each is not None:
            return "each"
        if self.task:
            return "task"
        if self.wait:
            return "wait"
        if self.workflow:
            return "workflow"
        if self.batch:
            return "batch"
        return "value" if self.sleep is None else "sleep"

    @property
    def has_children(self) -> bool:
        """Whether it runs several jobs."""
        return self.batch or self.each is not None

    def paths(self) -> Iterator[Path]:
        """Yield the paths of its templates and of its condition; raises `ValueError` if one cannot be parsed."""
        for template in (self.each, self.args, self.arguments, self.sleep, self.timeout, self.value):
            yield from paths_in(template)
        if self.condition:
            yield from parse_condition(self.condition).paths


class WorkflowContent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The content of one version of a workflow.

    Attributes:
        params: JSON Schema of each parameter; one with a `default` may be omitted.
        timeout: maximum duration of a run; None: no limit.
        max_active_runs: maximum of runs at a time, per tenant; further ones are queued. None: no limit.
        schedule: when it starts, as its file says; None: when someone starts it.
        output: template of the run's value; None: the value of each step that no other one waits for, by its name.
    """

    workflow: str = ""
    params: dict[str, dict[str, Any]] = {}
    timeout: Any = None
    max_active_runs: Annotated[int, msgspec.Meta(ge=1, le=MOST_ACTIVE_RUNS)] | None = None
    schedule: dict[str, Any] | None = None
    steps: dict[str, StepContent]
    output: Any = None


class RunGraph:
    """A valid content with its edges.

    Attributes:
        order: names of the steps, each after its upstream steps.
        waits: by the name of a signal, the steps that wait for it.
        is_complete: whether no step has to build the rest of it first.
    """

    def __init__(self, content: WorkflowContent, version: str) -> None:
        self.content: WorkflowContent = content
        self.version: str = version
        self.upstream: dict[str, tuple[str, ...]] = {name: upstream_of(step) for name, step in content.steps.items()}
        self.rules: dict[str, StepRule] = {name: parse_rule(step.rule) for name, step in content.steps.items()}
        self.order, _ = sort_steps(self.upstream)
        downstream: dict[str, list[str]] = {name: [] for name in self.order}
        self.waits: dict[str, list[str]] = {}
        for name in self.order:
            for each in self.upstream[name]:
                downstream[each].append(name)
            if signal := content.steps[name].wait:
                self.waits.setdefault(signal, []).append(name)
        self.downstream: dict[str, list[str]] = downstream
        self.is_complete: bool = not any(each.builds and not downstream[name] for name, each in content.steps.items())
        self.roots: list[str] = [name for name in self.order if not self.upstream[name]]

    def step(self, name: str) -> StepContent:
        """Return the content of a step."""
        return self.content.steps[name]

    def below(self, name: str) -> set[str]:
        """Return a step and all that wait for it, directly or not."""
        found: set[str] = {name}
        for each in self.order:
            if not found.isdisjoint(self.upstream[each]):
                found.add(each)
        return found

    def output(self) -> Any:
        """Return the template of the run's value."""
        if self.content.output is not None:
            return self.content.output
        return {name: f"${{steps.{name}.result}}" for name in self.order if not self.downstream[name]}


def upstream_of(step: StepContent) -> tuple[str, ...]:
    """Return the names of the steps that a step waits for."""
    if step.needs is not None:
        return tuple(dict.fromkeys(step.needs))
    return tuple(dict.fromkeys(path.step for path in step.paths() if path.step))


def sort_steps(upstream: Mapping[str, tuple[str, ...]]) -> tuple[list[str], list[str]]:
    """Return the steps, each after its upstream steps, and those in cycles or behind them."""
    pending = {name: len(before) for name, before in upstream.items()}
    downstream: dict[str, list[str]] = {}
    for name in upstream:
        for each in upstream[name]:
            downstream.setdefault(each, []).append(name)
    order = sorted(name for name, count in pending.items() if not count)
    for name in order:
        for each in sorted(downstream.get(name, ())):
            pending[each] -= 1
            if not pending[each]:
                order.append(each)
    done = set(order)
    return order, [name for name in upstream if name not in done]


_encoder: Final = msgspec.json.Encoder(order="deterministic")
_decoder: Final = msgspec.json.Decoder(WorkflowContent)


def encode_workflow(content: WorkflowContent) -> tuple[str, bytes]:
    """Return the version and the text of a content."""
    text = _encoder.encode(content)
    return hashlib.sha256(text).hexdigest(), text


@lru_cache(64)
def load_graph(text: bytes) -> RunGraph:
    """Return the graph of a text of `encode_workflow`."""
    return RunGraph(_decoder.decode(text), hashlib.sha256(text).hexdigest())
