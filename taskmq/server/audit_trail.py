"""The audit of what is done elsewhere than in the store: at the broker, and in the state."""

from typing import Any

from taskmq.access import actor_of
from taskmq.app import TaskMQ
from taskmq.server.access import Caller

__all__ = ["note_action"]


async def note_action(
    app: TaskMQ,
    caller: Caller,
    action: str,
    *,
    subject: str,
    after: dict[str, Any] | None = None,
    note: str = "",
) -> None:
    """Write down what a caller is about to do, before it is done: nothing is done that is not written down.

    An app without a store, which is mounted with a sign-in of its own, has no audit.

    Args:
        action: a noun and a verb, such as `queue.purge`.
        subject: the name of what it is done to.

    Raises:
        StoreUnavailable: the store could not be reached, so it is not to be done.
    """
    if app.sessions.current().store is None:
        return
    actor = actor_of(caller.identity, address=caller.address, request_id=caller.request_id, note=note)
    entry = actor.entry(
        action, kind=action.partition(".")[0], subject=subject, tenant=caller.tenant or "", after=after
    )
    await app.sessions.store().identity.audit.add([entry])
