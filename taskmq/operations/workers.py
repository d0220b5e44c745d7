"""Running workers: list them and send them commands."""

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from taskmq.app import TaskMQ
from taskmq.errors import InvalidOption
from taskmq.events.control import command_workers
from taskmq.model.commands import EVERY_WORKER, Command, CommandAnswer
from taskmq.model.units import Duration

_PING = Command(id="", name="ping")


class WorkerAnswers(NamedTuple):
    """Answers of workers, one per process.

    Attributes:
        missing: named workers that did not answer.
    """

    answers: Sequence[CommandAnswer]
    missing: Sequence[str] = ()


def resolve_addresses(names: Sequence[str], *, host: str | None, every: bool) -> tuple[str, ...]:
    """Return the addresses that a command is for.

    Raises:
        InvalidOption: no worker, no host and not `every` is given.
    """
    to = (*names, *([f"@{host}"] if host else []), *([EVERY_WORKER] if every else []))
    if not to:
        raise InvalidOption("no workers given: name them, or use --host HOST or --all")
    return to


async def list_workers(app: TaskMQ, *, within: Duration = 1.0) -> Sequence[CommandAnswer]:
    """Return the workers that answer within this time. Raises the errors of `taskmq.events.command_workers`.

    A worker does not answer if a task blocks its event loop or if it accepts no commands.
    """
    return await command_workers(app.sessions.current().broker, _PING, within=within)


async def send_command(
    app: TaskMQ,
    command: Command,
    names: Sequence[str] = (),
    *,
    host: str | None = None,
    every: bool = False,
    within: Duration = 1.0,
) -> WorkerAnswers:
    """Send a command to workers by name, to those of a host, or to all.

    Raises:
        InvalidOption: see `resolve_addresses`.
        BrokerUnavailable, TopologyMismatch, UnsupportedFeature: see `taskmq.events.command_workers`.
    """
    to = resolve_addresses(names, host=host, every=every)
    answers = await command_workers(app.sessions.current().broker, replace(command, to=to), within=within)
    found = {answer.worker for answer in answers}
    return WorkerAnswers(answers, [name for name in names if name not in found])
