"""From a URL to a broker or state on `local://`."""

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from taskmq.contracts.broker import BrokerOptions
from taskmq.errors import InvalidSetting

if TYPE_CHECKING:
    from taskmq_local.broker.broker import LocalBroker
    from taskmq_local.state.state import LocalState

__all__ = ["open_local_broker", "open_local_state"]


def open_local_broker(url: str, options: BrokerOptions) -> "LocalBroker":
    """A broker in the directory that `local://PATH` names; nothing is touched before its first use.

    Raises:
        InvalidSetting: the URL names no directory, or this system cannot do it.
    """
    path = _file(url)
    # Not before it is asked for: `memory://` works where there are no POSIX locks.
    from taskmq_local.broker.broker import LocalBroker

    return LocalBroker(url, path, options)


def open_local_state(url: str, options: BrokerOptions) -> "LocalState":
    """A state in the directory that `local://PATH` names; the twin of the broker of the same URL.

    Raises:
        InvalidSetting: the URL names no directory, or this system cannot do it.
    """
    path = _file(url)
    from taskmq_local.state.state import LocalState

    return LocalState(url, path, options)


def _file(url: str) -> Path:
    directory = url.partition("://")[2]
    if not directory or "?" in directory:
        raise InvalidSetting(f"{url!r} names no directory: it looks like local://.taskmq or local:///var/lib/mine")
    if find_spec("fcntl") is None:
        raise InvalidSetting("local:// needs POSIX file locks: use amqp:// or memory:// on this system")
    # Made absolute now: the process may change its directory later.
    return Path(directory).expanduser().absolute() / "taskmq.db"
