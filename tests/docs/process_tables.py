"""The tables of process options, generated from their commands: those that `--help` shows."""

import importlib
from collections.abc import Callable, Mapping
from typing import Any, Final, get_origin

from cyclopts import App, Argument

from taskmq.cli.root import _COMMANDS  # pyright: ignore[reportPrivateUsage]
from taskmq.worker import WorkerConfig
from taskmq.worker.config_option import options_of
from tests.docs.options_page import effect_and_default, texts_of

_PROCESSES: Final = ("worker", "beat", "scheduler", "server")


def _of_process(name: str) -> Callable[[], str]:
    return lambda: _options(name)


def _options(process: str) -> str:
    """Return all public options, except those passed to each worker process: they have their own table."""
    place, _ = _COMMANDS[process]
    module, _, attribute = place.partition(":")
    found = getattr(importlib.import_module(module), attribute)
    command: Any = found.default_command if isinstance(found, App) else found
    texts = texts_of(command)
    own = {f"--{name.replace('_', '-')}" for name in options_of(WorkerConfig)}
    lines = ["| option | values | default | what it does |", "|---|---|---|---|"]
    for argument in App(default_command=command).assemble_argument_collection():
        flag = argument.names[0]
        if flag.startswith("-") and argument.show and flag not in own:
            what, said = effect_and_default(texts[argument.field_info.name])
            names = ", ".join(f"`{name}`" for name in argument.names if not name.startswith("--no-"))
            lines.append(f"| {names} | {_values(argument)} | {said or _default(argument)} | {what} |")
    return "\n".join(lines)


def _values(argument: Argument) -> str:
    if get_origin(argument.hint) is tuple:
        return "text, several times"
    return {bool: "switch", int: "whole number", float: "number"}.get(argument.hint, "text")


def _default(argument: Argument) -> str:
    variables = ", ".join(f"`${name}`" for name in argument.parameter.env_var or ())
    default = argument.field_info.default
    if argument.hint is bool:
        return f"on; `--no-{argument.names[0].removeprefix('--')}`" if default else "off"
    if default in (None, "", ()):
        return variables or "none"
    return f"`{default:g}`" if isinstance(default, float) else f"`{default}`"


PROCESS_TABLES: Final[Mapping[str, Callable[[], str]]] = {
    f"options of `taskmq {name}`": _of_process(name) for name in _PROCESSES
}
