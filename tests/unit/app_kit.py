"""Apps on `memory://` and inspection of sent messages, shared by the tests of apps and tasks."""

import asyncio
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

from taskmq.app import TaskMQ
from taskmq.client.session import Session
from taskmq.contracts.broker import QueueStats
from taskmq.middleware.chain import Middleware, Sending
from taskmq.model.envelope import Envelope, decode_envelope
from taskmq.testing.broker_suite.case import peek
from taskmq_embedded.file_kind import open_file
from taskmq_sql.sqlite.file.schema import JOB_STORE


def new_url() -> str:
    """Return a fresh `memory://` URL."""
    return f"memory://{uuid4()}"


def new_store() -> str:
    """Return a fresh URL of a job store in memory, which needs no thread and no file."""
    return f"sqlite://:memory:{uuid4().hex}"


def new_file_store(folder: Path) -> str:
    """Create an empty job store in the folder's file `jobs.db`, if there is none; return its URL."""
    path = folder / "jobs.db"
    if not path.exists():
        path.touch(mode=0o600)
        path.write_bytes(_empty_store())
    return f"sqlite:///{path}"


@cache
def _empty_store() -> bytes:
    # A copy costs a tenth of the statements that create the tables.
    with TemporaryDirectory() as folder:
        path = Path(folder) / "jobs.db"
        open_file(path, JOB_STORE).close()
        return path.read_bytes()


@dataclass(frozen=True)
class Message:
    """A message as a worker receives it."""

    envelope: Envelope
    queue: str
    content_type: str | None
    message_id: str | None
    task: str | None
    headers: Mapping[str, object]


def messages(app: TaskMQ, queue: str = "default") -> list[Message]:
    """Return the ready messages of a physical queue without removing them."""

    async def look() -> list[Message]:
        async with app, peek(app.sessions.current().broker, queue, limit=100_000) as deliveries:
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
    """Return the only ready message."""
    (only,) = messages(app, queue)
    return only


def stats(app: TaskMQ, queue: str = "default") -> QueueStats:
    """Return the counts of a physical queue."""

    async def look() -> QueueStats:
        async with app:
            (found,) = await app.sessions.current().broker.stats([queue])
            return found

    return asyncio.run(look())


class Witness(Middleware):
    """Records the end of each send."""

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
    """Give an app one session owned by the test."""
    vars(app.sessions).update(current=session, aclose=lambda: session().aclose())
