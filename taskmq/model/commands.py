"""The commands to workers, and their answers: one message of JSON each, version 1. Pure.

A command is announced on `worker.command.NAME` and is for every worker that it addresses; each of those answers on
the topic that the command names. Workers answer `unknown` to a command that they do not know: during a deploy not all
of them are of one version. A user that may announce may command: nothing in a message proves who sent it.
"""

from typing import Final, Literal

import msgspec

from taskmq.errors import MalformedMessage
from taskmq.model.telemetry.worker_status import WorkerStatus

__all__ = [
    "ALL_COMMANDS",
    "EVERY_WORKER",
    "PREEMPT",
    "QUEUES",
    "REVOKE",
    "TASKS",
    "WATCH",
    "Command",
    "CommandAnswer",
    "Preemption",
    "Verdict",
    "answer_topic",
    "command_topic",
    "decode_answer",
    "decode_command",
    "encode_answer",
    "encode_command",
    "is_for",
]

VERSION: Final = 1
ALL_COMMANDS: Final = "worker.command.*"
"""The topics of all commands."""
WATCH: Final = "watch"
"""The command that turns the events of jobs on for a while; it is obeyed also where no other is."""
REVOKE: Final = "revoke"
"""The command that makes workers look in the state which jobs were cancelled."""
PREEMPT: Final = "preempt"
"""The command that makes workers give back jobs of the store, so that others have their slots."""
QUEUES: Final = "queues"
"""The command that makes workers look in the state which queues are paused."""
TASKS: Final = "tasks"
"""The command that makes workers report which tasks they have."""
EVERY_WORKER: Final = "*"
_HOST: Final = "@"

Verdict = Literal["done", "unknown", "refused"]


class Preemption(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job that is to give way.

    Attributes:
        job: the store's id.
        token: of its dispatch; one that runs under another token goes on.
        reason: for the job's history; "": only a run that has not begun is given back.
        grace: seconds that a run has to end by itself.
    """

    job: str
    token: int
    reason: str = ""
    grace: float = 0.0


class Command(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an operator wants of workers.

    Attributes:
        v: version of the format.
        id: of this command; the answers repeat it.
        name: `ping`, `drain`, `concurrency`, `stacks`, `revoke`, `preempt`, `queues`, `tasks` or `watch`.
        to: names of workers, `@HOST` for those of a host, or `*` for all.
        reply: the topic to answer on; "" for no answer.
        number: `concurrency`: how many slots.
        seconds: `watch`: for how long; `drain`: the grace for what runs, in place of the worker's own.
        job_id: `revoke`: which job.
        reason: `revoke`: why a job of the store is to be stopped; "": the state knows.
        jobs: `preempt`: which.
    """

    v: int = 0
    id: str
    name: str
    to: tuple[str, ...] = (EVERY_WORKER,)
    reply: str = ""
    number: int | None = None
    seconds: float | None = None
    job_id: str | None = None
    reason: str = ""
    jobs: tuple[Preemption, ...] = ()


class CommandAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What one worker says to a command.

    Attributes:
        v: version of the format.
        id: the command's.
        verdict: `done`; `unknown`: this worker knows no such command; `refused`: it does not do it, see `detail`.
        worker: its name.
        status: how it is, after the command.
        detail: for people.
        text: `stacks`: all threads and coroutines.
    """

    v: int = VERSION
    id: str
    verdict: str
    worker: str
    status: WorkerStatus
    detail: str = ""
    text: str = ""


_encoder = msgspec.json.Encoder()
_commands = msgspec.json.Decoder(Command)
_answers = msgspec.json.Decoder(CommandAnswer)


def command_topic(name: str) -> str:
    """Where a command of this name is announced."""
    return f"worker.command.{name}"


def answer_topic(command_id: str) -> str:
    """Where the answers to a command are announced."""
    return f"worker.answer.{command_id}"


def is_for(command: Command, *, worker: str, host: str) -> bool:
    """Whether a worker is meant."""
    return any(each in (EVERY_WORKER, worker, f"{_HOST}{host}") for each in command.to)


def encode_command(command: Command) -> bytes:
    return _encoder.encode(msgspec.structs.replace(command, v=VERSION))


def encode_answer(answer: CommandAnswer) -> bytes:
    return _encoder.encode(answer)


def decode_command(body: bytes) -> Command:
    """Raises:
    MalformedMessage: it is no command.
    """
    try:
        return _commands.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedMessage(f"no command: {error}") from error


def decode_answer(body: bytes) -> CommandAnswer:
    """Raises:
    MalformedMessage: it is no answer.
    """
    try:
        return _answers.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedMessage(f"no answer to a command: {error}") from error
