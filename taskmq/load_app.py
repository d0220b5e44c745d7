"""From `module:attribute` on a command line to the app it names."""

import importlib
import os
import sys
from types import ModuleType
from typing import Any

from taskmq.app import TaskMQ
from taskmq.errors import AppNotFound

__all__ = ["load_app"]


def load_app(target: str) -> tuple[TaskMQ, str]:
    """The app, and its full `module:attribute`.

    Args:
        target: `module:attribute`, a module with exactly one app, or the path of such a module's file.

    Raises:
        AppNotFound: the module cannot be imported, or does not hold exactly one app of that name. Errors that
            the module itself raises come through as they are.
    """
    name, separator, attribute = target.partition(":")
    here = os.getcwd()  # noqa: PTH109 - sys.path holds strings
    if here not in sys.path:
        sys.path.insert(0, here)
    if name.endswith(".py"):
        folder, name = _imported_as(name, target)
        if folder not in sys.path:
            sys.path.insert(0, folder)
    module = _imported(name, target)
    if not separator:
        attribute = _only_app(module, target)
    found: Any = module
    for part in attribute.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, TaskMQ):
        apps = ", ".join(_apps(module)) or "none"
        raise AppNotFound(f"{target!r}: {name} has no app called {attribute!r}; apps in it: {apps}")
    return found, f"{name}:{attribute}"


def _imported_as(path: str, target: str) -> tuple[str, str]:
    """The folder that a module's file is imported from, and the module's name: those of `python PATH`.

    A file of a package is a module of that package; in other folders it is one of its own, so that its tasks have the
    same names where the file is run as a program.
    """
    if not os.path.isfile(path):  # noqa: PTH113 - sys.path holds strings
        raise AppNotFound(f"{target!r}: there is no file {path}; use MODULE:ATTRIBUTE, or FILE:ATTRIBUTE")
    folder, file = os.path.split(os.path.abspath(path))  # noqa: PTH100 - as above
    name = file.removesuffix(".py")
    while os.path.isfile(os.path.join(folder, "__init__.py")):  # noqa: PTH113, PTH118 - as above
        folder, package = os.path.split(folder)
        name = f"{package}.{name}"
    return folder, name


def _imported(name: str, target: str) -> ModuleType:
    if not all(name.split(".")):
        raise AppNotFound(f"{target!r} is no module name; use MODULE:ATTRIBUTE")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        # Only when it is the target itself that is missing, not something it imports.
        if error.name is not None and (name == error.name or name.startswith(error.name + ".")):
            hint = f": did you mean '{of_package}'?" if (of_package := _app_in_parent(error.name)) else ""
            raise AppNotFound(
                f"{target!r}: there is no module {error.name!r} here; use MODULE:ATTRIBUTE{hint}"
            ) from error
        raise


def _app_in_parent(name: str) -> str:
    """`module:attribute` of the app that was asked for as `module.attribute`; "" where there is none."""
    parent, _, attribute = name.rpartition(".")
    found = getattr(sys.modules.get(parent), attribute, None)
    return f"{parent}:{attribute}" if isinstance(found, TaskMQ) else ""


def _apps(module: ModuleType) -> list[str]:
    return [name for name, value in vars(module).items() if isinstance(value, TaskMQ)]


def _only_app(module: ModuleType, target: str) -> str:
    apps = _apps(module)
    if len({id(getattr(module, name)) for name in apps}) != 1:
        names = ", ".join(apps) or "none"
        raise AppNotFound(f"{target!r}: the module must hold exactly one app, or say which; apps in it: {names}")
    return apps[0]
