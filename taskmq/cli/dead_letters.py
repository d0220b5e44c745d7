"""Dead letters at the broker of the app at hand, for the person at the command line."""

import sys
import time
from collections.abc import Callable, Sequence
from typing import Self

from taskmq.api.dead_letters import LetterChoice, LetterFilters, LetterView
from taskmq.app import TaskMQ
from taskmq.app_api.caller import ApiCaller
from taskmq.app_api.dead_letters import AppDeadLetters
from taskmq.contracts.broker import Archiving
from taskmq.errors import InvalidOption, UnsupportedFeature
from taskmq.model.topology import logical_queue
from taskmq.operations.dead_letters import DeadLetter, visit
from taskmq.operations.dead_letters.letter import read_letter

__all__ = ["OperatorDeadLetters", "TerminalProgress"]


class OperatorDeadLetters(AppDeadLetters):
    """Dead letters without a bound, and with how far it is on a terminal."""

    def __init__(self, app: TaskMQ, caller: ApiCaller) -> None:
        super().__init__(app, caller, most=None, watch=TerminalProgress)

    async def queues(self) -> Sequence[str]:
        """The queues of the app that have dead letters.

        Raises:
            InvalidOption: the app has no queues.
        """
        if not self._app.tasks.queues:
            raise InvalidOption("which queue? Name it, or its app with --app MODULE:ATTRIBUTE")
        return await super().queues()

    async def visit(
        self, queue: str, see: Callable[[DeadLetter], object], limit: int | None, which: LetterFilters
    ) -> int:
        """Call `see` with each letter that is meant, oldest first; how many those were."""
        meant = LetterChoice(**which)
        with TerminalProgress("export") as progress:
            return await visit(
                self._broker,
                queue,
                see,
                choose=self._choose(meant),
                limit=limit,
                depth=meant.depth,
                progress=progress,
            )

    async def archived(self, start: int, limit: int) -> list[tuple[int, LetterView]]:
        """Return letters of the broker's archive from an offset on, each with its own offset.

        Raises:
            UnsupportedFeature: the broker keeps none.
        """
        broker = self._broker
        if not isinstance(broker, Archiving):
            raise UnsupportedFeature(f"{broker.address} keeps no archive of dead letters; RabbitMQ does")
        found = [(place, read_letter(each)) for place, each in await broker.archived(offset=start, limit=limit)]
        return [
            (place, self._view(logical_queue(letter.queue) if letter.queue else "", letter))
            for place, letter in found
        ]


class TerminalProgress:
    """Says on a terminal how far it is, four times a second; nothing elsewhere.

    Args:
        what: what is done with the letters.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._next = time.monotonic() + 0.5
        self._width = 0

    def __call__(self, looked: int, count: int) -> None:
        now = time.monotonic()
        if now >= self._next and sys.stderr.isatty():
            self._next = now + 0.25
            self._show(f"{self._what}: {looked:,} of {count:,} letters looked at")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # The line is taken away.
        if self._width:
            self._show("")
            sys.stderr.write("\r")
            self._width = 0

    def _show(self, text: str) -> None:
        sys.stderr.write(f"\r{text:<{self._width}}")
        sys.stderr.flush()
        self._width = max(self._width, len(text))
