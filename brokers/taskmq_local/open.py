"""Brokers and states of `local://` by URL."""

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from taskmq.contracts.broker import BrokerOptions
from taskmq.errors import InvalidSetting

if TYPE_CHECKING:
    from taskmq_local.broker.broker import LocalBroker
    from taskmq_local.state.state import LocalState


def open_local_broker(url: str, options: BrokerOptions) -> "LocalBroker":
    """Return a broker in the directory of `local://PATH`; its first use creates the files.

    Raises:
        InvalidSetting: the URL names no directory, or this system lacks POSIX file locks.
    """
    path = _file(url)
    # Imported on demand: `memory://` works without POSIX locks.
    from taskmq_local.broker.broker import LocalBroker

    return LocalBroker(url, path, options)


def open_local_state(url: str, options: BrokerOptions) -> "LocalState":
    """Return a state in the directory of `local://PATH`, which shares its file with the broker of the same URL.

    Raises:
        InvalidSetting: the URL names no directory, or this system lacks POSIX file locks.
    """
    path = _file(url)
    from taskmq_local.state.state import LocalState

    return LocalState(url, path, options)


def _file(url: str) -> Path:
    directory = url.partition("://")[2]
    if not directory or "?" in directory:
        raise InvalidSetting(f"{url!r} names no directory: use local://.taskmq or local:///var/lib/mine, for example")
    if find_spec("fcntl") is None:
        raise InvalidSetting("local:// needs POSIX file locks: use amqp:// or memory:// on this system")
    # Resolved now: the process may change its directory later.
    return Path(directory).expanduser().absolute() / "taskmq.db"
