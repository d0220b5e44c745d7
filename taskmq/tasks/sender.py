"""What a task needs from its app, to send its calls."""

from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Iterable, Iterator
from typing import Protocol

from taskmq.injection.resolve import Dependencies
from taskmq.jobs.handle import JobBackend
from taskmq.middleware.chain import Sending
from taskmq.model.clock import Clock

__all__ = ["Sender"]


class Sender(JobBackend, Protocol):
    """What a task needs from its app."""

    @property
    def clock(self) -> Clock: ...

    @property
    def content_type(self) -> str: ...

    @property
    def dependencies(self) -> Dependencies: ...

    def send_sync(self, sending: Sending) -> None: ...

    def start_send(self, sending: Sending) -> Awaitable[None]: ...

    def stream_sync(self, sendings: Iterable[Sending], *, linger: float = ...) -> Iterator[str]: ...

    def unique_stream_sync(self, sendings: Iterable[Sending]) -> Iterator[str]: ...

    def unique_stream_async(
        self, sendings: Iterable[Sending] | AsyncIterable[Sending]
    ) -> AsyncGenerator[str, None]: ...

    def stream_async(
        self, sendings: Iterable[Sending] | AsyncIterable[Sending], *, linger: float = ...
    ) -> AsyncGenerator[str, None]: ...

    def chunks_async(
        self, sendings: Iterable[Sending] | AsyncIterable[Sending]
    ) -> AsyncGenerator[list[str], None]: ...
