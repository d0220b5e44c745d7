"""`/dead-letters`: looking at them, sending them again, deleting them.

A caller who may do that for one tenant alone meets the letters of that tenant, as if there were no others.
"""

from datetime import timedelta
from typing import Any, Final

import msgspec
from litestar import get, post
from litestar.params import FromPath, FromQuery, JSONBody

from taskmq.api.dead_letters import (
    LetterChoice,
    LetterGroups,
    LetterGroupView,
    LetterList,
    LetterQueues,
    LetterView,
    PurgeLettersBody,
    ReplayBody,
    ReplayedView,
)
from taskmq.api.queues import PurgedView
from taskmq.app import TaskMQ
from taskmq.app_api.views import instant_text, rendered
from taskmq.errors import NotPermitted
from taskmq.model.identity import Permission, may, task_patterns
from taskmq.model.units import parse_duration
from taskmq.operations.dead_letters import (
    Choose,
    DeadLetter,
    LetterGroup,
    LetterSelection,
    Replay,
    browse,
    group_letters,
    purge,
    queues_with_letters,
    replay,
)
from taskmq.server.access import Caller
from taskmq.server.inputs import CallerGiven, Limit, ServedApp
from taskmq.server.queues.queues import check_typed_name
from taskmq.server.settings import API

__all__ = ["DEAD_LETTERS"]

# A look through more holds them up for others, and this server's memory.
_DEPTH: Final = 10_000
_REPLAY_SECONDS: Final = 30.0


@get(
    f"{API}/dead-letters",
    permission=Permission.DEAD_LETTERS_READ,
    operation_id="listDeadLetterQueues",
    summary="Queues with dead letters",
    tags=["dead letters"],
)
async def list_queues_with_letters(app: ServedApp, caller: CallerGiven) -> LetterQueues:
    """The queues that have dead letters, those of lost messages among them.

    For one tenant the oldest 10,000 letters of each queue are looked at.
    """
    broker = app.sessions.current().broker
    names = await queues_with_letters(broker, [queue.name for queue in app.tasks.queues])
    if caller.tenant is None:
        return LetterQueues(names)
    own = LetterSelection(tenant=caller.tenant).at(_now(app))
    return LetterQueues([name for name in names if await browse(broker, name, limit=1, choose=own, depth=_DEPTH)])


@get(
    f"{API}/dead-letters/{{queue:str}}",
    permission=Permission.DEAD_LETTERS_READ,
    operation_id="listDeadLetters",
    summary="List dead letters",
    tags=["dead letters"],
)
async def list_letters(
    app: ServedApp,
    caller: CallerGiven,
    queue: FromPath[str],
    task: FromQuery[str | None] = None,
    error: FromQuery[str | None] = None,
    fingerprint: FromQuery[str | None] = None,
    job: FromQuery[str | None] = None,
    limit: Limit = 50,
) -> LetterList:
    """The oldest letters of a queue that are chosen, of its oldest 10,000; they stay where they are."""
    selection = LetterSelection(task=task, error=error, fingerprint=fingerprint, job=job, tenant=caller.tenant)
    choose = selection.at(_now(app))
    broker = app.sessions.current().broker
    letters = await browse(broker, queue, limit=limit, choose=choose, depth=_DEPTH)
    return LetterList(rendered(_view, letters))


@get(
    f"{API}/dead-letters/{{queue:str}}/groups",
    permission=Permission.DEAD_LETTERS_READ,
    operation_id="groupDeadLetters",
    summary="The failures behind dead letters",
    tags=["dead letters"],
)
async def list_groups(app: ServedApp, caller: CallerGiven, queue: FromPath[str]) -> LetterGroups:
    """The failures behind the oldest 10,000 letters of a queue, the most frequent first."""
    own = LetterSelection(tenant=caller.tenant).at(_now(app))
    found = await group_letters(app.sessions.current().broker, queue, choose=own, depth=_DEPTH)
    return LetterGroups(rendered(_group, found))


@post(
    f"{API}/dead-letters/{{queue:str}}/replay",
    status_code=200,
    permission=Permission.DEAD_LETTERS_REPLAY,
    operation_id="replayDeadLetters",
    summary="Send dead letters again",
    tags=["dead letters"],
)
async def replay_letters(
    app: ServedApp, caller: CallerGiven, queue: FromPath[str], data: JSONBody[ReplayBody]
) -> ReplayedView:
    """Send the jobs of the letters that are chosen again; each is taken off once the broker has its copy.

    Letters of tasks that the caller may not call stay where they are. `to` and `rate` take a role on the instance: a
    slow replay hides the letters that it passes from everybody, and any queue could be named.
    """
    if (data.to is not None or data.rate is not None) and not may(caller.identity, caller.permission):
        raise NotPermitted("you may not: to and rate take a role on the instance, leave them out")
    choose = _allowed(caller, _chosen(app, caller, data))
    await caller.note_action(app, "dead_letters.replay", subject=queue, after=msgspec.to_builtins(data))
    done = await replay(
        app.sessions.current().broker,
        queue,
        timeout=_REPLAY_SECONDS,
        plan=Replay(to=data.to, keep_attempts=data.keep_attempts, rate=data.rate, queues=app.tasks.queues),
        choose=choose,
        limit=data.limit,
        depth=_DEPTH,
    )
    return ReplayedView(
        replayed=done.replayed,
        dropped=done.dropped,
        too_often=done.too_often,
        no_destination=done.no_destination,
    )


@post(
    f"{API}/dead-letters/{{queue:str}}/purge",
    status_code=200,
    permission=Permission.DEAD_LETTERS_PURGE,
    operation_id="purgeDeadLetters",
    summary="Delete dead letters",
    tags=["dead letters"],
)
async def purge_letters(
    app: ServedApp, caller: CallerGiven, queue: FromPath[str], data: JSONBody[PurgeLettersBody]
) -> PurgedView:
    """Delete the letters that are chosen; the body names the queue once more.

    Letters of tasks that the caller may not call stay where they are.
    """
    check_typed_name(data.name, queue)
    await caller.note_action(app, "dead_letters.purge", subject=queue, after=msgspec.to_builtins(data))
    selection = LetterSelection(
        task=data.task, error=data.error, fingerprint=data.fingerprint, job=data.job, tenant=caller.tenant
    )
    # All of a queue at once, without a look at each, by who may call whatever there is.
    is_whole = selection.is_everything and all("*" in have for have in task_patterns(caller.identity, ""))
    choose = None if is_whole else _allowed(caller, selection.at(_now(app)))
    return PurgedView(purged=await purge(app.sessions.current().broker, queue, choose=choose))


DEAD_LETTERS: Final[tuple[Any, ...]] = (
    list_queues_with_letters,
    list_letters,
    list_groups,
    replay_letters,
    purge_letters,
)


def _now(app: TaskMQ) -> int:
    return app.sessions.clock.now_ms()


def _chosen(app: TaskMQ, caller: Caller, choice: LetterChoice) -> Choose:
    selection = LetterSelection(
        task=choice.task,
        error=choice.error,
        reason=choice.reason,
        fingerprint=choice.fingerprint,
        job=choice.job,
        tenant=caller.tenant,
        older_than=_span(choice.older_than, "older_than"),
        newer_than=_span(choice.newer_than, "newer_than"),
    )
    return selection.at(_now(app))


def _allowed(caller: Caller, choose: Choose) -> Choose:
    return lambda letter: caller.allows(letter.task) and choose(letter)


def _span(text: str | None, what: str) -> timedelta | None:
    return None if text is None else parse_duration(text, what=what)


def _view(letter: DeadLetter) -> LetterView:
    return LetterView(
        job_id=letter.job_id,
        task=letter.task,
        tenant=letter.tenant,
        queue=letter.queue,
        attempt=letter.attempt,
        reason=letter.reason,
        error_type=letter.error_type,
        error=letter.error,
        traceback=letter.traceback,
        fingerprint=letter.fingerprint,
        enqueued=instant_text(letter.enqueued),
        died=instant_text(letter.died),
        worker=letter.worker,
        replayed=letter.replayed,
    )


def _group(group: LetterGroup) -> LetterGroupView:
    return LetterGroupView(
        fingerprint=group.fingerprint,
        count=group.count,
        jobs=group.jobs,
        tenants=sorted(group.tenants),
        task=group.task,
        reason=group.reason,
        error_type=group.error_type,
        error=group.error,
        first=instant_text(group.first),
        last=instant_text(group.last),
        sample=group.sample,
    )
