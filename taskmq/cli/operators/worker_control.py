"""`taskmq worker control`."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import App, Parameter

from taskmq.api.workers import ControlBody
from taskmq.cli.actor import audited
from taskmq.cli.exits import CONFLICT, NOT_FOUND, OK
from taskmq.cli.globals import current_globals
from taskmq.cli.operators.workers import describe, seconds_of
from taskmq.cli.output import note, print_record, print_rows, printable, write_line
from taskmq.cli.server_link import ask, show_rows
from taskmq.errors import InvalidOption
from taskmq.model.commands import Command, is_for
from taskmq.operations.workers import resolve_addresses

if TYPE_CHECKING:
    from taskmq.api.workers import ControlledWorker, ControlledWorkers

__all__ = ["app"]

_COLUMNS: Final = ("worker", "verdict", "detail", "state", "slots")

app = App(
    name="control",
    help="Command workers: status, drain, concurrency, stacks.",
    result_action="return_value",
)

_Every = Annotated[bool, Parameter(name="--all", negative="")]
_WITHIN = "1s"


@app.command
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
    asked = Command(id="", name="ping", to=resolve_addresses(names, host=host, every=every))
    found = ask(lambda api: api.workers.list(within=seconds_of(within)))
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
    _note_silence(len(answers), missing, within)
    return _code_of(["done"] * len(answers), missing)


@app.command
@audited
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
    seconds = None if grace is None else seconds_of(grace, what="grace")
    body = ControlBody(command="drain", workers=[*names], host=host or "", all=every, grace=seconds)
    return _tell(body, within)


@app.command
@audited
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
    body = ControlBody(command="concurrency", workers=[*names], host=host or "", all=every, number=number)
    return _tell(body, within)


@app.command
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
    told = _control(ControlBody(command="stacks", workers=[*names], host=host or "", all=every), within)
    if current_globals().output == "table":
        for answer in told.items:
            write_line(printable(f"== {answer.worker} ({answer.verdict})\n{answer.text}"))
    else:
        show_rows(_COLUMNS, told.items, _row)
    return _end(told, within)


def _tell(body: ControlBody, within: str) -> int:
    told = _control(body, within)
    show_rows(_COLUMNS, told.items, _row)
    return _end(told, within)


def _control(body: ControlBody, within: str) -> "ControlledWorkers":
    # Refused here, before a server is asked.
    resolve_addresses(body.workers, host=body.host or None, every=body.all)
    return ask(lambda api: api.workers.control(body, within=seconds_of(within)))


def _end(told: "ControlledWorkers", within: str) -> int:
    """Print which workers have not answered; the exit code."""
    _note_silence(len(told.items), told.missing, within)
    return _code_of([answer.verdict for answer in told.items], told.missing)


def _note_silence(answers: int, missing: Sequence[str], within: str) -> None:
    if not answers:
        note(f"no worker answers within {within}")
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
