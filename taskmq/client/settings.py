"""Settings outside the code: `TASKMQ_*`, then `taskmq.toml` or `[tool.taskmq]`, then defaults.

Settings are read when an app is first used, never at import. Unknown keys are errors, so that misspelt settings are
noticed.
"""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final, cast

from taskmq.errors import InvalidOption, InvalidSetting
from taskmq.model.telemetry.app_versions import LONGEST_VERSION, check_app_version
from taskmq.model.units import did_you_mean, parse_processes

DEFAULT_URL: Final = "local://.taskmq"
_PREFIX: Final = "TASKMQ_"
OTHER_VARIABLES: Final[Mapping[str, str]] = {
    "TASKMQ_SERVER": "commands and HTTP clients: the server to use, such as `http://localhost:8787`",
    "TASKMQ_TOKEN": "commands and HTTP clients: the API token for that server",
    "TASKMQ_INSECURE": "commands, `taskmq.http`: `1` allows tokens and passwords over `http://` to another machine",
    "TASKMQ_HEALTH_PORT": "`taskmq worker` and `taskmq probe`: the health port",
    "TASKMQ_CONSOLE_LOG": "services and workers: `off` leaves logging to the app's handlers",
    "TASKMQ_OIDC_SECRET": "`taskmq server`: the secret of `--oidc-client`",
    "TASKMQ_EVENT_SECRETS": "`taskmq server`: the secrets of event sources, `NAME=SECRET NAME=SECRET`",
    "TASKMQ_SMTP_URL": "alerts of `taskmq scheduler`: the mail server, `smtp+starttls://user:password@host:587`",
    "TASKMQ_ALERT_SENDER": "alerts: the sender of mails; default `taskmq@localhost`",
    "TASKMQ_ALERT_HEARTBEAT_URL": "alerts: receives a POST each minute while rules are evaluated",
    "TASKMQ_WEBHOOK_SECRET": "alerts: the secret that signs webhooks; unsigned if not set",
    "TASKMQ_WEBHOOK_ALLOW_PRIVATE": "alerts: `1` allows webhooks to this machine and private networks",
    "TASKMQ_RABBITMQ_IMAGE": "tests: the image of `taskmq.testing.containers.RabbitMQContainer`",
    "TASKMQ_REDIS_IMAGE": "tests: the image of `taskmq.testing.containers.RedisContainer`",
    "TASKMQ_POSTGRES_IMAGE": "tests: the image of `taskmq.testing.containers.PostgresContainer`",
}
"""Variables read only from the environment: secrets, and values of one process; with their reader and purpose."""
# Variables of the test suite are not settings either.
_FOREIGN: Final = ("TASKMQ_TEST_", "TASKMQ_BENCH_", *OTHER_VARIABLES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings with their origins, for `doctor`.

    Attributes:
        url: the broker. Default: `local://.taskmq`.
        state: the shared state, such as `redis://host/0`. Default: the embedded broker's own.
        store: the job store, such as `postgresql://host/db`. Default: none; jobs are only sent.
        store_replica: a streaming standby of the job store, for lists, counts and history. Default: none.
        store_replica_max_age: how far the standby may be behind before the job store is read instead. Default: 30s.
        results_at: the store for large results, such as `s3://bucket`. Default: the state.
        app: `module:attribute`, for commands without an app argument. Default: none.
        app_version: the version of the app's code, such as `2026.11.30-1`. Default: none.
        concurrency: slots of a worker process. Default: 32.
        processes: the number of worker processes: `4`, or `1-8` to scale with the load. Default: 1.
        grace: how long a stopping worker waits for running jobs. Default: 30s.
        origin: the origin of each value that is not a default.
    """

    url: str | None = None
    state: str | None = None
    store: str | None = None
    store_replica: str | None = None
    store_replica_max_age: str | None = None
    results_at: str | None = None
    app: str | None = None
    app_version: str | None = None
    concurrency: int | None = None
    processes: str | None = None
    grace: str | None = None
    origin: Mapping[str, str] = field(default_factory=dict[str, str], compare=False)


# The parser and its expected type.
_TEXT: Final[tuple[Callable[[str | int], object], str]] = (str, "str")
_KINDS: Final[dict[str, tuple[Callable[[str | int], object], str]]] = {
    "app_version": (
        lambda value: check_app_version(str(value)),
        f"text of 1 to {LONGEST_VERSION} printable characters",
    ),
    "concurrency": (int, "int"),
    "processes": (lambda value: _processes(str(value)), "number, or a range such as '1-8'"),
}
_KEYS: Final = tuple(entry.name for entry in fields(Settings) if entry.name != "origin")


def load_settings(environment: Mapping[str, str], directory: Path) -> Settings:
    """Load the effective settings.

    Args:
        environment: usually `os.environ`.
        directory: where `taskmq.toml` and `pyproject.toml` are searched, and in its parents.

    Raises:
        InvalidSetting: a key is unknown, or a value or file is malformed.
    """
    values: dict[str, Any] = {}
    origin: dict[str, str] = {}
    found, source = _from_file(directory)
    for name, value in found.items():
        key = _check_key(name, source)
        values[key] = _read(key, value, source)
        origin[key] = source
    for variable, value in environment.items():
        # Empty means unset, as in deployment tools.
        if value and variable.startswith(_PREFIX) and not variable.startswith(_FOREIGN):
            key = _check_key(variable.removeprefix(_PREFIX).lower(), f"${variable}")
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
        return _parse_toml(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidSetting(f"{path} cannot be read: {error}") from error


# Each app of a process reads the file, and parsing a project's takes as long as creating the rest of an app.
@functools.lru_cache(maxsize=4)
def _parse_toml(text: str) -> dict[str, Any]:
    # Imported late, because most apps have no settings file.
    import tomllib

    return tomllib.loads(text)


def _check_key(key: str, source: str) -> str:
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
    # The value is not in the message, because it may be a URL with a password.
    raise InvalidSetting(f"{source}: {key} must be a {kind}")


def _processes(value: str) -> str:
    parse_processes(value)
    return value
