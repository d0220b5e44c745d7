"""Checks of a workflow's calls: whether tasks exist and accept their arguments.

Arguments with references are checked by name only, since their values are known once the run has them.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from taskmq.app import TaskMQ
from taskmq.contracts.jobs import Catalogued
from taskmq.errors import InvalidArguments
from taskmq.model.jobs.call_schemas import bind_arguments, check_names
from taskmq.model.jobs.registrations import TaskRegistration
from taskmq.model.runs.graphs import StepContent, WorkflowContent
from taskmq.model.runs.paths import paths_in, resolve
from taskmq.model.runs.validation import WorkflowFault
from taskmq.model.units import did_you_mean
from taskmq.stored_jobs.task_catalogue import RegisteredSignature
from taskmq.tasks.registration import registration_of_task

_ITEM = "${item}"


async def find_call_faults(app: TaskMQ, content: WorkflowContent) -> list[WorkflowFault]:
    """Return the faults of a workflow's calls by the tasks of the app and those registered in its store."""
    names = sorted({step.task for step in content.steps.values() if step.task})
    known = {name: registration_of_task(app.tasks[name]) for name in names if name in app.tasks}
    others = [name for name in names if name not in known]
    if others and app.sessions.store_url is not None and isinstance(app.sessions.store(), Catalogued):
        for name in others:
            if (found := await app.jobs.catalogue.afind(name)) is not None:
                known[name] = found.registration
    faults: list[WorkflowFault] = []
    for name, step in content.steps.items():
        if not step.task:
            continue
        if (registration := known.get(step.task)) is None:
            hint = (
                did_you_mean(step.task, sorted({*app.tasks, *known}))
                if app.tasks or known
                else "start its worker first"
            )
            faults.append(WorkflowFault(name, "task", f"no task {step.task!r}: {hint}"))
        elif registration.facts.needs_code and step.task not in app.tasks:
            options = ", ".join(f"{each}=" for each in registration.facts.needs_code)
            faults.append(WorkflowFault(name, "task", f"the task has {options}, which needs the app that defines it"))
        else:
            faults += _check_arguments(name, step, registration)
    return faults


def _check_arguments(name: str, step: StepContent, registration: TaskRegistration) -> Iterator[WorkflowFault]:
    args = list(step.args)
    if step.each is not None and not any(path.root == "item" for path in paths_in([step.args, step.arguments])):
        if step.spread:
            # The number of arguments is known once the list is.
            yield from _check_part(name, step.arguments, registration)
            return
        args = [_ITEM, *args]
    try:
        bound = bind_arguments(registration, args, step.arguments)
    except InvalidArguments as error:
        yield WorkflowFault(name, "args", _own_words(error, registration))
        return
    schema: Any = msgspec.json.decode(registration.schema)
    missing = [each for each in schema.get("required", ()) if each not in bound]
    if missing:
        yield WorkflowFault(name, "with", f"task {registration.task} needs {', '.join(map(repr, missing))}")
    yield from _check_part(name, bound, registration)


def _check_part(name: str, arguments: Mapping[str, Any], registration: TaskRegistration) -> Iterator[WorkflowFault]:
    literal = {key: resolve(value, _refuse) for key, value in arguments.items() if not any(paths_in(value))}
    try:
        check_names(registration, arguments)
        RegisteredSignature(registration).check_part(literal)
    except InvalidArguments as error:
        yield WorkflowFault(name, "with", _own_words(error, registration))


def _own_words(error: InvalidArguments, registration: TaskRegistration) -> str:
    return str(error).removeprefix(f"task {registration.task}: ")


def _refuse(path: object) -> Any:
    raise AssertionError(f"{path} is not a literal")
