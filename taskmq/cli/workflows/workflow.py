"""`taskmq workflow`: workflow files, and the workflows that are stored from them."""

import asyncio
from difflib import unified_diff
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import msgspec
from cyclopts import Parameter

from taskmq.api.workflows.definitions import StartRunBody, WorkflowBody
from taskmq.cli.actor import name_caller
from taskmq.cli.exits import FAILED, OK
from taskmq.cli.globals import current_globals, open_app
from taskmq.cli.noun import Noun
from taskmq.cli.output import note, print_rows, printable, write_json, write_line
from taskmq.cli.server_link import Api, ask, first_items, show_record, show_rows, text_of_instant
from taskmq.cli.typed_values import label_of, param_of
from taskmq.errors import InvalidOption, InvalidWorkflow, WorkflowNotFound

if TYPE_CHECKING:
    from taskmq.api.workflows.definitions import WorkflowLineView, WorkflowView
    from taskmq.app import TaskMQ
    from taskmq.app_api.workflow_files.documents import FileFormat
    from taskmq.app_api.workflow_files.reader import WorkflowFile

app = Noun(
    name="workflow", help="Manage workflows: validate, schema, apply, list, show, versions, activate, diff, start."
)

_COLUMNS: Final = ("workflow", "version", "current", "shared", "at")
_Tenant = Annotated[str, Parameter(help="The owning tenant.")]


class SourceFile(NamedTuple):
    """The text of a workflow's file."""

    text: bytes
    form: "FileFormat"


def read_source(file: Path) -> SourceFile:
    """Read a workflow's file; one whose name ends in `.json` is JSON, any other YAML.

    Raises:
        InvalidOption: it cannot be read.
    """
    try:
        return SourceFile(file.read_bytes(), "json" if file.suffix == ".json" else "yaml")
    except OSError as error:
        raise InvalidOption(f"{file}: cannot be read: {error.strerror}") from error


@app.command
def validate(file: Path, /, *others: Path) -> int:
    """Check files of workflows, in YAML or JSON. Exits with 1 if one has a fault.

    Nothing is stored, and no server is needed. With an app, also checks that the tasks exist and accept their
    arguments; tasks of other apps have to be registered in the app's store.

    Args:
        file: The file. A name that ends in .json is JSON, any other YAML.
        others: Further files.
    """
    target = None if current_globals().server is not None else open_app()
    if target is not None and not target.tasks and target.sessions.store_url is None:
        target = None
    rows: list[dict[str, Any]] = []
    for each in (file, *others):
        try:
            found = asyncio.run(_validate(read_source(each), target))
        except InvalidWorkflow as error:
            rows.append({"file": str(each), "workflow": None, "faults": str(error).splitlines()})
        else:
            rows.append({"file": str(each), "workflow": found.content.workflow, "faults": []})
    faulty = [row for row in rows if row["faults"]]
    if current_globals().output == "table":
        for row in faulty:
            for fault in row["faults"]:
                write_line(printable(f"{row['file']}: {fault}"))
    else:
        print_rows((), rows)
    checked = "" if target is not None else "; tasks were not checked: name an app with --app"
    note(f"{len(rows) - len(faulty)} of {len(rows)} files are valid{checked}")
    return FAILED if faulty else OK


async def _validate(source: SourceFile, target: "TaskMQ | None") -> "WorkflowFile":
    from taskmq.app_api.workflow_files.call_checks import find_call_faults
    from taskmq.app_api.workflow_files.reader import read_workflow

    found = read_workflow(source.text, source.form)
    if target is None:
        return found
    async with target:
        if faults := await find_call_faults(target, found.content):
            raise found.refuse(faults)
    return found


@app.command(name="schema")
def print_schema() -> None:
    """Print the JSON Schema of workflow files, for editors.

    In the YAML extension of an editor, name it in the first line of a file:
    `# yaml-language-server: $schema=workflow.schema.json`.
    """
    from taskmq.app_api.workflow_files.json_schema import workflow_schema

    write_json(workflow_schema(), is_pretty=True)


@app.command
@name_caller
def apply(
    file: Path,
    /,
    *,
    tenant: _Tenant = "",
    dry_run: Annotated[bool, Parameter(negative="", help="Store nothing; print the difference.")] = False,
) -> int:
    """Store the workflow of a file. New content becomes the current version; known content changes nothing.

    The schedule in the file starts the current version. Without one, that of an earlier file is removed.

    Exits with 1 if the file has a fault.

    Args:
        file: The file. A name that ends in .json is JSON, any other YAML.
    """
    source = read_source(file)
    try:
        name = _name_in(source)

        async def run(api: Api) -> "tuple[WorkflowView | None, WorkflowView]":
            return await _present(api, name), await api.workflows.put(name, _body(source, dry_run=dry_run))

        before, made = ask(run, tenant=tenant or None)
    except InvalidWorkflow as error:
        for fault in str(error).splitlines():
            write_line(printable(f"{file}: {fault}"))
        return FAILED
    if dry_run and current_globals().output == "table":
        _print_difference(before, made)
        return OK
    show_record(made, lambda: _row(made))
    if made.is_new:
        note(f"workflow {made.name}: version {made.version[:12]} is new, and current")
    elif not made.is_current:
        note(f"workflow {made.name}: the version is known and not current: `taskmq workflow activate` makes it so")
    if made.is_current and made.content.get("schedule") is not None:
        note(f"workflow {made.name}: its schedule starts it: `taskmq schedule show {made.name}`")
    return OK


@app.command(name="list")
def list_workflows(*, tenant: _Tenant = "", limit: int = 50, after: str | None = None) -> None:
    """List workflows by name, each with its current version.

    Args:
        limit: Maximum number of workflows.
        after: Continue after this name, printed at the end of an earlier list.
    """
    found = ask(lambda api: first_items(api.workflows.page, limit, after=after), tenant=tenant or None)
    show_rows(_COLUMNS, found.items, _row)
    if found.next is not None:
        note(f"there are more: --after {found.next}")


@app.command
def show(name: str, /, *, tenant: _Tenant = "", version: str = "") -> None:
    """Print the content of a workflow, as JSON that `apply` accepts. Exits with 3 if there is none.

    Args:
        name: The workflow's name.
        version: A version. Default: the current one.
    """
    found = ask(lambda api: api.workflows.get(name, version=version), tenant=tenant or None)
    if current_globals().output == "table":
        write_json(found.content, is_pretty=True)
    else:
        show_record(found, dict)


@app.command
def versions(name: str, /, *, tenant: _Tenant = "") -> None:
    """List the versions of a workflow, newest first.

    Args:
        name: The workflow's name.
    """
    show_rows(_COLUMNS, ask(lambda api: api.workflows.versions(name), tenant=tenant or None), _row)


@app.command
@name_caller
def activate(name: str, version: str, /, *, tenant: _Tenant = "") -> None:
    """Make a version the current one: runs without a version get it from now on, and its schedule starts them.

    Args:
        name: The workflow's name.
        version: The version.
    """
    made = ask(lambda api: api.workflows.activate(name, version), tenant=tenant or None)
    show_record(made, lambda: _row(made))


@app.command
def diff(name: str, version: str, other: str = "", /, *, tenant: _Tenant = "") -> int:
    """Print the difference between two versions of a workflow. Exits with 1 if there is one.

    Args:
        name: The workflow's name.
        version: The version to start from.
        other: The version to compare with. Default: the current one.
    """

    async def run(api: Api) -> "tuple[WorkflowView, WorkflowView]":
        return await api.workflows.get(name, version=version), await api.workflows.get(name, version=other)

    before, after = ask(run, tenant=tenant or None)
    return FAILED if _print_difference(before, after) else OK


@app.command
@name_caller
def start(
    name: str,
    /,
    *,
    param: Annotated[
        list[str] | None,
        Parameter(name=["--param", "-p"], negative="", help="A parameter, as KEY=VALUE; repeatable."),
    ] = None,
    label: Annotated[
        list[str] | None, Parameter(name="--label", negative="", help="A label, as NAME=VALUE; repeatable.")
    ] = None,
    tenant: _Tenant = "",
    version: str = "",
    run_id: Annotated[str | None, Parameter(name="--id")] = None,
    timeout: str | None = None,
) -> None:
    """Start a run of a workflow; print its id.

    A value is JSON, or a text: -p day=2027-01-31 -p regions='["eu", "us"]'.

    Args:
        name: The workflow's name.
        version: The version to run. Default: the current one.
        run_id: An id: starting it again changes nothing.
        timeout: Maximum duration, such as 6h. Default: that of the workflow.
    """
    params = dict(map(param_of, param or []))
    labels = dict(map(label_of, label or []))
    body = StartRunBody(params=params, version=version, run_id=run_id, labels=labels, timeout=timeout)
    made = ask(lambda api: api.workflows.start(name, body), tenant=tenant or None)
    show_record(made, lambda: {"run": made.run_id, "workflow": name, "version": made.version, "new": made.is_new})


def _row(line: "WorkflowLineView") -> dict[str, Any]:
    return {
        "workflow": line.name,
        "version": line.version,
        "current": line.is_current,
        "shared": line.is_shared,
        "at": text_of_instant(line.at),
    }


def _name_in(source: SourceFile) -> str:
    """Return the name in a file.

    Raises:
        InvalidWorkflow: the file has faults.
    """
    from taskmq.app_api.workflow_files.reader import read_workflow

    return read_workflow(source.text, source.form).content.workflow


def _body(source: SourceFile, *, dry_run: bool) -> WorkflowBody:
    return WorkflowBody(text=source.text.decode(), format=source.form, dry_run=dry_run)


async def _present(api: Api, name: str) -> "WorkflowView | None":
    try:
        return await api.workflows.get(name)
    except WorkflowNotFound:
        return None


def _print_difference(before: "WorkflowView | None", after: "WorkflowView") -> bool:
    """Print the difference between two versions; return whether there is one."""
    lines = list(
        unified_diff(
            [] if before is None else _lines_of(before),
            _lines_of(after),
            "" if before is None else before.version[:12],
            after.version[:12],
            lineterm="",
        )
    )
    for line in lines:
        write_line(printable(line))
    return bool(lines)


def _lines_of(view: "WorkflowView") -> list[str]:
    return msgspec.json.format(msgspec.json.encode(view.content, order="sorted")).decode().splitlines()
