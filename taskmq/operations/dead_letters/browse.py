"""Looking at dead letters, which stay where they are; and deleting them."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from taskmq.contracts.broker import Broker
from taskmq.operations.dead_letters.letter import DeadLetter, JobsOfLetters
from taskmq.operations.dead_letters.selection import Choose
from taskmq.operations.dead_letters.walk import Progress, count_letters, letter_queue, walk

__all__ = ["LetterGroup", "browse", "group_letters", "purge", "visit"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterGroup:
    """The letters of one failure.

    Attributes:
        count: how many letters.
        jobs: how many jobs they are of.
        tenants: whose they are, "" for those that name none.
        first: when the first of them died (ms since the epoch); None when it was not written down.
        last: when the last of them did.
        sample: the job of the first of them in the queue, to `show`.
        error: what that one said.
    """

    fingerprint: str
    count: int
    jobs: int
    tenants: frozenset[str]
    task: str
    reason: str
    error_type: str
    error: str
    first: int | None
    last: int | None
    sample: str


async def visit(
    broker: Broker,
    queue: str,
    see: Callable[[DeadLetter], object],
    *,
    choose: Choose | None = None,
    limit: int | None = None,
    depth: int | None = None,
    progress: Progress | None = None,
) -> int:
    """Call `see` with each dead letter of `queue` that is chosen, oldest first; how many those were.

    The letters stay where they are, in their order. Only some hundred are in memory at a time, so a queue of any
    length can be gone through; until the end no other reader sees those that were passed.

    Args:
        broker: where the queue is.
        queue: as people name it; or `taskmq.parking`, `taskmq.unroutable`.
        see: called for each; when it raises, the letters are put back.
        choose: which; all when left out.
        limit: stop after so many.
        depth: look at no more than so many, the oldest.
        progress: called with how far it is.

    Raises:
        InvalidOption: a queue cannot be called that.
        QueueMissing: there is no such queue.
        BrokerUnavailable: the broker was lost; the letters are where they were.
    """
    count = 0
    async with walk(broker, queue, depth=depth, progress=progress) as letters:
        while limit is None or count < limit:
            # Without a choice each letter counts: none is taken in vain.
            wanted = limit - count if limit is not None and choose is None else None
            piece = await (letters.next() if wanted is None else letters.next(wanted))
            if not piece:
                break
            for _, letter in piece:
                if (limit is None or count < limit) and (choose is None or choose(letter)):
                    see(letter)
                    count += 1
    return count


async def browse(
    broker: Broker,
    queue: str,
    *,
    limit: int,
    choose: Choose | None = None,
    depth: int | None = None,
    progress: Progress | None = None,
) -> list[DeadLetter]:
    """The oldest `limit` dead letters of `queue` that are chosen; see `visit`."""
    letters: list[DeadLetter] = []
    await visit(broker, queue, letters.append, choose=choose, limit=limit, depth=depth, progress=progress)
    return letters


async def group_letters(
    broker: Broker,
    queue: str,
    *,
    choose: Choose | None = None,
    depth: int | None = None,
    progress: Progress | None = None,
) -> list[LetterGroup]:
    """The failures behind the dead letters of `queue`, the most frequent first; see `visit`."""
    groups: dict[str, LetterGroup] = {}
    # A job whose attempts failed in different ways counts in each group.
    seen: dict[str, JobsOfLetters] = {}

    def add(letter: DeadLetter) -> None:
        mark = letter.fingerprint
        is_first = seen.setdefault(mark, JobsOfLetters()).is_first(letter)
        if (known := groups.get(mark)) is None:
            groups[mark] = LetterGroup(
                fingerprint=mark,
                count=1,
                jobs=1,
                tenants=frozenset({letter.tenant}),
                task=letter.task,
                reason=letter.reason,
                error_type=letter.error_type,
                error=letter.error,
                first=letter.died,
                last=letter.died,
                sample=letter.job_id,
            )
            return
        died = [time for time in (known.first, known.last, letter.died) if time is not None]
        groups[mark] = replace(
            known,
            count=known.count + 1,
            jobs=known.jobs + is_first,
            tenants=known.tenants | {letter.tenant},
            first=min(died, default=None),
            last=max(died, default=None),
        )

    await visit(broker, queue, add, choose=choose, depth=depth, progress=progress)
    return sorted(groups.values(), key=lambda found: -found.count)


async def purge(
    broker: Broker,
    queue: str,
    *,
    choose: Choose | None = None,
    limit: int | None = None,
    depth: int | None = None,
    progress: Progress | None = None,
) -> int:
    """Delete the dead letters of `queue` that are chosen, oldest first; how many. The others keep their order.

    Raises:
        InvalidOption: a queue cannot be called that.
        QueueMissing: there is no such queue.
        BrokerUnavailable: the broker was lost; some may have been deleted.
    """
    if choose is None and limit is None and depth is None:
        return await broker.purge(letter_queue(queue)) if await count_letters(broker, queue) else 0
    count = 0
    async with walk(broker, queue, depth=depth, progress=progress) as letters:
        while (limit is None or count < limit) and (piece := await letters.next()):
            for delivery, letter in piece:
                if (limit is None or count < limit) and (choose is None or choose(letter)):
                    delivery.ack()
                    count += 1
    return count
