"""Loading of the app that `module:attribute` names on a command line."""

import importlib
import os
import sys
from types import ModuleType
from typing import Any

from taskmq.app import TaskMQ
from taskmq.errors import AppNotFound


def load_app(target: str) -> tuple[TaskMQ, str]:
    """Import an app and return it with its full `module:attribute`.

    Args:
        target: `module:attribute`, a module with exactly one app, or the path of such a module's file.

    Raises:
        AppNotFound: the module cannot be imported, or has no such app, or not exactly one. Errors raised by the
            module itself are not wrapped.
    """
    name, separator, attribute = target.partition(":")
    here = os.getcwd()  # noqa: PTH109 - sys.path holds strings
    if here not in sys.path:
        sys.path.insert(0, here)
    if name.endswith(".py"):
        folder, name = _locate_module(name, target)
        if folder not in sys.path:
            sys.path.insert(0, folder)
    module = _import_module(name, target)
    if not separator:
        attribute = _only_app(module, target)
    found: Any = module
    for part in attribute.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, TaskMQ):
        apps = ", ".join(_apps(module)) or "none"
        raise AppNotFound(f"{target!r}: {name} has no app called {attribute!r}; its apps: {apps}")
    return found, f"{name}:{attribute}"


def _locate_module(path: str, target: str) -> tuple[str, str]:
    """Return the folder to import a module's file from, and the module's name, as for `python PATH`.

    A file in a package is a module of that package. In other folders it is a top-level module, so that its tasks have
    the same names when the file is run as a program.
    """
    if not os.path.isfile(path):  # noqa: PTH113 - sys.path holds strings
        raise AppNotFound(f"{target!r}: file {path} not found; use MODULE:ATTRIBUTE, or FILE:ATTRIBUTE")
    folder, file = os.path.split(os.path.abspath(path))  # noqa: PTH100 - as above
    name = file.removesuffix(".py")
    while os.path.isfile(os.path.join(folder, "__init__.py")):  # noqa: PTH113, PTH118 - as above
        folder, package = os.path.split(folder)
        name = f"{package}.{name}"
    return folder, name


def _import_module(name: str, target: str) -> ModuleType:
    if not all(name.split(".")):
        raise AppNotFound(f"{target!r} is not a module name; use MODULE:ATTRIBUTE")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        # Only if the target itself is missing, not something it imports.
        if error.name is not None and (name == error.name or name.startswith(error.name + ".")):
            hint = f": did you mean '{of_package}'?" if (of_package := _app_in_parent(error.name)) else ""
            raise AppNotFound(f"{target!r}: module {error.name!r} not found; use MODULE:ATTRIBUTE{hint}") from error
        raise


def _app_in_parent(name: str) -> str:
    """Return `module:attribute` for an app given as `module.attribute`; "" if there is none."""
    parent, _, attribute = name.rpartition(".")
    found = getattr(sys.modules.get(parent), attribute, None)
    return f"{parent}:{attribute}" if isinstance(found, TaskMQ) else ""


def _apps(module: ModuleType) -> list[str]:
    return [name for name, value in vars(module).items() if isinstance(value, TaskMQ)]


def _only_app(module: ModuleType, target: str) -> str:
    apps = _apps(module)
    if len({id(getattr(module, name)) for name in apps}) != 1:
        names = ", ".join(apps) or "none"
        raise AppNotFound(f"{target!r}: the module must contain exactly one app, or name one; its apps: {names}")
    return apps[0]
