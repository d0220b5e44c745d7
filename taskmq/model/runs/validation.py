"""Validation of workflows before they are stored: every fault, with its step and field; and of parameters of runs."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final, NamedTuple, cast

import msgspec

from taskmq.errors import InvalidOption, UnsupportedFeature
from taskmq.model.runs.conditions import ConditionError, parse_condition
from taskmq.model.runs.graphs import MAX_WIDTH, StepContent, WorkflowContent, sort_steps, upstream_of
from taskmq.model.runs.paths import Path, PathError, find_name_flaw, paths_in
from taskmq.model.runs.rules import StepRule, parse_rule
from taskmq.model.units import did_you_mean, parse_duration
from taskmq.model.values.schemas import find_misfit

MOST_STEPS: Final = 10_000
"""Maximum of steps in one graph, without the children of steps."""

PARAMETERS: Final = "parameters of workflows"
"""Purpose of their schemas, for errors."""

# Characters of a wrong name in an error.
_MOST_SHOWN: Final = 80
_KINDS: Final = ("task", "wait", "sleep", "workflow", "batch", "value")
_COMMON: Final = frozenset({"needs", "rule", "if", "may_fail"})
_CALL: Final = frozenset({"task", "with", "args", "options", "timeout"})
_CHILDREN: Final = frozenset({"limit", "max_width"})
_ALLOWED: Final[dict[str, frozenset[str]]] = {
    "task": _COMMON | _CALL,
    "each": _COMMON | _CALL | _CHILDREN | {"each", "spread"},
    "batch": _CHILDREN | {"batch", "may_fail"},
    "wait": _COMMON | {"wait", "form", "roles", "timeout", "on_timeout"},
    "sleep": _COMMON | {"sleep"},
    "workflow": _COMMON | {"workflow", "with"},
    "value": _COMMON | {"value"},
}
_FIELDS: Final = frozenset[str]().union(*_ALLOWED.values())
_RUN_FACTS: Final = ("id", "workflow", "tenant", "scheduled_for")
_NEEDS_UPSTREAM: Final = frozenset({"all_failed", "all_skipped", "one_success", "one_failed", "one_done"})


class WorkflowFault(NamedTuple):
    """A fault of a content; `step` is "" for the workflow itself."""

    step: str
    field: str
    message: str

    def __str__(self) -> str:
        where = f"step {self.step}, {self.field}" if self.step else self.field
        return f"{where}: {self.message}"


def validate_workflow(
    content: Mapping[str, Any], *, options: Collection[str] = ()
) -> tuple[WorkflowContent | None, list[WorkflowFault]]:
    """Return a workflow's content and its faults; None if it has any.

    Args:
        content: as read from YAML or JSON. Options of a step's jobs may stand among its fields.
        options: names of these options.
    """
    faults: list[WorkflowFault] = []
    steps: dict[str, StepContent] = {}
    raw = content.get("steps")
    if not isinstance(raw, Mapping) or not raw:
        return None, [WorkflowFault("", "steps", "a workflow needs at least one step, by its name")]
    fields = cast("Mapping[str, Any]", raw)
    if len(fields) > MOST_STEPS:
        return None, [WorkflowFault("", "steps", f"{len(fields)} steps; the maximum is {MOST_STEPS}")]
    for name, step in fields.items():
        if flaw := find_name_flaw(str(name)):
            faults.append(WorkflowFault(str(name)[:_MOST_SHOWN], "name", flaw))
        else:
            faults += _read_step(name, step, options, steps)
    rest: WorkflowContent | None = None
    try:
        rest = msgspec.convert({**content, "steps": {}}, WorkflowContent)
    except msgspec.ValidationError as error:
        message, _, where = str(error).partition(" - at `$.")
        faults.append(WorkflowFault("", where.strip("`") or "content", message))
    if rest is None or faults:
        return None, faults
    whole = msgspec.structs.replace(rest, steps=steps)
    faults = [*_check_limits(whole), *_check_graph(whole)]
    return (None if faults else whole), faults


def _read_step(
    name: str, step: object, options: Collection[str], steps: dict[str, StepContent]
) -> Iterator[WorkflowFault]:
    """Add a step to `steps`; yield its faults."""
    if not isinstance(step, Mapping):
        yield WorkflowFault(name, "step", "a step is an object, such as {task: name}")
        return
    fields = dict(cast("Mapping[str, Any]", step))
    flat = {field: fields.pop(field) for field in list(fields) if field in options and field not in _FIELDS}
    if flat:
        fields["options"] = {**fields.get("options", {}), **flat}
    kinds = [kind for kind in _KINDS if kind in fields]
    if len(kinds) != 1:
        found = f"not {' and '.join(kinds)}" if kinds else "and this one has none of them"
        yield WorkflowFault(name, "task", f"a step is one of {', '.join(_KINDS)}, {found}")
        return
    kind = "each" if "each" in fields else kinds[0]
    allowed = _ALLOWED[kind]
    for field in fields:
        if field not in allowed:
            known = sorted(allowed if field in _FIELDS else {*allowed, *options})
            reason = f"a step of kind {kind} has no such field" if field in _FIELDS else did_you_mean(field, known)
            yield WorkflowFault(name, field, reason)
            return
    try:
        read = msgspec.convert(fields, StepContent)
    except msgspec.ValidationError as error:
        message, _, where = str(error).partition(" - at `$.")
        yield WorkflowFault(name, where.strip("`"), message)
        return
    steps[name] = read
    yield from _check_step(name, read, kind)


def _check_step(name: str, step: StepContent, kind: str) -> Iterator[WorkflowFault]:
    if kind in ("task", "each", "wait", "workflow") and not (step.task or step.wait or step.workflow):
        yield WorkflowFault(name, "task", "the name is empty")
    if step.limit < 0:
        yield WorkflowFault(name, "limit", f"{step.limit}: must not be negative")
    if not 1 <= step.max_width <= MAX_WIDTH:
        yield WorkflowFault(name, "max_width", f"{step.max_width}: must be from 1 to {MAX_WIDTH}")
    if step.on_timeout not in ("fail", "skip") and not _is_value(step.on_timeout):
        yield WorkflowFault(name, "on_timeout", f"{step.on_timeout!r} is not fail, skip or {{value: ...}}")
    if kind == "wait" and step.timeout is not None:
        yield from _check_duration(name, "timeout", step.timeout)
    for field, template in (
        ("each", step.each),
        ("args", step.args),
        ("with", step.arguments),
        ("sleep", step.sleep),
        ("timeout", step.timeout),
        ("value", step.value),
    ):
        try:
            list(paths_in(template))
        except PathError as error:
            yield WorkflowFault(name, field, str(error))
    try:
        parse_condition(step.condition or "true")
    except ConditionError as error:
        yield WorkflowFault(name, "if", str(error))
    try:
        parse_rule(step.rule)
    except ValueError as error:
        yield WorkflowFault(name, "rule", str(error))


def _is_value(value: object) -> bool:
    return isinstance(value, dict) and list(cast("dict[str, Any]", value)) == ["value"]


def _check_duration(name: str, field: str, value: Any) -> Iterator[WorkflowFault]:
    if isinstance(value, str) and "${" in value:
        return
    try:
        parse_duration(value, what=field)
    except InvalidOption as error:
        yield WorkflowFault(name, field, str(error))


def _check_graph(content: WorkflowContent) -> Iterator[WorkflowFault]:
    upstream = {name: upstream_of(step) for name, step in content.steps.items()}
    unknown = False
    for name, before in upstream.items():
        for each in before:
            if each not in content.steps:
                unknown = True
                yield WorkflowFault(name, "needs", f"no step {each!r}: {did_you_mean(each, content.steps)}")
    if unknown:
        return
    order, cyclic = sort_steps(upstream)
    for name in cyclic:
        yield WorkflowFault(name, "needs", "the step waits for itself, directly or through others")
    # Ancestors as bits: ten thousand steps need a few megabytes.
    bits = {name: 1 << number for number, name in enumerate(order)}
    ancestors: dict[str, int] = {}
    for name in order:
        ancestors[name] = 0
        for each in upstream[name]:
            ancestors[name] |= ancestors[each] | bits[each]
    for name in order:
        step = content.steps[name]
        yield from _check_rule(name, parse_rule(step.rule), len(upstream[name]))
        for path in step.paths():
            if path.step and not ancestors[name] & bits.get(path.step, 0):
                yield WorkflowFault(name, "needs", f"{path.text}: step {path.step!r} does not run before this one")
            elif flaw := _flaw_of_path(path, content, has_item=step.each is not None):
                yield WorkflowFault(name, "with", flaw)
    yield from _check_output(content)


def _check_rule(name: str, rule: StepRule, upstream: int) -> Iterator[WorkflowFault]:
    least = rule.least or int(rule.name in _NEEDS_UPSTREAM or rule.name.endswith("one_success"))
    if least > upstream:
        yield WorkflowFault(name, "rule", f"{rule.name} needs {least} upstream steps, and there are {upstream}")


def _flaw_of_path(path: Path, content: WorkflowContent, *, has_item: bool) -> str:
    if path.root == "params" and path.keys[0] not in content.params:
        return f"{path.text}: no parameter {path.keys[0]!r}"
    if path.root == "run" and (path.keys[0] not in _RUN_FACTS or len(path.keys) > 1):
        return f"{path.text}: a run has {', '.join(_RUN_FACTS)}"
    if path.root == "item" and not has_item:
        return f"{path.text}: only a step with `each` has an item"
    return ""


def _check_limits(content: WorkflowContent) -> Iterator[WorkflowFault]:
    if content.max_active_runs is not None and any(step.batch for step in content.steps.values()):
        reason = "a batch takes calls from the start of its run, so no run of it can be queued"
        yield WorkflowFault("", "max_active_runs", reason)
    if content.timeout is None:
        return
    try:
        parse_duration(content.timeout, what="timeout")
    except InvalidOption as error:
        yield WorkflowFault("", "timeout", str(error))


def _check_output(content: WorkflowContent) -> Iterator[WorkflowFault]:
    try:
        paths = list(paths_in(content.output))
    except PathError as error:
        yield WorkflowFault("", "output", str(error))
        return
    for path in paths:
        if path.step and path.step not in content.steps:
            yield WorkflowFault("", "output", f"no step {path.step!r}: {did_you_mean(path.step, content.steps)}")
        elif flaw := _flaw_of_path(path, content, has_item=False):
            yield WorkflowFault("", "output", flaw)


def find_wrong_parameter(schemas: Mapping[str, Mapping[str, Any]], params: Mapping[str, Any]) -> str:
    """Return what is wrong with the parameters of a run; "" if nothing is. Those with a default may be omitted."""
    for name, value in params.items():
        if (schema := schemas.get(name)) is None:
            return f"no parameter {name[:_MOST_SHOWN]!r}: {did_you_mean(name, schemas) if schemas else 'it has none'}"
        try:
            flaw = find_misfit(schema, value, purpose=PARAMETERS)
        except (ValueError, UnsupportedFeature) as error:
            flaw = str(error)
        if flaw:
            return f"parameter {name!r}: {flaw}"
    missing = [name for name, schema in schemas.items() if name not in params and "default" not in schema]
    return f"give {', '.join(map(repr, missing))}: it has no default" if missing else ""
