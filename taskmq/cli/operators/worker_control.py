"""`taskmq worker control`."""

import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from cyclopts import App, Parameter

from taskmq.cli.exits import CONFLICT, NOT_FOUND, OK
from taskmq.cli.globals import current_globals
from taskmq.cli.operators.workers import ask_workers, describe
from taskmq.cli.output import note, print_record, print_rows
from taskmq.errors import InvalidOption
from taskmq.model.commands import EVERY_WORKER, Command, CommandAnswer

__all__ = ["app"]

app = App(
    name="control",
    help="Tell workers what to do: status, drain, concurrency, stacks.",
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
    answers = _ask(names, Command(id="", name="ping"), every=every, host=host, within=within)
    if current_globals().output != "table":
        print_rows((), [describe(answer.status) for answer in answers])
        return _exit_code(names, answers)
    for answer in answers:
        record = dict(describe(answer.status))
        jobs: Sequence[Mapping[str, Any]] = record.pop("jobs")
        print_record(record)
        print_rows(("job_id", "task", "queue", "attempt", "seconds"), jobs)
    return _exit_code(names, answers)


@app.command
def drain(*names: str, every: _Every = False, host: str | None = None, within: str = _WITHIN) -> int:
    """Have workers take nothing new, end what they run, and exit.

    They are not replaced: `taskmq worker` exits with its last process.

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
    return _tell(names, Command(id="", name="drain"), every=every, host=host, within=within)


@app.command
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
    answers = _ask(names, Command(id="", name="stacks"), every=every, host=host, within=within)
    if current_globals().output != "table":
        print_rows((), [{**_row(answer), "text": answer.text} for answer in answers])
    else:
        for answer in answers:
            # The functions' names are the app's own, and no words of a message.
            sys.stdout.write(f"== {answer.worker} ({answer.verdict})\n{answer.text}\n")
    return _exit_code(names, answers)


def _tell(names: Sequence[str], command: Command, *, every: bool, host: str | None, within: str) -> int:
    answers = _ask(names, command, every=every, host=host, within=within)
    print_rows(("worker", "verdict", "detail", "state", "slots"), [_row(answer) for answer in answers])
    return _exit_code(names, answers)


def _ask(
    names: Sequence[str], command: Command, *, every: bool, host: str | None, within: str
) -> Sequence[CommandAnswer]:
    to = (*names, *([f"@{host}"] if host else []), *([EVERY_WORKER] if every else []))
    if not to:
        raise InvalidOption("which workers? Name them, or say --host HOST or --all")
    from msgspec.structs import replace

    answers = ask_workers(replace(command, to=to), within=within)
    if not answers:
        note(f"no worker answers within {within}")
    elif missing := _missing(names, answers):
        note(f"no answer within {within} from {', '.join(missing)}")
    return answers


def _row(answer: CommandAnswer) -> Mapping[str, Any]:
    return {
        "worker": answer.worker,
        "verdict": answer.verdict,
        "detail": answer.detail,
        "state": answer.status.state,
        "slots": answer.status.slots,
    }


def _missing(names: Sequence[str], answers: Sequence[CommandAnswer]) -> list[str]:
    found = {answer.worker for answer in answers}
    return [name for name in names if name not in found]


def _exit_code(names: Sequence[str], answers: Sequence[CommandAnswer]) -> int:
    if not answers or _missing(names, answers):
        return NOT_FOUND
    return OK if all(answer.verdict == "done" for answer in answers) else CONFLICT
