"""Options shared by all commands."""

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

T = TypeVar("T")

Format = Literal["table", "json", "jsonl"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Globals:
    """Global options of one invocation.

    Attributes:
        server: URL of the server that commands go through, instead of app, broker, state and store.
        is_insecure: whether a token may be sent without TLS to another machine.
        by: the person who runs the command; None: the system's user.
        tenant: the tenant that the command is about, through a server; None: that of the token.
    """

    app: str | None = None
    url: str | None = None
    state: str | None = None
    store: str | None = None
    store_replica: str | None = None
    output: Format = "table"
    log_level: int = logging.INFO
    server: str | None = None
    is_insecure: bool = False
    by: str | None = None
    tenant: str | None = None


_current: ContextVar[Globals | None] = ContextVar("taskmq_cli_globals", default=None)


def set_globals(options: Globals) -> None:
    """Store the options for the command that is about to run."""
    _current.set(options)


def current_globals() -> Globals:
    return _current.get() or Globals()


def target_of(given: str | None) -> str:
    """Return the app's `module:attribute` from the argument, `--app` or the settings.

    Raises:
        InvalidSetting: neither an option nor a setting names the app.
    """
    target = given or current_globals().app or _settings_app()
    if target is None:
        raise InvalidSetting(
            "no app given: pass MODULE:ATTRIBUTE or --app, or set $TASKMQ_APP or app= in taskmq.toml"
        )
    return target


def refuse_local_options(**given: Any) -> None:
    """Check that no option is used that the API lacks. Takes names, and whether each was given.

    Raises:
        InvalidOption: such an option is used.
    """
    for name, value in given.items():
        if value:
            raise InvalidOption(
                f"--{name.replace('_', '-')} does not work through a server: omit it, or use --app instead of "
                "--server"
            )


def open_app() -> "TaskMQ":
    """Return the app of `--app` or the settings; without one, an app without tasks at the configured broker."""
    from taskmq.app import TaskMQ
    from taskmq.load_app import load_app

    options = current_globals()
    if options.server is not None:
        raise InvalidSetting(
            f"this command does not work through a server ({options.server}): omit --server, unset "
            "$TASKMQ_SERVER, and name the app, broker or store"
        )
    target = options.app or _settings_app()
    # Standard output is for data: redirect what the app's modules print on import to standard error.
    with contextlib.redirect_stdout(sys.stderr):
        app = TaskMQ() if target is None else load_app(target)[0]
    app.sessions.configure(
        url=options.url,
        state=options.state,
        store=options.store,
        store_replica=options.store_replica,
        name="taskmq cli",
    )
    return app


def run_with_app(use: "Callable[[TaskMQ], Coroutine[Any, Any, T]]") -> T:
    """Connect the app of `open_app`, call `use` with it, and return its result."""
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
