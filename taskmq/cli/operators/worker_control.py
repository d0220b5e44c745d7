"""`taskmq worker control`."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import App, Parameter

from taskmq.cli.actor import audited, note_change
from taskmq.cli.exits import CONFLICT, NOT_FOUND, OK
from taskmq.cli.globals import current_globals
from taskmq.cli.operators.workers import at_app, describe, seconds_of
from taskmq.cli.output import note, print_record, print_rows, printable, write_line
from taskmq.cli.server_link import over_http
from taskmq.errors import InvalidOption
from taskmq.model.commands import Command, CommandAnswer
from taskmq.model.telemetry.worker_status import WorkerStatus
from taskmq.operations.workers import WorkerAnswers, addressed, tell_workers

if TYPE_CHECKING:
    from taskmq.app import TaskMQ

__all__ = ["ANSWER_COLUMNS", "app", "code_of", "note_silence", "print_stacks", "print_workers"]

ANSWER_COLUMNS: Final = ("worker", "verdict", "detail", "state", "slots")

app = App(
    name="control",
    help="Command workers: status, drain, concurrency, stacks.",
    result_action="return_value",
)

_Every = Annotated[bool, Parameter(name="--all", negative="")]
_WITHIN = "1s"
_LONGEST_SUBJECT: Final = 200


@app.command
@over_http("workers:status")
def status(*names: str, every: _Every = False, host: str | None = None, within: str = _WITHIN) -> int:
    """Show how workers are, with what they run.

    Parameters
    ----------
    names
        Workers, by name.
    every
        All workers.
    host
        The workers of a host.
    within
        How long to wait for answers.
    """
    told = _ask(names, Command(id="", name="ping"), every=every, host=host, within=within)
    if current_globals().output == "table":
        print_workers([answer.status for answer in told.answers])
    else:
        print_rows((), [describe(answer.status) for answer in told.answers])
    return code_of([answer.verdict for answer in told.answers], told.missing)


@app.command
@audited
@over_http("workers:drain")
def drain(
    *names: str, grace: str | None = None, every: _Every = False, host: str | None = None, within: str = _WITHIN
) -> int:
    """Have workers take nothing new, wait for what they run, and exit.

    What still runs after the grace is interrupted and goes back to its queue: another worker runs it, in the same
    attempt, from its checkpoint. The workers answer when they begin to drain, and are not replaced: `taskmq worker`
    exits with its last process.

    Parameters
    ----------
    names
        Workers, by name.
    grace
        How long what runs may go on, such as 10m; by default as the worker's own --grace says.
    every
        All workers.
    host
        The workers of a host.
    within
        How long to wait for answers.
    """
    command = Command(id="", name="drain", seconds=None if grace is None else seconds_of(grace, what="grace"))
    return _tell(names, command, every=every, host=host, within=within)


@app.command
@audited
@over_http("workers:concurrency")
def concurrency(
    number: int, /, *names: str, every: _Every = False, host: str | None = None, within: str = _WITHIN
) -> int:
    """Change how many tasks run at a time in each process; what runs beyond them goes on to its end.

    It holds until the process ends.

    Parameters
    ----------
    number
        At least 1.
    names
        Workers, by name.
    every
        All workers.
    host
        The workers of a host.
    within
        How long to wait for answers.
    """
    if number < 1:
        raise InvalidOption("concurrency: at least 1")
    return _tell(names, Command(id="", name="concurrency", number=number), every=every, host=host, within=within)


@app.command
@over_http("workers:stacks")
def stacks(*names: str, every: _Every = False, host: str | None = None, within: str = _WITHIN) -> int:
    """Show where all threads and tasks of workers are: files, lines and functions, no values.

    Parameters
    ----------
    names
        Workers, by name.
    every
        All workers.
    host
        The workers of a host.
    within
        How long to wait for answers.
    """
    told = _ask(names, Command(id="", name="stacks"), every=every, host=host, within=within)
    if current_globals().output != "table":
        print_rows((), [{**_row(answer), "text": answer.text} for answer in told.answers])
    else:
        for answer in told.answers:
            print_stacks(answer.worker, answer.verdict, answer.text)
    return code_of([answer.verdict for answer in told.answers], told.missing)


def print_workers(workers: Sequence[WorkerStatus]) -> None:
    """Print how workers are, with what they run, for people."""
    for worker in workers:
        record = dict(describe(worker))
        jobs: Sequence[Mapping[str, Any]] = record.pop("jobs")
        print_record(record)
        print_rows(("job_id", "task", "queue", "attempt", "seconds"), jobs)


def print_stacks(worker: str, verdict: str, text: str) -> None:
    """Print where a worker's threads and tasks are, for people."""
    write_line(printable(f"== {worker} ({verdict})\n{text}"))


def note_silence(answers: int, missing: Sequence[str], within: str) -> None:
    """Print which workers have not answered."""
    if not answers:
        note(f"no worker answers within {within}")
    elif missing:
        note(f"no answer within {within} from {', '.join(missing)}")


def code_of(verdicts: Sequence[str], missing: Sequence[str]) -> int:
    """How a command to workers ends."""
    if not verdicts or missing:
        return NOT_FOUND
    return OK if all(verdict == "done" for verdict in verdicts) else CONFLICT


def _tell(names: Sequence[str], command: Command, *, every: bool, host: str | None, within: str) -> int:
    told = _ask(names, command, every=every, host=host, within=within, is_change=True)
    print_rows(ANSWER_COLUMNS, [_row(answer) for answer in told.answers])
    return code_of([answer.verdict for answer in told.answers], told.missing)


def _ask(
    names: Sequence[str],
    command: Command,
    *,
    every: bool,
    host: str | None,
    within: str,
    is_change: bool = False,
) -> WorkerAnswers:
    seconds = seconds_of(within)

    async def ask(target: "TaskMQ") -> WorkerAnswers:
        if is_change:
            whom = ", ".join(addressed(names, host=host, every=every))
            facts = {"number": command.number} if command.number else None
            await note_change(target, f"worker.{command.name}", whom[:_LONGEST_SUBJECT], after=facts)
        return await tell_workers(target, command, names, host=host, every=every, within=seconds)

    told = at_app(ask)
    note_silence(len(told.answers), told.missing, within)
    return told


def _row(answer: CommandAnswer) -> Mapping[str, Any]:
    return {
        "worker": answer.worker,
        "verdict": answer.verdict,
        "detail": answer.detail,
        "state": answer.status.state,
        "slots": answer.status.slots,
    }
