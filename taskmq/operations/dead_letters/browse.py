"""Browsing, grouping and purging of dead letters."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from taskmq.contracts.broker import Broker
from taskmq.operations.dead_letters.letter import DeadLetter, JobsOfLetters
from taskmq.operations.dead_letters.selection import Choose
from taskmq.operations.dead_letters.walk import Progress, count_letters, letter_queue, walk


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterGroup:
    """The letters with the same failure.

    Attributes:
        count: number of letters.
        jobs: number of jobs that they belong to.
        tenants: tenants of the letters, "" for letters that name none.
        first: when the first of them died (ms since the epoch); None if unknown.
        last: when the last of them died.
        sample: job of the first letter in the queue, for `show`.
        error: error message of that letter.
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
    """Call `see` with each chosen dead letter of `queue`, oldest first. Returns their number.

    The letters stay in the queue, in their order. Only some hundred are in memory at a time, so the queue may have
    any length. Until the end no other reader sees the letters that were read.

    Args:
        broker: the broker that has the queue.
        queue: logical name of the queue; or `taskmq.parking`, `taskmq.unroutable`.
        see: called with each chosen letter; if it raises, all letters return to the queue.
        choose: predicate that selects letters; default: all.
        limit: number of chosen letters after which to stop.
        depth: read at most this many letters, the oldest.
        progress: called with the progress of the walk.

    Raises:
        InvalidOption: the queue's name is invalid.
        QueueMissing: there is no such queue.
        BrokerUnavailable: the connection was lost; all letters are still in the queue.
    """
    count = 0
    async with walk(broker, queue, depth=depth, expected=None if choose else limit, progress=progress) as letters:
        while limit is None or count < limit:
            # If every letter is chosen, do not read more than needed.
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
    """Return the oldest `limit` chosen dead letters of `queue`; see `visit`."""
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
    """Group the dead letters of `queue` by failure, most frequent first; see `visit`."""
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
    """Delete the chosen dead letters of `queue`, oldest first. Returns their number. The others keep their order.

    Raises:
        InvalidOption: the queue's name is invalid.
        QueueMissing: there is no such queue.
        BrokerUnavailable: the connection was lost; some letters may have been deleted.
    """
    if choose is None and limit is None and depth is None:
        return await broker.purge(letter_queue(queue)) if await count_letters(broker, queue) else 0
    count = 0
    async with walk(broker, queue, depth=depth, expected=None if choose else limit, progress=progress) as letters:
        while (limit is None or count < limit) and (piece := await letters.next()):
            for delivery, letter in piece:
                if (limit is None or count < limit) and (choose is None or choose(letter)):
                    delivery.ack()
                    count += 1
    return count
