"""Builder of contents of runs from written workflows. Pure.

A part is placed behind the values of others. A group is no step: its value is a template with those of its members.
"""

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, cast

import msgspec
from msgspec.structs import replace

from taskmq.errors import InvalidArguments, InvalidOption
from taskmq.model.envelope import JSON
from taskmq.model.runs.fan_out import BatchCall
from taskmq.model.runs.graphs import MAX_WIDTH, StepContent, WorkflowContent, encode_workflow
from taskmq.model.runs.paths import NAME, find_name_flaw
from taskmq.model.runs.rules import RULE_ALIASES
from taskmq.model.runs.validation import MOST_STEPS, validate_workflow
from taskmq.model.values.return_type import PLAIN
from taskmq.options.plans import CallPlan, plan_call
from taskmq.options.step_options import encode_options
from taskmq.workflow.shapes import ListOf, Shape
from taskmq.workflow.step_call import StepCall

BATCH_STEP: Final = "jobs"
"""Name of the step of a batch."""

_JOIN: Final = "join"
# Characters of a wrong name in an error.
_MOST_SHOWN: Final = 80


class PartValue(msgspec.Struct, frozen=True):
    """The value of a part, for those behind it.

    Attributes:
        template: its value once the steps in `needs` have ended.
    """

    template: Any
    needs: tuple[str, ...]


class PlacedPart(msgspec.Struct, frozen=True):
    """The value of a part and its type."""

    source: PartValue
    shape: Shape


class RunPlan(msgspec.Struct, frozen=True):
    """A workflow that is ready to be started, with the type of its value."""

    content: WorkflowContent
    shape: Shape


class ContentBuilder:
    """Steps by name; parts of workflows add themselves.

    Args:
        reserved: names that `name` will give.
    """

    def __init__(self, reserved: Collection[str] = ()) -> None:
        self._steps: dict[str, StepContent] = {}
        self._seen: Counter[str] = Counter()
        # The base of the last name and the number before it, for a step that gets another name.
        self._latest = ("", 0)
        self._reserved = frozenset(reserved)
        for name in self._reserved:
            _check_name(name)

    @property
    def size(self) -> int:
        """Number of steps that were added."""
        return len(self._steps)

    def keys_since(self, first: int) -> list[str]:
        """Return the names of the steps from this number on."""
        return [*self._steps][first:]

    def name(self, placed: PlacedPart, name: str) -> PlacedPart:
        """Name the last step of a part; several parallel ones are followed by a step with this name."""
        last = placed.source.needs
        if len(last) == 1 and placed.source.template == _result_of(last[0]):
            base, before = self._latest
            self._seen[base] = before
            self._steps = {name if key == last[0] else key: step for key, step in self._steps.items()}
            return replace(placed, source=PartValue(_result_of(name), (name,)))
        self._steps[name] = StepContent(value=placed.source.template, needs=last)
        # Not its value, which it has only if all have succeeded.
        return replace(placed, source=PartValue(placed.source.template, (name,)))

    def narrow(self, before: Sequence[PartValue], followers: int) -> Sequence[PartValue]:
        """Add a step between many steps and many followers, unless there are few of either."""
        needs = _needs_of(before)
        if followers < 2 or len(needs) < 2:
            return before
        joined: list[PartValue] = []
        for value in before:
            name = self._unused_name(_JOIN)
            self._steps[name] = StepContent(value=value.template, needs=value.needs)
            joined.append(PartValue(_result_of(name), (name,)))
        return joined

    def join(self, placed: Sequence[PlacedPart], before: Sequence[PartValue]) -> PlacedPart:
        """Return the list of the parts' values; an empty one is complete once all of `before` are."""
        sources = [part.source for part in placed]
        value = PartValue([source.template for source in sources], _needs_of(sources or before))
        return PlacedPart(value, tuple(part.shape for part in placed))

    def step(
        self,
        call: StepCall,
        before: Sequence[PartValue],
        *,
        named: Mapping[str, PartValue] | None = None,
        rule: str = "all",
    ) -> PlacedPart:
        """Add a call after `before`, whose values it gets.

        Args:
            named: more parts that it waits for, by the name of the argument for the value.
        """
        named = named or {}
        fed = [source.template for source in before] if call.is_fed else []
        is_complete = not fed and not named
        args, kwargs = _arguments(call, before=-1 if is_complete else len(fed))
        content = StepContent(
            task=call.task.name,
            args=(*fed, *args),
            arguments={**kwargs, **{name: source.template for name, source in named.items()}},
            needs=_needs_of([*before, *named.values()]),
            rule=RULE_ALIASES.get(rule, rule),
            condition=call.condition,
            options=_options_of(call, is_complete=is_complete),
        )
        return self._place(call, content, call.task.returns)

    def each(
        self,
        call: StepCall,
        before: Sequence[PartValue],
        *,
        limit: int | None,
        max_width: int,
        is_spread: bool,
        rule: str = "all",
    ) -> PlacedPart:
        """Add a call for each item of the value of the one part before it."""
        if len(before) != 1:
            raise InvalidOption(f"task {call.task.name}: each(...) comes after one step, whose value is a list")
        if max_width > MAX_WIDTH:
            raise InvalidOption(f"task {call.task.name}: max_width={max_width}: must be at most {MAX_WIDTH}")
        args, kwargs = _arguments(call, before=None if is_spread else 1)
        content = StepContent(
            task=call.task.name,
            each=before[0].template,
            spread=is_spread,
            limit=limit or 0,
            max_width=max_width,
            args=args,
            arguments=kwargs,
            needs=before[0].needs,
            rule=RULE_ALIASES.get(rule, rule),
            condition=call.condition,
            options=_options_of(call, is_complete=False),
        )
        return self._place(call, content, ListOf(call.task.returns))

    def add(
        self,
        name: str,
        content: StepContent,
        shape: Shape,
        before: Sequence[PartValue],
        *,
        named: Mapping[str, PartValue] | None = None,
        rule: str = "all",
    ) -> PlacedPart:
        """Add a step that runs no task after `before`.

        Args:
            named: more parts that it waits for, by the name of the parameter for the value.
        """
        named = named or {}
        step = replace(
            content,
            arguments={**content.arguments, **{param: source.template for param, source in named.items()}},
            needs=_needs_of([*before, *named.values()]),
            rule=RULE_ALIASES.get(rule, rule),
        )
        return self._put(name, step, shape)

    def batch(self, *, limit: int | None) -> PlacedPart:
        """Add a step that gets its calls one by one, until it is closed."""
        self._steps[BATCH_STEP] = StepContent(batch=True, limit=limit or 0)
        return PlacedPart(PartValue(_result_of(BATCH_STEP), (BATCH_STEP,)), ListOf(PLAIN))

    def plan(self, placed: PlacedPart) -> RunPlan:
        """Return the workflow, whose value is that of `placed`."""
        return self._finish(placed.source.template, placed.shape)

    def plan_of_leaves(
        self, parts: Mapping[str, PlacedPart], leaves: Collection[str], *, may_fail: Collection[str]
    ) -> RunPlan:
        """Return the workflow, whose value is that of each leaf by its name.

        Args:
            may_fail: names of steps whose failure is not the run's.
        """
        for name in may_fail:
            self._steps[name] = replace(self._steps[name], may_fail=True)
        output = {name: parts[name].source.template for name in leaves}
        return self._finish(output, {name: parts[name].shape for name in leaves})

    def _finish(self, output: Any, shape: Shape) -> RunPlan:
        if len(self._steps) > MOST_STEPS:
            raise InvalidOption(
                f"a workflow of {len(self._steps):,} steps, and at most {MOST_STEPS:,} are possible: call them with "
                ".each(...) behind a step that returns the list, or use a batch"
            )
        # Groups without members.
        steps = self._steps or {_JOIN: StepContent(value=[])}
        content = WorkflowContent(steps=steps, output=output)
        if any(step.condition for step in steps.values()):
            # Conditions alone refer to steps by names that the author wrote.
            _, faults = validate_workflow(msgspec.json.decode(encode_workflow(content)[1]))
            if faults:
                raise InvalidOption(str(faults[0]))
        return RunPlan(content, shape)

    def _place(self, call: StepCall, content: StepContent, shape: Shape) -> PlacedPart:
        return self._put(call.task.name.rpartition(".")[2], content, shape)

    def _put(self, wanted: str, content: StepContent, shape: Shape) -> PlacedPart:
        name = self._unused_name(wanted)
        self._steps[name] = content
        return PlacedPart(PartValue(_result_of(name), (name,)), shape)

    def _unused_name(self, wanted: str) -> str:
        base = re.sub(r"[^A-Za-z0-9_-]", "_", wanted)
        if re.fullmatch(NAME, base) is None:
            base = f"_{base}"
        before = self._seen[base]
        while True:
            self._seen[base] += 1
            name = base if self._seen[base] == 1 else f"{base}-{self._seen[base]}"
            if name not in self._reserved and name not in self._steps:
                _check_name(name)
                self._latest = (base, before)
                return name


def _check_name(name: str) -> None:
    if flaw := find_name_flaw(name):
        raise InvalidOption(f"name={name[:_MOST_SHOWN]!r}: {flaw}")


def batch_call(call: StepCall) -> bytes:
    """Return the encoded call of a job of a batch.

    Raises:
        InvalidArguments, InvalidOption, EncodeError: it is invalid.
    """
    raw_args, raw_kwargs = _complete(call)
    found = BatchCall(
        task=call.task.name,
        args=tuple(msgspec.json.decode(raw_args, type=list[msgspec.Raw])),
        kwargs=msgspec.json.decode(raw_kwargs, type=dict[str, msgspec.Raw]),
        options=_options_of(call, is_complete=True),
    )
    return msgspec.json.encode(found)


def _result_of(step: str) -> str:
    return f"${{steps.{step}.result}}"


def _needs_of(sources: Sequence[PartValue]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for source in sources for name in source.needs))


def _options_of(call: StepCall, *, is_complete: bool) -> dict[str, Any]:
    """Return the options of a step's jobs.

    Args:
        is_complete: whether all its arguments are known.

    Raises:
        InvalidOption: an option is impossible for a step.
    """
    task = call.task
    if task.plan.unique is not None:
        raise InvalidOption(
            f"task {task.name}: unique= could leave a step without a job: let the step call a task without it; the "
            "workflow is one by its run_id"
        )
    plan: CallPlan = plan_call(call.plan or task.call_plan, call.options, task=task.name)
    if plan.job_id is not None:
        raise InvalidOption(f"task {task.name}: job_id is not for steps of workflows, whose jobs have the run's ids")
    if plan.headers:
        raise InvalidOption(
            f"task {task.name}: headers= belong to a message, and steps are jobs of the store: use meta="
        )
    if plan.order_key is None and task.order_key is not None and is_complete:
        plan = replace(plan, order_key=task.order_key.of(call.args, dict(call.kwargs)))
    return encode_options(plan, task.call_plan)


def _arguments(call: StepCall, *, before: int | None) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return templates of the arguments that the call itself has.

    Args:
        before: number of positional arguments before them; None: unknown; -1: it is complete.
    """
    if before == -1:
        raw_args, raw_kwargs = _complete(call)
    else:
        raw_args, raw_kwargs = call.task.signature.encode_part(call.args, call.kwargs, JSON, before=before)
    return tuple(escape(msgspec.json.decode(raw_args))), escape(msgspec.json.decode(raw_kwargs))


def _complete(call: StepCall) -> tuple[msgspec.Raw, msgspec.Raw]:
    try:
        return call.task.signature.encode(call.args, dict(call.kwargs), JSON)
    except InvalidArguments as error:
        raise InvalidArguments(f"{error}; no step before this one gives it more") from error


def escape(data: Any) -> Any:
    """Return a template whose value is `data`."""
    match data:
        case str():
            return data.replace("${", "$${")
        case [*items]:
            return [escape(item) for item in items]
        case dict():
            return {key: escape(item) for key, item in cast("dict[str, Any]", data).items()}
        case _:
            return data
