"""Depths of queues over time, as lines of a plot."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from taskmq.contracts.history import DepthStore, QueueDepth
from taskmq.errors import InvalidOption
from taskmq.model.history.figures import Series

DEPTHS: Final[Mapping[str, Callable[[QueueDepth], int]]] = {
    "depth_stored": lambda depth: depth.stored,
    "depth_ready": lambda depth: depth.ready,
    "depth_in_hand": lambda depth: depth.in_hand,
}
"""The waiting jobs of the store, the waiting messages and those that workers hold: the most of each step."""

_MOST: Final = 200_000


async def read_depths(
    store: DepthStore,
    names: Sequence[str],
    *,
    since: int,
    until: int,
    step: int,
    queue: str | None,
    by: Sequence[str],
) -> dict[str, list[Series]]:
    """Return depths by name: of each queue if `by` is `queue`, otherwise of all queues together.

    Raises:
        InvalidOption: they are grouped by something else, or the answer is too long.
    """
    if set(by) - {"queue"}:
        raise InvalidOption(f"by: {', '.join(names)} can only be grouped by queue")
    instants = range(since // step * step, until, step)
    found = await store.depths(since=instants.start, until=until, step=step, queue=queue, limit=_MOST + 1)
    if len(found) > _MOST:
        raise InvalidOption(f"since: the answer needs more than {_MOST} depths; ask for a shorter time or one queue")
    groups: dict[str, dict[int, list[QueueDepth]]] = {} if by else {"": {}}
    for depth in found:
        groups.setdefault(depth.queue if by else "", {}).setdefault(depth.at, []).append(depth)
    return {
        name: [
            Series(
                {"queue": group} if by else {},
                [(at, float(sum(map(DEPTHS[name], depths[at]))) if at in depths else None) for at in instants],
            )
            for group, depths in sorted(groups.items())
        ]
        for name in names
    }
