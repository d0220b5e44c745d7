"""Reference tables in the pages, generated from the code: `python -m tests.docs.reference_pages`."""

import importlib
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path

from cyclopts import App

import taskmq.errors
from benchmarks.job_store.figures import goals_table
from taskmq.api.problems import PROBLEMS
from taskmq.cli.exits import exit_code
from taskmq.cli.root import _COMMANDS  # pyright: ignore[reportPrivateUsage]
from taskmq.control_flow import TaskControl
from taskmq.errors import TaskMQError
from tests.docs.api_tables import API_TABLES
from tests.docs.blocks import ROOT
from tests.docs.options_page import PAGE as OPTIONS
from tests.docs.process_tables import PROCESS_TABLES
from tests.docs.settings_tables import SETTING_TABLES
from tests.docs.telemetry_tables import EVENT_TABLES, METRIC_TABLES, SPAN_TABLES
from tests.features.table import feature_table

ERRORS = ROOT / "docs" / "errors.md"
_COMMAND_PAGE = ROOT / "docs" / "commands.md"
_SETTINGS = ROOT / "docs" / "settings.md"
_METRICS = ROOT / "docs" / "metrics.md"
_API = ROOT / "docs" / "api.md"
_EVENTS = ROOT / "docs" / "events.md"
_LANES = ROOT / "docs" / "lanes.md"
_SCHEDULER = ROOT / "docs" / "scheduler-measured.md"
_FIGURES = ROOT / "benchmarks" / "results" / "job_store.json"


def _errors() -> str:
    """Return each error with its meaning, its class, its HTTP status and its exit code."""
    lines = ["| error | means | is a | HTTP | exit code |", "|---|---|---|---|---|"]
    over_http = {kind: f"{status} `{code}`" for kind, status, code, _ in PROBLEMS}
    for name in taskmq.errors.__all__:
        kind = getattr(taskmq.errors, name)
        if not issubclass(kind, TaskMQError) or kind is TaskMQError:
            continue
        parents = ", ".join(f"`{base.__name__}`" for base in kind.__bases__ if base is not TaskMQError)
        lines.append(f"| `{name}` | {_first(kind)} | {parents} | {over_http.get(kind, '')} | {_exit_code(kind)} |")
    return "\n".join(lines)


def _exit_code(kind: type[TaskMQError]) -> str:
    try:
        return str(exit_code(kind.__new__(kind)))
    except AttributeError:
        # The class is not enough: it was created without the deciding facts.
        return "by its cause"


def _controls() -> str:
    """Return the exceptions with which a task controls the end of its run."""
    lines = ["| raised by a task | means |", "|---|---|"]
    for name in taskmq.errors.__all__:
        kind = getattr(taskmq.errors, name)
        if issubclass(kind, TaskControl) and kind is not TaskControl:
            lines.append(f"| `{name}` | {_first(kind)} |")
    return "\n".join(lines)


def _first(described: object) -> str:
    """Return the first paragraph of a docstring, in one line."""
    return " ".join((inspect.getdoc(described) or "").partition("\n\n")[0].split()).replace("|", "\\|")


def _commands() -> str:
    """Return each command with the first sentence of its help."""
    lines = ["| command | does |", "|---|---|"]
    for name, (place, text) in _COMMANDS.items():
        lines.append(f"| `taskmq {name}` | {text} |")
        module, _, attribute = place.partition(":")
        found = getattr(importlib.import_module(module), attribute)
        if isinstance(found, App):
            lines += _below(found, f"taskmq {name}")
    return "\n".join(lines)


def _below(app: App, path: str) -> list[str]:
    lines: list[str] = []
    for name in app:
        if not name.startswith("-"):
            command = app[name]
            text = " ".join(str(command.help).partition("\n\n")[0].split()).replace("|", "\\|")
            lines += [f"| `{path} {name}` | {text} |", *_below(command, f"{path} {name}")]
    return lines


def leaf_commands() -> Iterator[tuple[str, Callable[..., object]]]:
    """Return each executable command, by its words after `taskmq`, with its function."""
    for name, (place, _) in _COMMANDS.items():
        module, _, attribute = place.partition(":")
        yield from _leaves(getattr(importlib.import_module(module), attribute), name)


def _leaves(found: App | Callable[..., object], path: str) -> Iterator[tuple[str, Callable[..., object]]]:
    if not isinstance(found, App):
        yield path, found
        return
    if found.default_command is not None:
        yield path, found.default_command
    for name in found:
        if not name.startswith("-"):
            yield from _leaves(found[name], f"{path} {name}")


TABLES: dict[str, tuple[Path, Callable[[], str]]] = {
    "errors": (ERRORS, _errors),
    "controls": (ERRORS, _controls),
    "commands": (_COMMAND_PAGE, _commands),
    **{name: (_SETTINGS, table) for name, table in SETTING_TABLES.items()},
    **{name: (_METRICS, table) for name, table in (*METRIC_TABLES.items(), *SPAN_TABLES.items())},
    **{name: (_EVENTS, table) for name, table in EVENT_TABLES.items()},
    "features and their servers": (_LANES, feature_table),
    "goals of the job store": (_SCHEDULER, lambda: goals_table(_FIGURES)),
    **{name: (OPTIONS, table) for name, table in PROCESS_TABLES.items()},
    **{name: (_API, table) for name, table in API_TABLES.items()},
}


def fill_page(name: str) -> tuple[Path, str]:
    """Return the page of a table, and its text with the generated table."""
    page, table = TABLES[name]
    begin, end = f"<!-- {name}: python -m tests.docs.reference_pages -->", f"<!-- end of {name} -->"
    before, _, rest = page.read_text().partition(begin)
    return page, f"{before}{begin}\n\n{table()}\n\n{end}{rest.partition(end)[2]}"


if __name__ == "__main__":
    for each in TABLES:
        written, text = fill_page(each)
        written.write_text(text)
