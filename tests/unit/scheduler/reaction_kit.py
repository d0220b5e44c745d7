"""Reactions that tests make while schedulers run, and the calls that they lead to."""

from typing import Any

import msgspec

from taskmq.model.envelope import decode_envelope
from taskmq.model.jobs.filters import JobFilter
from taskmq.reactions import JobEnded, ReactionRule, RunEnded, StoredReactions
from tests.unit.scheduler.stage import Process, Stage


def reactions_of(process: Process) -> StoredReactions:
    """Return the reactions that operators make for the process's app."""
    app = process.app
    return StoredReactions(app.name, app.tasks, app.reactions, process.store.schedules)


async def put_reaction(
    stage: Stage, process: Process, name: str, task: str, when: dict[str, Any], **options: Any
) -> None:
    """Create or replace a reaction, and wait until the schedulers know it."""
    rule = ReactionRule(task=task, when=when, since=stage.clock.now_ms(), **options)
    await reactions_of(process).put(name, rule)
    await stage.pass_by(2)


async def list_calls(stage: Stage, task: str) -> list[list[tuple[str, str]]]:
    """Return the workflow or task, and the state, of each event of each call of the task, in order."""
    found: list[list[tuple[str, str]]] = []
    for one in (await stage.store.list_jobs(JobFilter(tasks=(task,)), limit=1000)).jobs:
        (given,) = msgspec.json.decode(bytes(decode_envelope(stage.job(one.id).body).args), type=tuple[Any])
        events = msgspec.convert(given if isinstance(given, list) else [given], list[RunEnded | JobEnded])
        found.append(
            sorted((each.workflow if isinstance(each, RunEnded) else each.task, each.state) for each in events)
        )
    return sorted(found)
