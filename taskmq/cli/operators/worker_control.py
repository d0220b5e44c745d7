"""`taskmq worker control`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import Parameter

from taskmq.api.values import LogLevel
from taskmq.api.workers import ControlBody
from taskmq.cli.actor import name_caller
from taskmq.cli.exits import CONFLICT, NOT_FOUND, OK
from taskmq.cli.globals import current_globals
from taskmq.cli.noun import Noun
from taskmq.cli.operators.workers import describe, seconds_of
from taskmq.cli.output import note, print_record, print_rows, printable, write_line
from taskmq.cli.server_link import ask, show_rows
from taskmq.errors import InvalidOption
from taskmq.model.commands import Command, is_for
from taskmq.operations.workers import resolve_addresses

if TYPE_CHECKING:
    from taskmq.api.workers import ControlledWorker, ControlledWorkers

_COLUMNS: Final = ("worker", "verdict", "detail", "state", "slots")

app = Noun(name="control")


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class _Choice:
    """Flags that choose the workers besides those with the given names, and the time that they have to answer."""

    every: Annotated[bool, Parameter(name="--all", negative="", help="All workers.")] = False
    host: Annotated[str | None, Parameter(help="All workers on this host.")] = None
    within: Annotated[str, Parameter(help="How long to wait for answers.")] = "1s"

    def body(self, names: Sequence[str], **command: Any) -> ControlBody:
        """Return a command for the named and the chosen workers."""
        return ControlBody(workers=[*names], host=self.host or "", all=self.every, **command)


_BY_NAME: Final = _Choice()


@app.command
def status(*names: str, choice: _Choice = _BY_NAME) -> int:
    """Show the state of workers and the jobs that they run.

    Args:
        names: Workers, by name.
    """
    asked = Command(id="", name="ping", to=resolve_addresses(names, host=choice.host, every=choice.every))
    found = ask(lambda api: api.workers.list(within=seconds_of(choice.within)))
    answers = [one for one in found if is_for(asked, worker=one.name, host=one.host)]
    missing = [name for name in names if name not in {one.name for one in answers}]
    if current_globals().output == "table":
        for worker in answers:
            record = dict(describe(worker))
            jobs: Sequence[Mapping[str, Any]] = record.pop("jobs")
            print_record(record)
            print_rows(("job_id", "task", "queue", "attempt", "seconds"), jobs)
    else:
        show_rows((), answers, describe)
    _note_silence(len(answers), missing, choice.within)
    return _code_of(["done"] * len(answers), missing)


@app.command
@name_caller
def pause(*names: str, choice: _Choice = _BY_NAME) -> int:
    """Pause workers: they start no more jobs until they are resumed. Running jobs continue.

    Jobs that wait in a worker return to their queues, for other workers. A pause ends with the process.

    Args:
        names: Workers, by name.
    """
    return _send(choice.body(names, command="pause"), choice.within)


@app.command
@name_caller
def resume(*names: str, choice: _Choice = _BY_NAME) -> int:
    """Resume paused workers.

    Args:
        names: Workers, by name.
    """
    return _send(choice.body(names, command="resume"), choice.within)


@app.command
@name_caller
def drain(*names: str, grace: str | None = None, choice: _Choice = _BY_NAME) -> int:
    """Drain workers: they accept no new jobs, finish the running ones, and exit.

    Jobs that still run after the grace period are interrupted and requeued: another worker continues the same attempt
    from its checkpoint. Workers answer when they start to drain, and are not replaced: `taskmq worker` exits with its
    last process.

    Args:
        names: Workers, by name.
        grace: How long running jobs may continue, such as 10m. Default: the worker's own --grace.
    """
    seconds = None if grace is None else seconds_of(grace, what="grace")
    return _send(choice.body(names, command="drain", grace=seconds), choice.within)


@app.command
@name_caller
def concurrency(number: int, /, *names: str, choice: _Choice = _BY_NAME) -> int:
    """Change how many tasks each process runs at a time. Surplus running tasks finish normally.

    The change lasts until the process ends.

    Args:
        number: Tasks per process, at least 1.
        names: Workers, by name.
    """
    if number < 1:
        raise InvalidOption("concurrency must be at least 1")
    return _send(choice.body(names, command="concurrency", number=number), choice.within)


@app.command
@name_caller
def log_level(level: LogLevel, /, *names: str, choice: _Choice = _BY_NAME) -> int:
    """Change the log level of workers until the process ends.

    Tasks that run in processes of their own keep their level.

    Args:
        level: debug, info, warning, error or critical.
        names: Workers, by name.
    """
    return _send(choice.body(names, command="log_level", level=level), choice.within)


@app.command
def stacks(*names: str, choice: _Choice = _BY_NAME) -> int:
    """Show the stacks of all threads and tasks of workers: files, lines and functions, no values.

    Args:
        names: Workers, by name.
    """
    answers = _control(choice.body(names, command="stacks"), choice.within)
    if current_globals().output == "table":
        for answer in answers.items:
            write_line(printable(f"== {answer.worker} ({answer.verdict})\n{answer.text}"))
    else:
        show_rows(_COLUMNS, answers.items, _row)
    return _report_missing(answers, choice.within)


def _send(body: ControlBody, within: str) -> int:
    answers = _control(body, within)
    show_rows(_COLUMNS, answers.items, _row)
    return _report_missing(answers, within)


def _control(body: ControlBody, within: str) -> "ControlledWorkers":
    # Reject invalid durations before asking a server.
    resolve_addresses(body.workers, host=body.host or None, every=body.all)
    return ask(lambda api: api.workers.control(body, within=seconds_of(within)))


def _report_missing(answers: "ControlledWorkers", within: str) -> int:
    """Print which workers have not answered, and return the exit code."""
    _note_silence(len(answers.items), answers.missing, within)
    return _code_of([answer.verdict for answer in answers.items], answers.missing)


def _note_silence(answers: int, missing: Sequence[str], within: str) -> None:
    if not answers:
        note(f"no worker answered within {within}")
    elif missing:
        note(f"no answer within {within} from {', '.join(missing)}")


def _code_of(verdicts: Sequence[str], missing: Sequence[str]) -> int:
    if not verdicts or missing:
        return NOT_FOUND
    return OK if all(verdict == "done" for verdict in verdicts) else CONFLICT


def _row(answer: "ControlledWorker") -> Mapping[str, Any]:
    return {
        "worker": answer.worker,
        "verdict": answer.verdict,
        "detail": answer.detail,
        "state": answer.status.state,
        "slots": answer.status.slots,
    }
