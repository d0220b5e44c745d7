"""`taskmq workers`, `taskmq worker control` and `taskmq doctor` through a server."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from taskmq.api.workers import ControlBody, ControlledWorker, PartView, WorkerView
from taskmq.cli.exits import FAILED, OK
from taskmq.cli.globals import current_globals
from taskmq.cli.operators.worker_control import ANSWER_COLUMNS, code_of, note_silence, print_stacks, print_workers
from taskmq.cli.operators.workers import WORKER_COLUMNS, describe, seconds_of
from taskmq.cli.output import note, print_rows
from taskmq.cli.server_link import only_here, show_rows, text_of_instant
from taskmq.errors import InvalidOption
from taskmq.http import Client
from taskmq.model.commands import Command, is_for
from taskmq.model.nodes import NodeTold
from taskmq.model.telemetry.worker_status import RunningJob, WorkerStatus
from taskmq.operations.workers import addressed

__all__ = ["concurrency", "doctor", "drain", "stacks", "status", "status_of", "workers"]

_PART_COLUMNS: Final = ("part", "status", "since", "finding", "without")


def workers(client: Client, *, within: str) -> int:
    answers = client.workers.list(within=seconds_of(within))
    if not answers:
        note(f"no worker answers within {within}")
    show_rows(WORKER_COLUMNS, answers, lambda one: describe(status_of(one)))
    return OK


def doctor(client: Client, *, watch: str | None) -> int:
    only_here(watch=watch)
    found = client.health()

    def row(one: PartView) -> dict[str, Any]:
        lost = "" if one.status in {"works", "absent"} else one.without
        return {**msgspec.structs.asdict(one), "since": text_of_instant(one.since), "without": lost}

    show_rows(_PART_COLUMNS, found.parts, row, folded=("finding", "without"))
    return OK if found.works else FAILED


def status(client: Client, *, names: Sequence[str], every: bool, host: str | None, within: str) -> int:
    asked = Command(id="", name="ping", to=addressed(names, host=host, every=every))
    found = client.workers.list(within=seconds_of(within))
    answers = [one for one in found if is_for(asked, worker=one.name, host=one.host)]
    missing = [name for name in names if name not in {one.name for one in answers}]
    if current_globals().output == "table":
        print_workers([status_of(one) for one in answers])
    else:
        print_rows((), [msgspec.to_builtins(one) for one in answers])
    note_silence(len(answers), missing, within)
    return code_of(["done"] * len(answers), missing)


def drain(
    client: Client, *, names: Sequence[str], grace: str | None, every: bool, host: str | None, within: str
) -> int:
    addressed(names, host=host, every=every)
    seconds = None if grace is None else seconds_of(grace, what="grace")
    body = ControlBody(command="drain", workers=[*names], host=host or "", all=every, grace=seconds)
    return _tell(client, body, within)


def concurrency(
    client: Client, *, number: int, names: Sequence[str], every: bool, host: str | None, within: str
) -> int:
    if number < 1:
        raise InvalidOption("concurrency: at least 1")
    addressed(names, host=host, every=every)
    body = ControlBody(command="concurrency", workers=[*names], host=host or "", all=every, number=number)
    return _tell(client, body, within)


def stacks(client: Client, *, names: Sequence[str], every: bool, host: str | None, within: str) -> int:
    addressed(names, host=host, every=every)
    body = ControlBody(command="stacks", workers=[*names], host=host or "", all=every)
    told = client.workers.control(body, within=seconds_of(within))
    if current_globals().output != "table":
        print_rows((), [msgspec.to_builtins(answer) for answer in told.items])
    else:
        for answer in told.items:
            print_stacks(answer.worker, answer.verdict, answer.text)
    note_silence(len(told.items), told.missing, within)
    return code_of([answer.verdict for answer in told.items], told.missing)


def status_of(view: WorkerView) -> WorkerStatus:
    """A worker of the API as workers tell it."""
    started = 0 if view.started is None else round(datetime.fromisoformat(view.started).timestamp() * 1000)
    jobs = [
        RunningJob(job_id=job.job_id, task=job.task, queue=job.queue, attempt=job.attempt, seconds=job.seconds)
        for job in view.jobs
    ]
    node = None if view.node is None else NodeTold(name=view.node)
    facts = {name: getattr(view, name) for name in WorkerStatus.__struct_fields__ if name not in _OTHERS}
    return WorkerStatus(**facts, started=started, jobs=jobs, node=node)


_OTHERS = {"started", "jobs", "node"}


def _tell(client: Client, body: ControlBody, within: str) -> int:
    told = client.workers.control(body, within=seconds_of(within))
    show_rows(ANSWER_COLUMNS, told.items, _row)
    note_silence(len(told.items), told.missing, within)
    return code_of([answer.verdict for answer in told.items], told.missing)


def _row(answer: ControlledWorker) -> dict[str, Any]:
    return {
        "worker": answer.worker,
        "verdict": answer.verdict,
        "detail": answer.detail,
        "state": answer.status.state,
        "slots": answer.status.slots,
    }
