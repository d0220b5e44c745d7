"""The tables of docs/options.md, generated from the code: `python -m tests.docs.options_page`.

The effect of an option is written once, in the docstring or annotation of its definition.
"""

import ast
import functools
import inspect
import re
import sys
import textwrap
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from datetime import timedelta
from types import ModuleType
from typing import Any

from taskmq import Concurrency, RateLimit, RetryPolicy, TaskMQ, WorkQueue
from taskmq.client.settings import Settings
from taskmq.model.units import size_text
from taskmq.options.task_options import CallOptions, TaskOptions
from taskmq.tasks.job_options import StoreOptions
from taskmq.worker.config import WorkerConfig
from taskmq.worker.config_option import ConfigOption, options_of
from tests.docs.blocks import ROOT

PAGE = ROOT / "docs" / "options.md"
_DEFAULT = re.compile(r"\s*Default: (?P<value>.*?)\.?$", re.DOTALL)
_SECTIONS = ("Args:", "Attributes:")

# Readable names of types; other types are written as in code.
_WORDS = {
    "str": "text",
    "int": "whole number",
    "float": "number",
    "bool": "`True`, `False`",
    "None": "`None`",
    "Duration": "duration",
    "Size": "size",
    "KeyMaker": "key",
    "Mapping[str, str]": "mapping of text",
    "Mapping[str, float | str]": "mapping",
    "Mapping[str, HeaderValue]": "mapping",
    "Mapping[str, object]": "mapping",
    "PlaceOptions": "mapping",
    "RetryOptions": "mapping",
    "DependsOn": "list of jobs, ids or pairs",
    "Any": "session or connection",
    "Iterable[str | ModuleType]": "modules",
    "Iterable[WorkQueue]": "`WorkQueue`s",
    "Sequence[Middleware]": "`Middleware`s",
    "tuple[type[BaseException], ...]": "tuple of exceptions",
    "datetime": "`datetime`",
    "Clock": "`Clock`",
}


@dataclass(frozen=True)
class Option:
    """A row of a table."""

    name: str
    values: str
    default: str
    text: str
    where: str = ""

    def row(self) -> str:
        cells = [f"`{self.name}`", self.values, self.default, self.text, self.where]
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells if cell) + " |"


@functools.cache
def tables() -> dict[str, str]:
    """Return each table by its name."""
    found = {
        "task": (_task_options(), "where"),
        "call": (_call_options(), ""),
        "stored": (_stored_options(), ""),
        "app": (_app_options(), "where"),
        "worker": (_worker_options(), "where"),
        "RetryPolicy": (_fields_of(RetryPolicy), ""),
        "RateLimit": (_fields_of(RateLimit), ""),
        "Concurrency": (_fields_of(Concurrency), ""),
        "WorkQueue": (_fields_of(WorkQueue), ""),
    }
    return {name: _table(options, where) for name, (options, where) in found.items()}


def _table(options: list[Option], where: str) -> str:
    heads = ["option", "values", "default", "what it does", *([where] if where else [])]
    head = f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}\n"
    return head + "\n".join(option.row() for option in options)


def _task_options() -> list[Option]:
    texts, values = texts_of(TaskOptions), _values_of_class(TaskOptions)
    return [
        _describe_option(
            name, values[name], texts[name], where="task, call" if name in _names(CallOptions) else "task"
        )
        for name in _names(TaskOptions)
    ]


def _call_options() -> list[Option]:
    bases = _bases_of(CallOptions)
    texts = {name: text for kind in bases for name, text in texts_of(kind).items()}
    values = {name: value for kind in bases for name, value in _values_of_class(kind).items()}
    of_task = texts_of(TaskOptions)
    found: list[Option] = []
    for name in _names(CallOptions):
        if name in texts:
            found.append(_describe_option(name, values[name], texts[name]))
        else:
            text, _ = effect_and_default(of_task[name])
            found.append(Option(name, values[name], "the task's", text))
    return found


def _stored_options() -> list[Option]:
    bases = _bases_of(StoreOptions)
    texts = {name: text for kind in bases for name, text in texts_of(kind).items()}
    values = {name: value for kind in bases for name, value in _values_of_class(kind).items()}
    return [_describe_option(name, values[name], texts[name]) for name in values]


def _app_options() -> list[Option]:
    texts = texts_of(TaskMQ)
    values = _values_of_function(TaskMQ.__init__)
    settings = {field.name for field in fields(Settings)}
    found: list[Option] = []
    for name, parameter in inspect.signature(TaskMQ).parameters.items():
        where = [f"`TaskMQ({name}=)`"]
        if name in settings:
            where += [f"`$TASKMQ_{name.upper()}`", f"`{name}` in the file"]
        if name in {"url", "state"}:
            where.append(f"`--{name}`")
        found.append(
            _describe_option(
                name, values[name], texts[name], default=_format_value(parameter.default), where=", ".join(where)
            )
        )
    return found


def _worker_options() -> list[Option]:
    settings = {field.name for field in fields(Settings)}
    config = WorkerConfig()
    found: list[Option] = []
    for name, (kind, option) in options_of(WorkerConfig).items():
        flag = f"--{name.replace('_', '-')}"
        where = [", ".join(f"`{each}`" for each in (flag, *option.flags))]
        if name in settings:
            where += [f"`$TASKMQ_{name.upper()}`", f"`{name}` in the file"]
        value = getattr(config, name)
        found.append(
            _describe_option(
                name,
                _values_of_config(kind, option),
                option.help,
                default=_format_value(value if option.read is None or value is None else option.show(value)),
                where=", ".join(where),
            )
        )
    return found


def _fields_of(kind: type) -> list[Option]:
    texts, values = texts_of(kind), _values_of_class(kind)
    return [
        _describe_option(name, values[name], texts[name], default=_format_value(parameter.default))
        for name, parameter in inspect.signature(kind).parameters.items()
    ]


def _names(kind: type) -> list[str]:
    return list(kind.__annotations__)


# Description


def _describe_option(name: str, values: str, text: str, *, default: str = "", where: str = "") -> Option:
    text, said = effect_and_default(text)
    return Option(name, values, said or default or "none", text, where)


def effect_and_default(text: str) -> tuple[str, str]:
    """Return the effect of an option, and the default in its text."""
    found = _DEFAULT.search(text)
    if found is None:
        return _sentence(text), ""
    return _sentence(text[: found.start()]), found["value"]


def _sentence(text: str) -> str:
    text = text.rstrip()
    first = text if text.startswith("`") else text[:1].upper() + text[1:]
    return first if first.endswith(".") else f"{first}."


def texts_of(described: Callable[..., object]) -> dict[str, str]:
    """Return the text of each name in the `Args` or `Attributes` of a docstring."""
    lines = inspect.cleandoc(described.__doc__ or "").splitlines()
    begin = next(number for number, line in enumerate(lines) if line in _SECTIONS) + 1
    body: list[str] = []
    for line in lines[begin:]:
        if line and not line.startswith(" "):
            break
        body.append(line)
    found: dict[str, str] = {}
    for entry in re.split(r"\n(?=\w+: )", textwrap.dedent("\n".join(body)).strip()):
        name, _, text = entry.partition(": ")
        found[name] = " ".join(text.split())
    return found


def _format_value(value: object) -> str:
    if value is inspect.Parameter.empty:
        return "required"
    if value is None or value in {(), ""}:
        return "none"
    if isinstance(value, tuple):
        return f"`({', '.join(each.__name__ for each in value)},)`"
    if isinstance(value, str):
        return f"`{value}`"
    if isinstance(value, float):
        value = timedelta(seconds=value)
    if isinstance(value, timedelta):
        minutes, seconds = divmod(value.total_seconds(), 60)
        return f"`{seconds:g}s`" if seconds else f"`{minutes:g}m`"
    return f"`{value}`"


# Values


def _bases_of(kind: type) -> list[type]:
    """Return a `TypedDict` and those that it extends, the most general one first."""
    names = [base.id for base in _source_of(kind).bases if isinstance(base, ast.Name)]
    module = sys.modules[kind.__module__]
    return [*(each for name in names if name != "TypedDict" for each in _bases_of(getattr(module, name))), kind]


def _source_of(kind: type) -> ast.ClassDef:
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(definition, ast.ClassDef)
    return definition


def _values_of_class(kind: type) -> dict[str, str]:
    definition, module = _source_of(kind), sys.modules[kind.__module__]
    return {
        node.target.id: _values(node.annotation, module)
        for node in definition.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }


def _values_of_function(function: Callable[..., Any]) -> dict[str, str]:
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    assert isinstance(definition, ast.FunctionDef)
    module = sys.modules[function.__module__]
    arguments = [*definition.args.args, *definition.args.kwonlyargs]
    return {each.arg: _values(each.annotation, module) for each in arguments if each.annotation is not None}


def _values(annotation: ast.expr, module: ModuleType) -> str:
    parts = [_value(each, module) for each in _alternatives(annotation)]
    # None means no value; the default explains it.
    return " or ".join(part for part in parts if part != "`None`" or len(parts) == 1)


def _alternatives(annotation: ast.expr) -> list[ast.expr]:
    if isinstance(annotation, ast.BinOp):
        return [*_alternatives(annotation.left), *_alternatives(annotation.right)]
    return [annotation]


def _value(annotation: ast.expr, module: ModuleType) -> str:
    written = ast.unparse(annotation)
    if written in _WORDS:
        return _WORDS[written]
    if written.startswith("Sequence["):
        inner = annotation.slice if isinstance(annotation, ast.Subscript) else annotation
        return "list of these" if isinstance(inner, ast.BinOp) else f"list of {_value(inner, module)}"
    meant = eval(written, vars(module))
    if typing.get_origin(meant) is typing.Literal:
        return ", ".join(f"`{choice}`" for choice in typing.get_args(meant))
    return f"`{written}`"


def _values_of_config(kind: type, option: ConfigOption) -> str:
    if typing.get_origin(kind) is typing.Literal:
        return ", ".join(f"`{choice}`" for choice in typing.get_args(kind))
    if option.show is size_text:
        return "size"
    if option.read is not None:
        return "duration" if kind is float else option.rule or "text"
    return {bool: "switch", str: "text"}.get(kind, "whole number")


_MARK = "<!-- {}: python -m tests.docs.options_page -->"
_END = "<!-- end of {} -->"


def fill_tables(page: str, made: Mapping[str, str]) -> str:
    """Return the page with these tables."""
    for name, table in made.items():
        before, begin, rest = page.partition(_MARK.format(name))
        _, end, after = rest.partition(_END.format(name))
        assert begin, f"docs/options.md has no place for the table of {name}"
        assert end, f"docs/options.md has no end of the table of {name}"
        page = f"{before}{begin}\n\n{table}\n\n{end}{after}"
    return page


if __name__ == "__main__":
    PAGE.write_text(fill_tables(PAGE.read_text(), tables()))
