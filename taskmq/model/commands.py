"""Commands to workers, and their answers: one JSON message each, version 1. Pure.

A command is published on `worker.command.NAME`. Every worker that it addresses answers on the topic that the command
names. A worker answers `unknown` to a command that its version does not have, because workers of several versions run
during a deploy. Any user who may publish announcements may send commands: no message proves who sent it.
"""

from typing import Final, Literal

import msgspec

from taskmq.errors import MalformedMessage
from taskmq.model.telemetry.worker_status import WorkerStatus

VERSION: Final = 1
ALL_COMMANDS: Final = "worker.command.*"
"""Topic pattern of all commands."""
WATCH: Final = "watch"
"""Command that turns on job events for a while; workers obey it even if they refuse all others."""
REVOKE: Final = "revoke"
"""Command that makes workers read from the state which jobs were cancelled."""
PREEMPT: Final = "preempt"
"""Command that makes workers return stored jobs, so that other jobs get their slots."""
QUEUES: Final = "queues"
"""Command about paused queues: it lists them, or makes workers read them from the state."""
PAUSES_ASKED: Final = "pauses.asked"
"""Topic on which a worker without a state asks schedulers for the paused queues."""
TASKS: Final = "tasks"
"""Command that makes workers report the tasks they have."""
EVERY_WORKER: Final = "*"
_HOST: Final = "@"

Verdict = Literal["done", "unknown", "refused"]


class Preemption(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job that must yield its slot.

    Attributes:
        job: the store's id.
        token: of its dispatch; a run under another token continues.
        reason: for the job's history; "": the worker returns the job only if its run has not started.
        grace: seconds that a run has to finish by itself.
    """

    job: str
    token: int
    reason: str = ""
    grace: float = 0.0


class QueuePause(msgspec.Struct, frozen=True):
    """A pause of a queue.

    Attributes:
        since: ms since the epoch.
        note: the reason, for people.
        by: who paused it; "": unknown.
    """

    since: int
    note: str = ""
    by: str = ""


class Command(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A command of an operator to workers.

    Attributes:
        v: version of the format.
        id: of this command; the answers repeat it.
        name: `ping`, `pause`, `resume`, `drain`, `concurrency`, `log_level`, `stacks`, `revoke`, `preempt`,
            `queues`, `tasks` or `watch`.
        to: names of workers, `@HOST` for those of a host, or `*` for all.
        reply: the topic to answer on; "" for no answer.
        number: `concurrency`: the number of slots.
        level: `log_level`: the name of the level.
        seconds: `watch`: the duration; `drain`: the grace of running jobs, instead of the worker's own.
        job_id: `revoke`: the job.
        reason: `revoke`: why a stored job must stop; "": the state has the reason.
        jobs: `preempt`: the jobs.
        app: `queues`: the app whose job store has the pauses.
        paused: `queues`: all paused queues of that app; None: the worker reads them from the state.
    """

    v: int = 0
    id: str
    name: str
    to: tuple[str, ...] = (EVERY_WORKER,)
    reply: str = ""
    number: int | None = None
    level: str = ""
    seconds: float | None = None
    job_id: str | None = None
    reason: str = ""
    jobs: tuple[Preemption, ...] = ()
    app: str = ""
    paused: dict[str, QueuePause] | None = None


class CommandAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of one worker to a command.

    Attributes:
        v: version of the format.
        id: the command's.
        verdict: `done`; `unknown`: this worker does not know the command; `refused`: it does not obey, see `detail`.
        worker: its name.
        status: the worker's status after the command.
        detail: for people.
        text: `stacks`: all threads and coroutines.
        clock_offset: seconds by which the worker's clock is ahead of the reader's, who measures it on receipt, to
            within half the time of the answer; None: unknown.
    """

    v: int = VERSION
    id: str
    verdict: str
    worker: str
    status: WorkerStatus
    detail: str = ""
    text: str = ""
    clock_offset: float | None = None


_encoder = msgspec.json.Encoder()
_commands = msgspec.json.Decoder(Command)
_answers = msgspec.json.Decoder(CommandAnswer)


def command_topic(name: str) -> str:
    """Return the topic on which commands of this name are published."""
    return f"worker.command.{name}"


def answer_topic(command_id: str) -> str:
    """Return the topic on which workers answer a command."""
    return f"worker.answer.{command_id}"


def is_for(command: Command, *, worker: str, host: str) -> bool:
    """Return whether the command addresses a worker."""
    return any(each in (EVERY_WORKER, worker, f"{_HOST}{host}") for each in command.to)


def encode_command(command: Command) -> bytes:
    return _encoder.encode(msgspec.structs.replace(command, v=VERSION))


def encode_answer(answer: CommandAnswer) -> bytes:
    return _encoder.encode(answer)


def decode_command(body: bytes) -> Command:
    """Decode a command to workers.

    Raises:
        MalformedMessage: the body is not a command.
    """
    try:
        return _commands.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedMessage(f"not a command: {error}") from error


def decode_answer(body: bytes) -> CommandAnswer:
    """Decode a worker's answer.

    Raises:
        MalformedMessage: the body is not an answer.
    """
    try:
        return _answers.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedMessage(f"not an answer to a command: {error}") from error
