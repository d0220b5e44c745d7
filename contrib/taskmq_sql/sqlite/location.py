"""Stores by URL."""

import sqlite3
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, unquote

from taskmq.contracts.broker import BrokerOptions
from taskmq.errors import InvalidSetting
from taskmq_embedded.connection import Synchronous
from taskmq_embedded.memory import MEMORY
from taskmq_sql.sqlite.store import SqliteJobStore

_PREFIX: Final = "sqlite:///"
_OLDEST: Final = (3, 37)
_SYNCHRONOUS: Final[dict[str, Synchronous]] = {"full": "FULL", "normal": "NORMAL"}


def open_store(url: str, options: BrokerOptions) -> SqliteJobStore:
    """Return a store for the file of `sqlite:///PATH` (absolute: `sqlite:////PATH`); the file is not opened yet.

    `sqlite://:memory:NAME` is for tests: stores of one process with the same NAME share it until the last one closes.

    Parameters of the URL: `synchronous` (`full` or `normal`), `keep_days`, and in memory `of`, the scheme of the
    store that it replaces, see `SqliteJobStore`.

    Raises:
        InvalidSetting: the URL is malformed, or Python's SQLite is too old.
    """
    path, parameters = _parts(url)
    keep_days = parameters.pop("keep_days", "30")
    synchronous = parameters.pop("synchronous", "full").lower()
    is_in_memory = str(path).startswith(MEMORY)
    of = parameters.pop("of", "") if is_in_memory else ""
    if parameters:
        raise InvalidSetting(f"{url!r}: unknown parameter {min(parameters)!r}; use synchronous or keep_days")
    if synchronous not in _SYNCHRONOUS:
        raise InvalidSetting(f"{url!r}: synchronous must be full or normal, not {synchronous!r}")
    if not keep_days.isascii() or not keep_days.isdigit() or not 1 <= int(keep_days[:6]) <= 36_500:
        raise InvalidSetting(f"{url!r}: keep_days must be a number of days from 1 to 36500, not {keep_days!r}")
    if sqlite3.sqlite_version_info < _OLDEST:
        raise InvalidSetting(f"{url!r} needs SQLite 3.37 or later, but this Python has {sqlite3.sqlite_version}")
    return SqliteJobStore(
        url, path, clock=options.clock, synchronous=_SYNCHRONOUS[synchronous], keep_days=int(keep_days), of=of
    )


def _parts(url: str) -> tuple[Path, dict[str, str]]:
    address, _, query = url.partition("?")
    parameters = dict(parse_qsl(query, keep_blank_values=True))
    if (memory := address.removeprefix("sqlite://")).startswith(MEMORY):
        return Path(memory), parameters
    file = unquote(address.removeprefix(_PREFIX))
    if not address.startswith(_PREFIX) or not file or file.endswith("/"):
        raise InvalidSetting(f"{url!r} names no file: use sqlite:///jobs.db or sqlite:////var/lib/mine/jobs.db")
    if file == ":memory:" or file.startswith("file:"):
        raise InvalidSetting(
            f"{url!r}: schedulers, servers and workers cannot share a job store in memory: name a path, such as "
            "sqlite:///jobs.db, or for tests in one process sqlite://:memory:"
        )
    # Resolved now: the process may change its directory later.
    return Path(file).expanduser().absolute(), parameters
