"""Execution of operators' commands over the broker, see `taskmq.commands`.

Commands run on the worker's loop. If user code blocks the loop, no answer is sent, which is informative, too.
"""

import asyncio
import logging
import math
import socket
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from taskmq.contracts.broker_abilities import Broadcasting
from taskmq.durable.announcements import listen
from taskmq.errors import InvalidOption, MalformedMessage
from taskmq.model.commands import (
    ALL_COMMANDS,
    WATCH,
    Command,
    CommandAnswer,
    Preemption,
    Verdict,
    command_topic,
    decode_command,
    encode_answer,
    is_for,
)
from taskmq.model.history.logs import level_name, read_level
from taskmq.model.telemetry.worker_status import WorkerStatus
from taskmq.worker.host.stacks import stacks

_log = logging.getLogger("taskmq.worker")

_STACKS_LIMIT: Final = 200_000
_PAUSE: Final = 1.0

_Reply = tuple[Verdict, str, str]


class CommandTarget(Protocol):
    """The worker, as commands see it."""

    name: str

    def status(self) -> WorkerStatus: ...

    def dismiss(self, grace: float | None = None) -> float: ...

    def set_concurrency(self, concurrency: int) -> None:
        """Raises:
        InvalidOption: it cannot have so many slots.
        """
        ...

    def set_paused(self, *, is_paused: bool) -> None:
        """Raises:
        InvalidOption: it is draining.
        """
        ...

    def on_revoked(self, job_id: str, reason: str) -> None: ...

    def preempt(self, jobs: Sequence[Preemption]) -> None: ...

    def look_at_pauses(self) -> None: ...

    def tell_tasks(self) -> None: ...


class CommandService:
    """Executes commands and answers them: a `Service`.

    Args:
        broker: the source of commands.
        worker: the target of commands.
        watch: called with the seconds for which a reader wants job events; None: there are none.
        obeys: whether commands other than `watch` are obeyed.
        pause: seconds until the first retry if this user may not subscribe.
    """

    def __init__(
        self,
        broker: Broadcasting,
        worker: CommandTarget,
        *,
        watch: Callable[[float], None] | None,
        obeys: bool,
        pause: float = _PAUSE,
    ) -> None:
        self._broker = broker
        self._worker = worker
        self._watch = watch
        self._obeys = obeys
        self._pause = pause
        self._host = socket.gethostname()
        self._is_stopping = asyncio.Event()

    @property
    def topics(self) -> list[str]:
        """Topics to subscribe to."""
        if self._obeys:
            return [ALL_COMMANDS]
        return [] if self._watch is None else [command_topic(WATCH)]

    def stop(self) -> None:
        """See `Service`."""
        self._is_stopping.set()

    async def run(self) -> None:
        """Obey until `stop`. If this user may not subscribe, that is logged once and retried."""
        if not self.topics:
            return
        listening = await listen(
            self._broker,
            self.topics,
            self.receive,
            stop=self._is_stopping,
            complain=_complain,
            first_pause=self._pause,
        )
        if listening is not None:
            try:
                await self._is_stopping.wait()
            finally:
                await listening.stop()

    def receive(self, topic: str, body: bytes) -> None:
        """Process a message; never raises, whatever the message is."""
        try:
            command = decode_command(body)
        except MalformedMessage as error:
            _log.warning("%s: %s", topic, error)
            return
        if not is_for(command, worker=self._worker.name, host=self._host):
            return
        if not self._obeys and command.name != WATCH:
            return
        try:
            verdict, detail, text = self._obey(command)
        except Exception as error:  # noqa: BLE001 - what reads the broker's messages must not end over one command
            _log.error("command %r failed", command.name, exc_info=True)
            verdict, detail, text = "refused", type(error).__name__, ""
        if command.reply:
            answer = CommandAnswer(
                id=command.id,
                verdict=verdict,
                worker=self._worker.name,
                status=self._worker.status(),
                detail=detail,
                text=text,
            )
            self._broker.announce(command.reply, encode_answer(answer))

    def _obey(self, command: Command) -> _Reply:
        match command.name:
            case "ping":
                return "done", "", ""
            case "watch":
                return self._turn_on(command.seconds)
            case "drain":
                return self._drain(command.seconds)
            case "pause" | "resume":
                return self._set_paused(is_paused=command.name == "pause")
            case "concurrency":
                return self._resize(command.number)
            case "log_level":
                return _set_log_level(command.level)
            case "stacks":
                return "done", "", stacks(limit=_STACKS_LIMIT)
            case "revoke":
                return self._revoke(command.job_id, command.reason)
            case "preempt":
                self._worker.preempt(command.jobs)
                return "done", "", ""
            case "queues":
                self._worker.look_at_pauses()
                return "done", "", ""
            case "tasks":
                self._worker.tell_tasks()
                return "done", "", ""
            case _:
                return "unknown", f"this worker knows no command {command.name!r}", ""

    def _turn_on(self, seconds: float | None) -> _Reply:
        if self._watch is None:
            return "refused", "this worker sends no events", ""
        if seconds is None or not seconds > 0:
            return "refused", "seconds: more than 0", ""
        self._watch(seconds)
        return "done", "", ""

    def _drain(self, grace: float | None) -> _Reply:
        if grace is not None and not 0 <= grace < math.inf:
            return "refused", "seconds: 0 or more", ""
        seconds = self._worker.dismiss(grace)
        _log.warning("draining on operator command, %g s of grace", seconds)
        if not (running := self._worker.status().running):
            return "done", "nothing runs", ""
        return "done", f"{running} running: after {seconds:g} s what still runs goes back to its queue", ""

    def _set_paused(self, *, is_paused: bool) -> _Reply:
        try:
            self._worker.set_paused(is_paused=is_paused)
        except InvalidOption as error:
            return "refused", str(error), ""
        _log.warning("%s on operator command", "paused" if is_paused else "resumed")
        return "done", "", ""

    def _resize(self, number: int | None) -> _Reply:
        before = self._worker.status().slots
        try:
            self._worker.set_concurrency(number or 0)
        except InvalidOption as error:
            return "refused", str(error), ""
        _log.warning("concurrency changed from %d to %d on operator command", before, number)
        return "done", f"{before} -> {number}", ""

    def _revoke(self, job_id: str | None, reason: str) -> _Reply:
        if not job_id:
            return "refused", "job_id: which job?", ""
        self._worker.on_revoked(job_id, reason)
        return "done", "", ""


def _set_log_level(word: str) -> _Reply:
    root = logging.getLogger()
    before = level_name(root.level)
    try:
        level = read_level(word)
    except InvalidOption as error:
        return "refused", str(error), ""
    # Whatever the levels are, this line is written.
    root.setLevel(min(root.level, level, logging.WARNING))
    _log.warning("log level changed from %s to %s on operator command", before, level_name(level))
    root.setLevel(level)
    return "done", f"{before} -> {level_name(level)}", ""


def _complain(error: Exception) -> None:
    _log.warning("cannot receive commands, jobs continue: %s", error)
