"""Options that every command has."""

import contextlib
import logging
import sys
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from taskmq.errors import InvalidOption, InvalidSetting

if TYPE_CHECKING:
    from taskmq.app import TaskMQ

__all__ = [
    "Format",
    "Globals",
    "current_globals",
    "only_here",
    "open_app",
    "run_with_app",
    "set_globals",
    "target_of",
]

T = TypeVar("T")

Format = Literal["table", "json", "jsonl"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Globals:
    """What was said before the command, or is the same for all.

    Attributes:
        server: the URL of the server that commands go through, in place of app, broker, state and store.
        is_insecure: whether a token may go to a server on another machine without TLS.
        by: who runs the command; None: the system's user.
        tenant: whose things the command is about, through a server; None: the token's.
    """

    app: str | None = None
    url: str | None = None
    state: str | None = None
    store: str | None = None
    output: Format = "table"
    log_level: int = logging.INFO
    server: str | None = None
    is_insecure: bool = False
    by: str | None = None
    tenant: str | None = None


_current: ContextVar[Globals | None] = ContextVar("taskmq_cli_globals", default=None)


def set_globals(options: Globals) -> None:
    """Keep them for the command that is about to run."""
    _current.set(options)


def current_globals() -> Globals:
    return _current.get() or Globals()


def target_of(given: str | None) -> str:
    """The app's `module:attribute`: from the argument, `--app`, or the settings.

    Raises:
        InvalidSetting: neither flag nor setting names it.
    """
    target = given or current_globals().app or _settings_app()
    if target is None:
        raise InvalidSetting("which app? Say MODULE:ATTRIBUTE, --app, $TASKMQ_APP, or app= in taskmq.toml")
    return target


def only_here(**given: Any) -> None:
    """See that no option is used that the API does not have; its name, and whether it was given.

    Raises:
        InvalidOption: one is.
    """
    for name, value in given.items():
        if value:
            raise InvalidOption(
                f"--{name.replace('_', '-')} does not go through a server: leave it out, or say --app in place of "
                "--server"
            )


def open_app() -> "TaskMQ":
    """The app of `--app` or the settings; without one an app that has no tasks, at the configured broker."""
    from taskmq.app import TaskMQ
    from taskmq.load_app import load_app

    options = current_globals()
    if options.server is not None:
        raise InvalidSetting(
            f"this command does not go through a server, and {options.server} is one: leave --server and "
            "$TASKMQ_SERVER out, and say which app, broker or store it is about"
        )
    target = options.app or _settings_app()
    # Standard output is for data: what the app's modules print when they are imported goes to standard error.
    with contextlib.redirect_stdout(sys.stderr):
        app = TaskMQ() if target is None else load_app(target)[0]
    app.sessions.configure(url=options.url, state=options.state, store=options.store, name="taskmq cli")
    return app


def run_with_app(use: "Callable[[TaskMQ], Coroutine[Any, Any, T]]") -> T:
    """What `use` comes to with the app of `open_app`, which is connected meanwhile."""
    import asyncio

    target = open_app()

    async def run() -> T:
        async with target:
            return await use(target)

    return asyncio.run(run())


def _settings_app() -> str | None:
    import os

    from taskmq.client.settings import load_settings

    return load_settings(os.environ, Path.cwd()).app
