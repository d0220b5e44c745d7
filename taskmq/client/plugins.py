"""Adapters by URL scheme, found through entry points, so that third parties can add their own.

A package offers a broker under the group `taskmq.brokers` and a state under `taskmq.states`. The entry
point's name is the URL scheme, its object a function `(url, options) -> Broker` or `(url, options) -> State`.
Job stores are found the same way under `taskmq.stores`, stores for large values under `taskmq.blobs`, and
consumers of other systems' queues under `taskmq.sources`: a function `(queue) -> MessageSource`.
One exporter of metrics is found under `taskmq.metrics`: a function `(source) -> Exporter`.
taskmq's own adapters are listed here by name, because searching all installed packages takes an eighth of a
worker's start.
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
"""The entry points of this distribution, as in its metadata."""
_SETTINGS: Final = {"taskmq.brokers": "url=", "taskmq.states": "state=", "taskmq.stores": "store="}
_EXTRAS: Final[Mapping[str, str]] = {"taskmq_redis": "redis", "taskmq_aio_pika": "aio-pika"}
"""Extras that install the dependencies of an adapter."""


def open_broker(url: str, options: BrokerOptions) -> Broker:
    """Create a broker for `url`, not yet connected.

    Raises:
        InvalidSetting: no installed package serves the URL's scheme, or the URL is malformed.
    """
    opener = cast("Callable[[str, BrokerOptions], Broker]", _load("taskmq.brokers", url, what="broker"))
    return opener(url, options)


def open_state(url: str, options: BrokerOptions) -> State:
    """Create a state for `url`, not yet connected.

    Raises:
        InvalidSetting: no installed package serves the URL's scheme, or the URL is malformed.
        UnsupportedFeature: a dependency of the adapter is not installed.
    """
    opener = cast("Callable[[str, BrokerOptions], State]", _load("taskmq.states", url, what="state"))
    return opener(url, options)


def open_store(url: str, options: BrokerOptions) -> "JobStore":
    """Create a job store for `url`, not yet connected.

    Raises:
        InvalidSetting: no installed package serves the URL's scheme, or the URL is malformed.
        UnsupportedFeature: a dependency of the adapter is not installed.
    """
    opener = cast("Callable[[str, BrokerOptions], JobStore]", _load("taskmq.stores", url, what="job store"))
    return opener(url, options)


def open_blobs(url: str, options: BrokerOptions) -> BlobStore:
    """Create a store for large results and arguments, not yet connected.

    Raises:
        InvalidSetting: no installed package serves the URL's scheme, or the URL is malformed.
    """
    opener = cast("Callable[[str, BrokerOptions], BlobStore]", _load("taskmq.blobs", url, what="store for results"))
    return opener(url, options)


def open_source(queue: SourceQueue) -> MessageSource:
    """Create a consumer of another system's queue, not yet connected.

    Raises:
        InvalidSetting: no installed package serves the scheme of the queue's URL, or the URL is malformed.
        UnsupportedFeature: a dependency of the adapter is not installed.
    """
    opener = cast("Callable[[SourceQueue], MessageSource]", _load("taskmq.sources", queue.url, what="source"))
    return opener(queue)


def open_metrics(source: metrics.Source) -> metrics.Exporter:
    """Create the exporter that shows `source` to a monitoring system.

    Raises:
        UnsupportedFeature: no exporter is installed, or one of its dependencies is missing.
    """
    reason = "no exporter of metrics is installed"
    for point in entry_points(group="taskmq.metrics"):
        try:
            opener = cast("Callable[[metrics.Source], metrics.Exporter]", point.load())
        except ImportError as error:
            reason = f"{point.name} metrics need {error.name}"
            continue
        return opener(source)
    raise UnsupportedFeature(f"{reason}: pip install 'taskmq[prometheus]'")


def forget_memory(url: str) -> None:
    """Delete the data of `memory://NAME`. Call it after the last use of the name."""
    importlib.import_module("taskmq_local").forget_memory(url.removeprefix("memory://"))


def entry_points(*, group: str) -> "EntryPoints":
    """Return the installed entry points of a group."""
    # Imported only for third-party adapters, because it takes a tenth of `from taskmq import TaskMQ`.
    from importlib import metadata

    return metadata.entry_points(group=group)


def _load(group: str, url: str, *, what: str) -> Any:
    scheme = url.partition("://")[0]
    # Checked before it is shown, because the part before a misplaced "://" may be a password.
    if not url.startswith(f"{scheme}://") or not _SCHEME.fullmatch(scheme):
        raise InvalidSetting(f"the {what} URL has no scheme; use one such as amqp://host/ or local://PATH")
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
