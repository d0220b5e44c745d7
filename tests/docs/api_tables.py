"""The tables of docs/api.md: signatures of `app.jobs` and `app.schedules`, and the fields of `JobFilter`."""

import ast
import inspect
import re
import textwrap
import typing
from collections.abc import Callable
from typing import Any, Final

from taskmq.model.jobs.filters import JobFilter
from taskmq.schedules.schedules import Schedules
from taskmq.stored_jobs import Jobs

# A name of a task, or the task: the overloads for the checkers say the same in six ways.
_TASK: Final = ("task: str", "task: Task | Call | str")


def _methods(kind: type) -> str:
    """Return each method with an async twin, its signature, and the first paragraph of its docstring."""
    lines = ["| method | does |", "|---|---|"]
    for name in sorted(name for name in dir(kind) if not name.startswith("_") and hasattr(kind, f"a{name}")):
        function = getattr(kind, name)
        text = " ".join((inspect.getdoc(function) or "").partition("\n\n")[0].split())
        lines.append(f"| `{_cell(_signature(function))}` | {_cell(text)} |")
    return "\n".join(lines)


def _signature(function: Callable[..., Any]) -> str:
    overloads = typing.get_overloads(function)
    source = inspect.getsource(overloads[0] if overloads else function)
    (node,) = ast.parse(textwrap.dedent(source)).body
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    arguments = ast.unparse(node.args).removeprefix("self").removeprefix(", ").replace("=...", "")
    # Annotations of later names are texts.
    arguments = re.sub(r": '([^']+)'", r": \1", arguments)
    arguments = re.sub(r"(?<=[\w\]])=(?=[\w'(])", " = ", arguments)
    if overloads:
        arguments = arguments.replace(*_TASK)
    returns = "None" if node.returns is None else ast.unparse(node.returns).strip("'")
    return f"{function.__name__}({arguments})" + (f" -> {returns}" if returns != "None" else "")


def _fields() -> str:
    """Return each field of a filter with its type and meaning."""
    (definition,) = ast.parse(inspect.getsource(JobFilter)).body
    assert isinstance(definition, ast.ClassDef)
    types = {
        node.target.id: ast.unparse(node.annotation)
        for node in definition.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    texts = inspect.getdoc(JobFilter) or ""
    entries = re.findall(r"^    ([\w, ]+): (.+(?:\n        .+)*)", texts, re.MULTILINE)
    lines = ["| field | type | fits jobs |", "|---|---|---|"]
    for names, text in entries:
        fields = names.split(", ")
        said = ", ".join(f"`{name}`" for name in fields)
        lines.append(f"| {said} | `{_cell(types[fields[0]])}` | {_cell(' '.join(text.split()))} |")
    return "\n".join(lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


API_TABLES: dict[str, Callable[[], str]] = {
    "app.jobs": lambda: _methods(Jobs),
    "app.schedules": lambda: _methods(Schedules),
    "JobFilter": _fields,
}
