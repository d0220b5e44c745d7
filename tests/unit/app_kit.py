"""What the tests of apps and tasks share: apps on `memory://`, and looking at what was sent."""

import asyncio
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from uuid import uuid4

from taskmq.app import TaskMQ
from taskmq.client.session import Session
from taskmq.contracts.broker import QueueStats
from taskmq.middleware.chain import Middleware, Sending
from taskmq.model.envelope import Envelope, decode_envelope


def new_url() -> str:
    """A `memory://` of the test's own."""
    return f"memory://{uuid4()}"


@dataclass(frozen=True)
class Message:
    """A message as a worker would find it."""

    envelope: Envelope
    queue: str
    content_type: str | None
    message_id: str | None
    task: str | None
    headers: Mapping[str, object]


def messages(app: TaskMQ, queue: str = "default") -> list[Message]:
    """What is ready in a physical queue; it stays there."""

    async def look() -> list[Message]:
        async with app, app.sessions.current().broker.peek(queue, limit=100_000) as deliveries:
            return [
                Message(
                    decode_envelope(each.body, each.content_type),
                    each.queue,
                    each.content_type,
                    each.message_id,
                    each.task,
                    each.headers,
                )
                for each in deliveries
            ]

    return asyncio.run(look())


def message(app: TaskMQ, queue: str = "default") -> Message:
    """The only one that is ready."""
    (only,) = messages(app, queue)
    return only


def stats(app: TaskMQ, queue: str = "default") -> QueueStats:
    """How full a physical queue is."""

    async def look() -> QueueStats:
        async with app:
            (found,) = await app.sessions.current().broker.stats([queue])
            return found

    return asyncio.run(look())


class Witness(Middleware):
    """Writes down how each sending ended."""

    def __init__(self) -> None:
        self.seen: list[BaseException | None] = []
        self.open = 0

    def send(self, sending: Sending) -> AbstractContextManager[object]:
        return self._watch()

    @contextmanager
    def _watch(self) -> Generator[None, None, None]:
        self.open += 1
        try:
            yield
        except BaseException as error:
            self.seen.append(error)
            raise
        else:
            self.seen.append(None)
        finally:
            self.open -= 1


def use_session(app: TaskMQ, session: Callable[[], Session]) -> None:
    """Give an app one session, of the test's own."""
    vars(app.sessions).update(current=session, aclose=lambda: session().aclose())
