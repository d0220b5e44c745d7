"""The common life cycle of servers, and their sources.

A server comes from the first of: a URL in the environment (`External`), binaries on this machine
(`tests.servers.process.LocalProcess`), a container (`taskmq.testing.containers`, which users have, too). Each is a
`Source`; servers behave the same with all of them, but an external one cannot be stopped. With `$TASKMQ_TEST_SERVERS`
set to `containers`, binaries on this machine are skipped.

    new --start--> ready --stop/kill--> down --start/restart--> ready      same ports, same data
                   ready --pause--> paused --resume--> ready               connections stay open, nothing answers
    any --close--> gone: processes and files; a later start uses new files and other ports
"""

import os
from abc import ABC, abstractmethod
from datetime import timedelta
from types import TracebackType
from typing import Protocol, Self, runtime_checkable

from taskmq.testing.containers import Container
from tests.servers.errors import NotSupported, ServerError, ServerFailed
from tests.servers.ports import PortLease
from tests.servers.waiting import eventually

REMEDY = "start Docker, or Podman behind `podman system service` with DOCKER_HOST set"
_STARTS_WITHIN = timedelta(seconds=60)
_STOPS_WITHIN = timedelta(seconds=30)


class Source(Protocol):
    """A way to run a server."""

    def start(self) -> object:
        """Start it on its ports and data; may return before it is ready."""
        ...

    def stop(self, patience: timedelta) -> None: ...
    def kill(self) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...

    def failure(self) -> str | None:
        """Return why it will never be ready, or None."""
        ...

    def log(self) -> str:
        """Return the end of its output."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class Processes(Protocol):
    """A source with processes of the tests."""

    def pids(self) -> list[int]: ...


class External:
    """A server run by others: it may be used, but not stopped, killed or paused."""

    def __init__(self, variable: str) -> None:
        self._variable = variable

    def start(self) -> None:
        pass

    def stop(self, patience: timedelta) -> None:
        raise self._not_ours("stopped")

    def kill(self) -> None:
        raise self._not_ours("killed")

    def pause(self) -> None:
        raise self._not_ours("paused")

    def resume(self) -> None:
        raise self._not_ours("resumed")

    def failure(self) -> str | None:
        return None

    def log(self) -> str:
        return "(its log is not ours to read)"

    def close(self) -> None:
        pass

    def _not_ours(self, done: str) -> NotSupported:
        return NotSupported(
            f"the server of ${self._variable} is not ours and cannot be {done}; "
            "unset the variable to let the tests start their own"
        )


class Server(ABC):
    """A private server for tests; a context manager that starts and closes it."""

    _looks_every = timedelta(milliseconds=20)

    def __init__(self) -> None:
        self._source: Source | None = None
        self._lease: PortLease | None = None

    def start(self) -> Self:
        """Start it and return when it answers."""
        self.launch()
        self.wait_until_ready()
        return self

    def launch(self) -> None:
        """Start it and return at once; `wait_until_ready` is the other half."""
        if self._source is None:
            self._source = self._open()
        self._source.start()

    def wait_until_ready(self) -> None:
        """Return when it answers; raise `ServerFailed`, with the end of its log, if that does not happen."""
        source = self._running_source()

        def is_ready() -> bool:
            if (failure := source.failure()) is not None:
                raise ServerFailed(f"{self!r} {failure}:\n{source.log()}")
            return self._answers()

        try:
            eventually(is_ready, f"{self!r} answering", within=_STARTS_WITHIN, every=self._looks_every)
        except TimeoutError as error:
            raise ServerFailed(f"{error}:\n{source.log()}") from error

    def stop(self) -> None:
        """Stop it in order; ports and data stay for `restart`."""
        self._running_source().stop(_STOPS_WITHIN)

    def kill(self) -> None:
        """Kill it at once (SIGKILL); ports and data stay for `restart`."""
        self._running_source().kill()

    def restart(self) -> None:
        """Start it again on the same ports and data; stop it first if it runs."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """Freeze it (SIGSTOP): connections stay open, nothing answers."""
        self._running_source().pause()

    def resume(self) -> None:
        self._running_source().resume()

    def pids(self) -> list[int]:
        """Return its processes, including its keeper."""
        source = self._running_source()
        return source.pids() if isinstance(source, Processes) else []

    def close(self) -> None:
        """Kill it and remove its files; may be called twice."""
        if self._source is not None:
            self._source.close()
            self._source = None
        if self._lease is not None:
            self._lease.close()
            self._lease = None

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    @abstractmethod
    def _open(self) -> Source:
        """Choose the source, lease ports and write files; raise `ServerUnavailable` if there is none."""

    @abstractmethod
    def _answers(self) -> bool:
        """Whether a client would be served now."""

    def _lease_ports(self, count: int) -> tuple[int, ...]:
        """Lease ports for a container until `close`."""
        self._lease = PortLease(count)
        return self._lease.ports

    def _running_source(self) -> Source:
        if self._source is None:
            raise ServerError(f"{self!r} is not started; use it as a context manager or call start()")
        return self._source


def wants_containers() -> bool:
    """Whether servers come from containers even if their programs are on this machine."""
    return os.environ.get("TASKMQ_TEST_SERVERS") == "containers"


def run_inside(container: Container, *argv: str) -> str:
    """Return the output of a program inside a container."""
    try:
        return container.run(*argv)
    except RuntimeError as error:
        raise ServerFailed(str(error)) from error
