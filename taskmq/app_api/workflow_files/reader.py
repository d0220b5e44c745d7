"""Workflows as files contain them: content, and faults with their lines."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from taskmq.api.job_requests import JobTerms
from taskmq.app_api.jobs.orders import options_of
from taskmq.app_api.workflow_files.documents import Document, DocumentError, FileFormat, read_document
from taskmq.app_api.workflow_files.schedules import SCHEDULE, find_schedule_faults
from taskmq.errors import InvalidOption, InvalidWorkflow
from taskmq.model.envelope import check_task_name
from taskmq.model.identity import check_answerer
from taskmq.model.runs.graphs import StepContent, WorkflowContent
from taskmq.model.runs.paths import paths_in
from taskmq.model.runs.validation import PARAMETERS, WorkflowFault, validate_workflow
from taskmq.model.values.schemas import find_flaw, find_misfit
from taskmq.tasks.job_options import JobPlan, plan_job

JOB_WORDS: Final = frozenset(JobTerms.__struct_fields__) - {"timeout", "expires_in", "node_labels"} | {
    "expires",
    "retries",
}
"""Options of a step's jobs that may stand among its fields."""

_MOST_FAULTS: Final = 50
_LONGEST_FAULT: Final = 500


class WorkflowFile(NamedTuple):
    """A workflow of a file without faults.

    Attributes:
        document: the file's values, for the lines of further faults.
    """

    content: WorkflowContent
    document: Document

    def refuse(self, faults: Iterable[WorkflowFault]) -> InvalidWorkflow:
        """Build the error for faults that were found later."""
        return _refuse(self.document, faults)


def read_workflow(text: bytes, form: FileFormat, *, name: str = "") -> WorkflowFile:
    """Return the workflow of a file.

    Args:
        name: name that the workflow must have; "": the file must name it.

    Raises:
        InvalidWorkflow: the file has faults.
        UnsupportedFeature: a library for files of workflows is not installed.
    """
    try:
        document = read_document(text, form)
    except DocumentError as error:
        raise InvalidWorkflow(f"line {error.line}: {error}") from None
    fields = {"workflow": name, **document.value}
    # Its faults are found below, each with its field.
    fields.pop(SCHEDULE, None)
    content, faults = validate_workflow(fields, options=JOB_WORDS)
    faults += _check_name(fields["workflow"], name)
    if SCHEDULE in document.value:
        schedule = document.value[SCHEDULE]
        faults += find_schedule_faults(schedule, {} if content is None else content.params)
        content = content and replace(content, schedule=schedule)
    if content is not None:
        steps: dict[str, StepContent] = {}
        for step_name, step in content.steps.items():
            steps[step_name], of_options = _read_options(step_name, step)
            faults += [*of_options, *_check_wait(step_name, step)]
        content = replace(content, steps=steps)
        faults += _check_params(content.params)
    if content is None or faults:
        raise _refuse(document, faults)
    return WorkflowFile(content, document)


def _refuse(document: Document, faults: Iterable[WorkflowFault]) -> InvalidWorkflow:
    found = sorted((document.line_of(_place_of(fault)), str(fault)) for fault in faults)
    shown = (f"line {line}, {' '.join(text.split())[:_LONGEST_FAULT]}" for line, text in found[:_MOST_FAULTS])
    return InvalidWorkflow("\n".join(shown))


def _place_of(fault: WorkflowFault) -> tuple[str | int, ...]:
    keys = [int(key) if key.isdigit() else key for key in re.findall(r"[^.\[\]]+", fault.field)]
    return ("steps", fault.step, *keys) if fault.step else tuple(keys)


def _check_name(found: Any, wanted: str) -> Iterator[WorkflowFault]:
    if not isinstance(found, str):
        return
    if wanted and found != wanted:
        yield WorkflowFault("", "workflow", f"the file names {found!r}, not {wanted!r}")
        return
    try:
        check_task_name(found)
    except InvalidOption:
        yield WorkflowFault("", "workflow", "give a name of 1 to 128 characters of A-Z a-z 0-9 _ . : -")


def _read_options(name: str, step: StepContent) -> tuple[StepContent, list[WorkflowFault]]:
    """Return a step whose options are those of `DefinitionOptions`, and the faults of its options."""
    words = dict(step.options)
    if "retries" in words:
        retries = words.pop("retries")
        if "max_attempts" in words:
            return step, [WorkflowFault(name, "retries", "give either retries or max_attempts")]
        if not isinstance(retries, int) or isinstance(retries, bool) or retries < 0:
            return step, [WorkflowFault(name, "retries", f"{retries!r} is not a number of retries")]
        words["max_attempts"] = retries + 1
    if "expires" in words:
        words["expires_in"] = words.pop("expires")
    if step.timeout is not None and step.kind != "wait" and not any(paths_in(step.timeout)):
        words["timeout"] = step.timeout
    try:
        options = dict(options_of(msgspec.convert(words, JobTerms)))
    except msgspec.ValidationError as error:
        message, _, where = str(error).partition(" - at `$.")
        return step, [WorkflowFault(name, where.strip("`").replace("expires_in", "expires") or "options", message)]
    faults = list(_check_options(name, step.task, options))
    options.pop("timeout", None)
    return replace(step, options=msgspec.to_builtins(options)), faults


def _check_options(name: str, task: str, options: Mapping[str, Any]) -> Iterator[WorkflowFault]:
    """Yield the faults of options, one by one and then together."""
    plan = JobPlan(queue="")
    alone = [{option: value} for option, value in options.items()]
    for given in [*alone, options]:
        try:
            plan_job(plan, given, task=task)
        except InvalidOption as error:
            word = next(iter(given)) if len(given) == 1 else "options"
            yield WorkflowFault(name, word, str(error).removeprefix(f"task {task}: "))
            return


def _check_wait(name: str, step: StepContent) -> Iterator[WorkflowFault]:
    for role in step.roles:
        try:
            check_answerer(role)
        except InvalidOption as error:
            yield WorkflowFault(name, "roles", str(error))
    if step.form is not None and (flaw := find_flaw(step.form, purpose="forms of signals")):
        yield WorkflowFault(name, "form", flaw)


def _check_params(params: Mapping[str, Mapping[str, Any]]) -> Iterator[WorkflowFault]:
    for name, schema in params.items():
        if flaw := find_flaw(schema, purpose=PARAMETERS):
            yield WorkflowFault("", f"params.{name}", flaw)
        elif "default" in schema and (flaw := find_misfit(schema, schema["default"], purpose=PARAMETERS)):
            yield WorkflowFault("", f"params.{name}.default", flaw)
