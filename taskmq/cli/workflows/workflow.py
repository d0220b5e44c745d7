"""`taskmq workflow`: workflow files."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from cyclopts import App

from taskmq.cli.exits import FAILED, OK
from taskmq.cli.globals import current_globals, open_app
from taskmq.cli.output import note, print_rows, printable, write_json, write_line
from taskmq.errors import InvalidOption, InvalidWorkflow

if TYPE_CHECKING:
    from taskmq.app import TaskMQ
    from taskmq.app_api.workflow_files.documents import FileFormat
    from taskmq.app_api.workflow_files.reader import WorkflowFile

__all__ = ["app"]

app = App(name="workflow", help="Check workflow files: validate, schema.", result_action="return_value")


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

    Parameters
    ----------
    file
        The file. A name that ends in .json is JSON, any other YAML.
    others
        Further files.
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
