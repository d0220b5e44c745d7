"""Dead letters at the broker of the local app, for the person at the command line."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Final

from taskmq.api.dead_letters import LetterChoice, LetterFilters, LetterView
from taskmq.app import TaskMQ
from taskmq.app_api.caller import ApiCaller
from taskmq.app_api.dead_letters import AppDeadLetters
from taskmq.cli.progress import progress
from taskmq.contracts.broker_abilities import Archiving
from taskmq.errors import InvalidOption, UnsupportedFeature
from taskmq.model.topology import logical_queue
from taskmq.operations.dead_letters import DeadLetter, visit
from taskmq.operations.dead_letters.letter import read_letter

_watch: Final = partial(progress, patience=0.5)


class OperatorDeadLetters(AppDeadLetters):
    """Dead letters without a limit on how many are read, with progress on a terminal."""

    def __init__(self, app: TaskMQ, caller: ApiCaller) -> None:
        super().__init__(app, caller, most=None, watch=_watch)

    async def queues(self) -> Sequence[str]:
        """Return the queues of the app that can have dead letters.

        Raises:
            InvalidOption: the app has no queues.
        """
        if not self._app.tasks.queues:
            raise InvalidOption("no queue given: name it, or pass its app with --app MODULE:ATTRIBUTE")
        return await super().queues()

    async def visit(
        self,
        queue: str,
        see: Callable[[DeadLetter], object],
        limit: int | None,
        which: LetterFilters,
        *,
        shows_progress: bool,
    ) -> int:
        """Call `see` with each matching letter, oldest first; return their number."""
        meant = LetterChoice(**which)
        choose = self._choose(meant)
        with _watch("reading letters") if shows_progress else nullcontext() as advance:
            return await visit(
                self._broker, queue, see, choose=choose, limit=limit, depth=meant.depth, progress=advance
            )

    async def read_archive(self, start: int, limit: int) -> list[tuple[int, LetterView]]:
        """Return letters of the broker's archive from an offset on, each with its offset.

        Raises:
            UnsupportedFeature: the broker keeps no archive.
        """
        broker = self._broker
        if not isinstance(broker, Archiving):
            raise UnsupportedFeature(f"{broker.address} keeps no archive of dead letters; use RabbitMQ")
        found = [(place, read_letter(each)) for place, each in await broker.read_archive(offset=start, limit=limit)]
        return [
            (place, self._view(logical_queue(letter.queue) if letter.queue else "", letter))
            for place, letter in found
        ]
