"""Dead letters: list, group, replay and purge.

A caller limited to one tenant only sees that tenant's letters.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from typing import Final, Unpack

import msgspec

from taskmq.api.dead_letters import (
    LetterChoice,
    LetterFilters,
    LetterGroupView,
    LetterView,
    PlannedReplay,
    ReplayBody,
    ReplayedView,
)
from taskmq.app import TaskMQ
from taskmq.app_api.caller import ApiCaller, AppCalls
from taskmq.app_api.views import instant_text, render_all, view_of
from taskmq.contracts.broker import Broker
from taskmq.model.identity import Permission
from taskmq.model.units import parse_duration
from taskmq.operations.dead_letters import (
    Choose,
    DeadLetter,
    LetterGroup,
    LetterSelection,
    Progress,
    Replay,
    browse,
    group_letters,
    list_queues_with_letters,
    visit,
)
from taskmq.operations.dead_letters.letter import JobsOfLetters
from taskmq.operations.letter_changes import choose_letters, purge_letters, replay_letters

# Examining more would hide them from other readers, and use too much of a server's memory.
_DEPTH: Final = 10_000
_MOST_PLANNED: Final = 1_000


class AppDeadLetters(AppCalls):
    """Dead letters of the broker.

    Args:
        most: the maximum number of letters examined per queue, oldest first, except for deletion; None for no limit.
        watch: shows the progress of the action with this name.
    """

    def __init__(
        self,
        app: TaskMQ,
        caller: ApiCaller,
        *,
        most: int | None = _DEPTH,
        watch: Callable[[str], AbstractContextManager[Progress | None]] = lambda _: nullcontext(),
    ) -> None:
        super().__init__(app, caller)
        self._most = most
        self._watch = watch

    async def queues(self) -> Sequence[str]:
        """List the queues that have dead letters, including the queues of lost messages."""
        names = await list_queues_with_letters(self._broker, [queue.name for queue in self._app.tasks.queues])
        if self._caller.tenant is None:
            return names
        own = self._choose(LetterChoice())
        return [name for name in names if await browse(self._broker, name, limit=1, choose=own, depth=self._most)]

    async def list(
        self, queue: str, *, limit: int = 50, expand: Sequence[str] = (), **which: Unpack[LetterFilters]
    ) -> Sequence[LetterView]:
        meant = LetterChoice(**which)
        choose, depth = self._choose(meant), self._depth(meant.depth)
        with self._watch("reading letters") as progress:
            found = await browse(self._broker, queue, limit=limit, choose=choose, depth=depth, progress=progress)
        return render_all(lambda one: self._view(queue, one, has_body="body" in expand), found)

    async def groups(self, queue: str, **which: Unpack[LetterFilters]) -> Sequence[LetterGroupView]:
        meant = LetterChoice(**which)
        choose, depth = self._choose(meant), self._depth(meant.depth)
        with self._watch("reading letters") as progress:
            found = await group_letters(self._broker, queue, choose=choose, depth=depth, progress=progress)
        return render_all(lambda one: _group(queue, one), found)

    async def replay(self, queue: str, which: ReplayBody | None = None) -> ReplayedView:
        """Replay the letters selected by `which`.

        Letters of tasks that the caller may not call stay in the queue.
        """
        which = which or ReplayBody()
        plan = Replay(
            to=which.to,
            keep_attempts=which.keep_attempts,
            max_replays=which.max_replays,
            rate=which.rate,
            duplicates=which.duplicates,
            queues=self._app.tasks.queues,
        )
        limit, depth, allows = which.limit or self._most, self._depth(which.depth), self._allows
        if which.dry_run:
            choose = choose_letters(self._app, self._select(which), allows)
            return await self._preview(queue, plan, choose, limit=limit, depth=depth)
        with self._watch("replaying letters") as progress:
            done = await replay_letters(
                self._app,
                queue,
                self._select(which),
                plan=plan,
                allows=allows,
                limit=limit,
                depth=depth,
                progress=progress,
                record=self._caller.note_action,
            )
        return ReplayedView(
            replayed=done.replayed,
            dropped=done.dropped,
            too_often=done.too_often,
            no_destination=done.no_destination,
        )

    async def purge(
        self, queue: str, *, limit: int | None = None, dry_run: bool = False, **which: Unpack[LetterFilters]
    ) -> int:
        """Delete matching letters, or all of them without a filter, and return their number.

        Letters of tasks that the caller may not call stay in the queue.
        """
        selection, allows, depth = self._select(LetterChoice(**which)), self._allows, which.get("depth")
        if dry_run:
            with self._watch("reading letters") as progress:
                return await visit(
                    self._broker,
                    queue,
                    lambda _: None,
                    choose=choose_letters(self._app, selection, allows),
                    limit=limit,
                    depth=self._depth(depth),
                    progress=progress,
                )
        with self._watch("deleting letters") as progress:
            return await purge_letters(
                self._app,
                queue,
                selection,
                allows=allows,
                limit=limit,
                depth=depth,
                progress=progress,
                record=self._caller.note_action,
            )

    async def _preview(
        self, queue: str, plan: Replay, choose: Choose | None, *, limit: int | None, depth: int | None
    ) -> ReplayedView:
        planned: list[PlannedReplay] = []
        stay: Counter[str | None] = Counter()
        jobs = JobsOfLetters()

        def goes(letter: DeadLetter) -> bool:
            if choose is not None and not choose(letter):
                return False
            stay[refusal := plan.refusal(letter)] += 1
            return refusal is None and (plan.duplicates or jobs.is_first(letter))

        def see(letter: DeadLetter) -> None:
            if self._most is None or len(planned) < _MOST_PLANNED:
                facts = msgspec.structs.asdict(self._view(queue, letter))
                planned.append(PlannedReplay(**facts, to=plan.target(letter)))

        with self._watch("reading letters") as progress:
            count = await visit(self._broker, queue, see, choose=goes, limit=limit, depth=depth, progress=progress)
        return ReplayedView(
            replayed=count,
            dropped=jobs.letters - jobs.jobs,
            too_often=stay["replayed too often"],
            no_destination=stay["no destination"],
            planned=planned,
        )

    def _choose(self, which: LetterChoice) -> Choose | None:
        """Build a predicate for matching letters; None if all match."""
        return choose_letters(self._app, self._select(which))

    def _select(self, which: LetterChoice) -> LetterSelection:
        return LetterSelection(
            task=which.task,
            error=which.error,
            reason=which.reason,
            fingerprint=which.fingerprint,
            job=which.job,
            tenant=self._caller.tenant,
            older_than=_span(which.older_than, "older_than"),
            newer_than=_span(which.newer_than, "newer_than"),
        )

    @property
    def _allows(self) -> Callable[[str], bool] | None:
        """Whether the caller may call a task; None if they may call all."""
        return None if self._caller.allows_all else self._caller.allows

    def _depth(self, wanted: int | None) -> int | None:
        return wanted if self._most is None else min(wanted or self._most, self._most)

    @property
    def _broker(self) -> Broker:
        return self._app.sessions.current().broker

    def _view(self, queue: str, letter: DeadLetter, *, has_body: bool = False) -> LetterView:
        may_read = has_body and self._caller.may(Permission.JOBS_READ, letter.tenant or None)
        return view_of(
            LetterView,
            letter,
            letter_of=queue,
            enqueued=instant_text(letter.enqueued),
            started=instant_text(letter.started),
            died=instant_text(letter.died),
            body=letter.body.decode(errors="replace") if may_read else None,
        )


def _span(text: str | None, what: str) -> timedelta | None:
    return None if text is None else parse_duration(text, what=what)


def _group(queue: str, group: LetterGroup) -> LetterGroupView:
    return view_of(
        LetterGroupView,
        group,
        letter_of=queue,
        tenants=sorted(group.tenants),
        first=instant_text(group.first),
        last=instant_text(group.last),
    )
