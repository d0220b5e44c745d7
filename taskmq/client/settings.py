"""What is configured outside of the code: `TASKMQ_*`, then `taskmq.toml` or `[tool.taskmq]`, then defaults.

Read when an app is first used, never at import. Unknown keys are errors: a misspelt setting does not pass
silently.
"""

import functools
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final, cast

from taskmq.errors import InvalidOption, InvalidSetting
from taskmq.model.units import did_you_mean, parse_processes

__all__ = ["DEFAULT_URL", "OTHER_VARIABLES", "Settings", "load_settings"]

DEFAULT_URL: Final = "local://.taskmq"
_PREFIX: Final = "TASKMQ_"
OTHER_VARIABLES: Final[Mapping[str, str]] = {
    "TASKMQ_SERVER": "commands and HTTP clients: the server to go through, such as `http://localhost:8787`",
    "TASKMQ_TOKEN": "commands and HTTP clients: the API token for that server",
    "TASKMQ_INSECURE": "commands, `taskmq.http`: `1` lets tokens and passwords go to a server on another machine over `http://`",
    "TASKMQ_HEALTH_PORT": "`taskmq worker` and `taskmq probe`: the health port",
    "TASKMQ_CONSOLE_LOG": "services and workers: `off` leaves log lines to handlers of the app",
    "TASKMQ_OIDC_SECRET": "`taskmq server`: the secret of `--oidc-client`",
    "TASKMQ_EVENT_SECRETS": "`taskmq server`: the secrets of event sources, `NAME=SECRET NAME=SECRET`",
    "TASKMQ_SMTP_URL": "alerts of `taskmq scheduler`: the mail server, `smtp+starttls://user:password@host:587`",
    "TASKMQ_ALERT_SENDER": "alerts: whose mail it is; default `taskmq@localhost`",
    "TASKMQ_ALERT_HEARTBEAT_URL": "alerts: gets a POST each minute for as long as rules are looked at",
    "TASKMQ_WEBHOOK_SECRET": "alerts: signs webhooks; without it they are not signed",
    "TASKMQ_WEBHOOK_ALLOW_PRIVATE": "alerts: `1` lets webhooks go to this machine and into private networks",
    "TASKMQ_RABBITMQ_IMAGE": "tests: the image of `taskmq.testing.containers.RabbitMQContainer`",
    "TASKMQ_REDIS_IMAGE": "tests: the image of `taskmq.testing.containers.RedisContainer`",
    "TASKMQ_POSTGRES_IMAGE": "tests: the image of `taskmq.testing.containers.PostgresContainer`",
}
"""What is read from the environment alone: secrets, and what one process needs. With who reads it, and for what."""
# Those of the test suite are no setting either.
_FOREIGN: Final = ("TASKMQ_TEST_", "TASKMQ_BENCH_", *OTHER_VARIABLES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings with the place each one came from, for `doctor`.

    Attributes:
        url: the broker. Default: `local://.taskmq`.
        state: the shared state, such as `redis://host/0`. Default: the embedded broker's own.
        store: the job store, such as `postgresql://host/db`. Default: none; jobs are only sent.
        results_at: where large results are kept, such as `s3://bucket`. Default: in the state.
        app: `module:attribute`, for commands that are not given one. Default: none.
        concurrency: slots of a worker process. Default: 32.
        processes: processes of a worker: `4`, or `1-8` for as many as the load needs. Default: 1.
        grace: how long a stopping worker waits for running jobs. Default: 30s.
        origin: where each value that is not a default was found.
    """

    url: str | None = None
    state: str | None = None
    store: str | None = None
    results_at: str | None = None
    app: str | None = None
    concurrency: int | None = None
    processes: str | None = None
    grace: str | None = None
    origin: Mapping[str, str] = field(default_factory=dict[str, str], compare=False)


# How it is read, and what it is to be.
_TEXT: Final[tuple[Callable[[str | int], object], str]] = (str, "str")
_KINDS: Final[dict[str, tuple[Callable[[str | int], object], str]]] = {
    "concurrency": (int, "int"),
    "processes": (lambda value: _processes(str(value)), "number, or such as '1-8'"),
}
_KEYS: Final = tuple(entry.name for entry in fields(Settings) if entry.name != "origin")


def load_settings(environment: Mapping[str, str], directory: Path) -> Settings:
    """The settings in force.

    Args:
        environment: usually `os.environ`.
        directory: where `taskmq.toml` and `pyproject.toml` are looked for, and in its parents.

    Raises:
        InvalidSetting: a key is unknown, or a value or file cannot be read.
    """
    values: dict[str, Any] = {}
    origin: dict[str, str] = {}
    found, source = _from_file(directory)
    for name, value in found.items():
        key = _known(name, source)
        values[key] = _read(key, value, source)
        origin[key] = source
    for variable, value in environment.items():
        # Empty is unset, as deployment tools have it.
        if value and variable.startswith(_PREFIX) and not variable.startswith(_FOREIGN):
            key = _known(variable.removeprefix(_PREFIX).lower(), f"${variable}")
            values[key] = _read(key, value, f"${variable}")
            origin[key] = f"${variable}"
    return Settings(**values, origin=origin)


def _from_file(directory: Path) -> tuple[dict[str, Any], str]:
    for folder in (directory, *directory.parents):
        own = folder / "taskmq.toml"
        if own.is_file():
            return _toml(own), str(own)
        project = folder / "pyproject.toml"
        if project.is_file():
            tool = _toml(project).get("tool")
            if isinstance(tool, dict) and "taskmq" in tool:
                return _table(cast("dict[str, Any]", tool)["taskmq"], f"{project} [tool.taskmq]")
    return {}, ""


def _table(value: object, source: str) -> tuple[dict[str, Any], str]:
    if not isinstance(value, dict):
        raise InvalidSetting(f"{source} must be a table")
    return cast("dict[str, Any]", value), source


def _toml(path: Path) -> dict[str, Any]:
    try:
        return _parsed(path.read_text("utf-8"))
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidSetting(f"{path} cannot be read: {error}") from error


# Each app of a process reads the file; a project's takes as long to parse as the rest of an app takes to make.
@functools.lru_cache(maxsize=4)
def _parsed(text: str) -> dict[str, Any]:
    return tomllib.loads(text)


def _known(key: str, source: str) -> str:
    if key in _KEYS:
        return key
    raise InvalidSetting(f"{source}: unknown setting {key!r}; {did_you_mean(key, _KEYS)}")


def _read(key: str, value: object, source: str) -> object:
    read, kind = _KINDS.get(key, _TEXT)
    if isinstance(value, str | int) and not isinstance(value, bool):
        try:
            return read(value)
        except (ValueError, InvalidOption):
            pass
    # The value itself stays out of the message: it may be a URL with a password.
    raise InvalidSetting(f"{source}: {key} must be a {kind}")


def _processes(value: str) -> str:
    parse_processes(value)
    return value
