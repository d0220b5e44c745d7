"""Running workers: which answer, and the commands to them."""

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from taskmq.app import TaskMQ
from taskmq.errors import InvalidOption
from taskmq.events.control import command_workers
from taskmq.model.commands import EVERY_WORKER, Command, CommandAnswer
from taskmq.model.units import Duration

__all__ = ["WorkerAnswers", "addressed", "list_workers", "tell_workers"]

_PING = Command(id="", name="ping")


class WorkerAnswers(NamedTuple):
    """What workers have answered, one answer of each process.

    Attributes:
        missing: those that were named and have not answered.
    """

    answers: Sequence[CommandAnswer]
    missing: Sequence[str] = ()


def addressed(names: Sequence[str], *, host: str | None, every: bool) -> tuple[str, ...]:
    """Whom a command is for.

    Raises:
        InvalidOption: it names no worker, no host, and not all.
    """
    to = (*names, *([f"@{host}"] if host else []), *([EVERY_WORKER] if every else []))
    if not to:
        raise InvalidOption("which workers? Name them, or say --host HOST or --all")
    return to


async def list_workers(app: TaskMQ, *, within: Duration = 1.0) -> Sequence[CommandAnswer]:
    """The workers that answer within this time; raises as `taskmq.events.command_workers`.

    A worker whose event loop is held up by a task, or that obeys no commands, does not answer.
    """
    return await command_workers(app.sessions.current().broker, _PING, within=within)


async def tell_workers(
    app: TaskMQ,
    command: Command,
    names: Sequence[str] = (),
    *,
    host: str | None = None,
    every: bool = False,
    within: Duration = 1.0,
) -> WorkerAnswers:
    """Send a command to workers: those of these names, those of a host, or all.

    Raises:
        InvalidOption: see `addressed`.
        BrokerUnavailable, TopologyMismatch, UnsupportedFeature: as `taskmq.events.command_workers`.
    """
    to = addressed(names, host=host, every=every)
    answers = await command_workers(app.sessions.current().broker, replace(command, to=to), within=within)
    found = {answer.worker for answer in answers}
    return WorkerAnswers(answers, [name for name in names if name not in found])
