"""Replay and purge of dead letters by operators, with an entry in the audit."""

from collections.abc import Callable
from dataclasses import asdict
from datetime import timedelta
from typing import Any

from taskmq.app import TaskMQ
from taskmq.model.units import Duration
from taskmq.operations.audit.actions import RecordAction, record_as
from taskmq.operations.dead_letters.browse import purge
from taskmq.operations.dead_letters.replay import Replay, Replayed, replay
from taskmq.operations.dead_letters.selection import Choose, LetterSelection
from taskmq.operations.dead_letters.walk import Progress

_EVERYTHING = LetterSelection()


async def replay_letters(
    app: TaskMQ,
    queue: str,
    which: LetterSelection = _EVERYTHING,
    *,
    plan: Replay | None = None,
    allows: Callable[[str], bool] | None = None,
    limit: int | None = None,
    depth: int | None = None,
    timeout: Duration = 30,
    progress: Progress | None = None,
    by: str = "",
    record: RecordAction | None = None,
) -> Replayed:
    """Replay the selected letters of a queue as `replay` does, with an audit entry before it.

    Args:
        which: the letters; default: all.
        plan: options of the replay; default: those of `Replay`, with the queues of the app.
        allows: whether the caller may call a task; letters of other tasks stay.
        by: who replays them, for the audit; default: the system's user.
        record: writes the audit entry; default: as `by`.

    Raises:
        InvalidOption, QueueMissing, PartlyReplayed, BrokerUnavailable: see `replay`.
    """
    plan = plan or Replay(queues=app.tasks.queues)
    facts = _describe(
        which,
        to=plan.to,
        keep_attempts=plan.keep_attempts,
        max_replays=plan.max_replays,
        rate=plan.rate,
        duplicates=plan.duplicates,
        limit=limit,
        depth=depth,
    )
    await (record or record_as(by))(app, "dead_letters.replay", subject=queue, after=facts)
    return await replay(
        app.sessions.current().broker,
        queue,
        timeout=timeout,
        plan=plan,
        choose=choose_letters(app, which, allows),
        limit=limit,
        depth=depth,
        progress=progress,
        clock=app.sessions.clock,
    )


async def purge_letters(
    app: TaskMQ,
    queue: str,
    which: LetterSelection = _EVERYTHING,
    *,
    allows: Callable[[str], bool] | None = None,
    limit: int | None = None,
    depth: int | None = None,
    progress: Progress | None = None,
    by: str = "",
    record: RecordAction | None = None,
) -> int:
    """Delete the selected letters of a queue, with an audit entry before it. Returns their number.

    The arguments are those of `replay_letters`.

    Raises:
        InvalidOption, QueueMissing, BrokerUnavailable: see `purge`.
    """
    facts = _describe(which, limit=limit, depth=depth)
    await (record or record_as(by))(app, "dead_letters.purge", subject=queue, after=facts)
    choose = choose_letters(app, which, allows)
    return await purge(
        app.sessions.current().broker, queue, choose=choose, limit=limit, depth=depth, progress=progress
    )


def choose_letters(app: TaskMQ, which: LetterSelection, allows: Callable[[str], bool] | None = None) -> Choose | None:
    """Return the predicate for the selected letters whose task the caller may call; None if it accepts all."""
    choose = None if which.is_everything else which.at(app.sessions.clock.now_ms())
    if allows is None:
        return choose
    return lambda letter: allows(letter.task) and (choose is None or choose(letter))


def _describe(which: LetterSelection, **options: object) -> dict[str, Any]:
    """Return the conditions and options that are given; times are in seconds."""
    return {
        name: value.total_seconds() if isinstance(value, timedelta) else value
        for name, value in {**asdict(which), **options}.items()
        if value is not None
    }
