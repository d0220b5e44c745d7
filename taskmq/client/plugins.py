"""Adapters by URL scheme, found through entry points, so that third parties add their own.

A package offers a broker under the group `taskmq.brokers` and a state under `taskmq.states`; the entry
point's name is the URL scheme, its object a function `(url, options) -> Broker` or `(url, options) -> State`.
A job store is found the same way under `taskmq.stores`, a place for large values under `taskmq.blobs`, and under
`taskmq.sources` what takes messages from other systems' queues: a function `(queue) -> MessageSource`.
One exporter of metrics is found under `taskmq.metrics`: a function `(source) -> Exporter`.
What comes with taskmq itself is known here by name: looking through everything that is installed takes an eighth of
a worker's start.
"""

import importlib
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, cast

from taskmq.contracts.broker import Broker, BrokerOptions
from taskmq.contracts.source import MessageSource, SourceQueue
from taskmq.contracts.stores import BlobStore, State
from taskmq.errors import InvalidSetting, UnsupportedFeature
from taskmq.model.telemetry import metrics

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

    from taskmq.contracts.jobs import JobStore

__all__ = ["open_blobs", "open_broker", "open_metrics", "open_source", "open_state", "open_store"]

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")
_OWN: Final[Mapping[str, Mapping[str, str]]] = {
    "taskmq.brokers": {
        "amqp": "taskmq_rabbitmq:open_broker",
        "amqps": "taskmq_rabbitmq:open_broker",
        "local": "taskmq_local:open_local_broker",
        "memory": "taskmq_local:open_memory_broker",
    },
    "taskmq.states": {
        "local": "taskmq_local:open_local_state",
        "memory": "taskmq_local:open_memory_state",
        "redis": "taskmq_redis:open_state",
        "rediss": "taskmq_redis:open_state",
        "unix": "taskmq_redis:open_state",
    },
    "taskmq.stores": {
        "postgres": "taskmq_sql:open_job_store",
        "postgresql": "taskmq_sql:open_job_store",
        "sqlite": "taskmq_sql:open_job_store",
    },
    "taskmq.blobs": {"file": "taskmq_local:open_file_blobs", "s3": "taskmq_s3:open_blobs"},
    "taskmq.sources": {"amqp": "taskmq_aio_pika:open_source", "amqps": "taskmq_aio_pika:open_source"},
}
"""The entry points of this distribution; its metadata says the same."""
_SETTINGS: Final = {"taskmq.brokers": "url=", "taskmq.states": "state=", "taskmq.stores": "store="}
_EXTRAS: Final[Mapping[str, str]] = {"taskmq_redis": "redis", "taskmq_aio_pika": "aio-pika"}
"""What installs the packages that an adapter imports at once."""


def open_broker(url: str, options: BrokerOptions) -> Broker:
    """A broker for `url`, not yet connected.

    Raises:
        InvalidSetting: no installed package serves the URL's scheme, or the URL cannot be read.
    """
    opener = cast("Callable[[str, BrokerOptions], Broker]", _load("taskmq.brokers", url, what="broker"))
    return opener(url, options)


def open_state(url: str, options: BrokerOptions) -> State:
    """A state for `url`, not yet connected.

    Raises:
        InvalidSetting: no installed package serves the URL's scheme, or the URL cannot be read.
        UnsupportedFeature: what its adapter needs is not installed.
    """
    opener = cast("Callable[[str, BrokerOptions], State]", _load("taskmq.states", url, what="state"))
    return opener(url, options)


def open_store(url: str, options: BrokerOptions) -> "JobStore":
    """A job store for `url`, not yet connected.

    Raises:
        InvalidSetting: no installed package serves the URL's scheme, or the URL cannot be read.
        UnsupportedFeature: what its adapter needs is not installed.
    """
    opener = cast("Callable[[str, BrokerOptions], JobStore]", _load("taskmq.stores", url, what="job store"))
    return opener(url, options)


def open_blobs(url: str, options: BrokerOptions) -> BlobStore:
    """A place for large results and arguments, not yet connected.

    Raises:
        InvalidSetting: no installed package serves the URL's scheme, or the URL cannot be read.
    """
    opener = cast("Callable[[str, BrokerOptions], BlobStore]", _load("taskmq.blobs", url, what="place for results"))
    return opener(url, options)


def open_source(queue: SourceQueue) -> MessageSource:
    """Make what takes the messages of another system's queue, not yet connected.

    Raises:
        InvalidSetting: no installed package serves the scheme of the queue's URL, or the URL cannot be read.
        UnsupportedFeature: what its adapter needs is not installed.
    """
    opener = cast("Callable[[SourceQueue], MessageSource]", _load("taskmq.sources", queue.url, what="source"))
    return opener(queue)


def open_metrics(source: metrics.Source) -> metrics.Exporter:
    """What shows `source` to a monitoring system.

    Raises:
        UnsupportedFeature: no package for that is installed, or what it needs is not.
    """
    reason = "no package that shows metrics is installed"
    for point in entry_points(group="taskmq.metrics"):
        try:
            opener = cast("Callable[[metrics.Source], metrics.Exporter]", point.load())
        except ImportError as error:
            reason = f"{point.name} metrics need {error.name}"
            continue
        return opener(source)
    raise UnsupportedFeature(f"{reason}: pip install 'taskmq[prometheus]'")


def entry_points(*, group: str) -> "EntryPoints":
    """What is installed under a group."""
    # Who needs no foreign ones does without: it is a tenth of the time of `from taskmq import TaskMQ`.
    from importlib import metadata

    return metadata.entry_points(group=group)


def _load(group: str, url: str, *, what: str) -> Any:
    scheme = url.partition("://")[0]
    # Checked before it is shown: the part before a misplaced "://" may be a password.
    if not url.startswith(f"{scheme}://") or not _SCHEME.fullmatch(scheme):
        raise InvalidSetting(f"the {what} URL has no scheme: it looks like amqp://host/ or local://PATH")
    if (own := _OWN.get(group, {}).get(scheme)) is not None:
        module, _, name = own.partition(":")
        try:
            return getattr(importlib.import_module(module), name)
        except ModuleNotFoundError as error:
            if (extra := _EXTRAS.get(module)) is None:
                raise
            raise UnsupportedFeature(
                f"the {what} {scheme}:// needs {error.name}: pip install 'taskmq[{extra}]'"
            ) from error
    known = entry_points(group=group)
    if not (found := known.select(name=scheme)):
        names = ", ".join(sorted(f"{point.name}://" for point in known))
        others = [setting for other, setting in _SETTINGS.items() if other != group and scheme in _OWN[other]]
        hint = f"; {scheme}:// is for {' and '.join(others)}" if others else ""
        raise InvalidSetting(f"no installed {what} serves {scheme}://; known: {names}{hint}")
    return next(iter(found)).load()
