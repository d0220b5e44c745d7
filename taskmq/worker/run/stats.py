"""Counts of a worker's runs, and observers of its runs.

The counters cost a few dictionary look-ups a run. Without observers, observation costs nothing.
"""

from collections.abc import Callable, Sequence
from typing import Final, ParamSpec, Protocol

from taskmq.contracts.broker import Delivery
from taskmq.model import headers as header
from taskmq.model.envelope import Envelope
from taskmq.model.outcome import OUTCOME_NAMES, Outcome, Parked, Succeeded
from taskmq.model.telemetry.metrics import Count
from taskmq.model.topology import logical_queue
from taskmq.run.facts import due_instant
from taskmq.worker.attempt import Attempt

P = ParamSpec("P")

StartListener = Callable[[Delivery, Envelope, str, int | None], None]
"""Called with each run that starts: its message, its job's id, and the start (ms) if it is known."""
EndListener = Callable[[Delivery, Envelope, str, Outcome, float, int | None], None]
"""Called with each ended run: its message, its job's id, its outcome, its duration in seconds, and its processor time
in ms; None: unknown."""


class RunListener(Protocol):
    """Observes the runs of a worker."""

    def on_start(self, delivery: Delivery, envelope: Envelope, job_id: str, at: int | None) -> None:
        """See `StartListener`."""
        ...

    def on_end(  # noqa: PLR0917 - called for each run, where keywords cost time
        self,
        delivery: Delivery,
        envelope: Envelope,
        job_id: str,
        outcome: Outcome,
        seconds: float,
        processor: int | None,
    ) -> None:
        """See `EndListener`."""
        ...


class WorkerStats:
    """Counts of one worker since it started.

    Attributes:
        counts: by task and physical queue.
        running: start of each current attempt, by the monotonic clock.
        current: the message whose run is in its first step; None between two runs.
        ended: number of ended runs.
        on_start: called with each run as it starts; None: no listener.
        on_end: called with each run that has ended, before its outcome is settled; None: no listener.
        on_park: called with each delivery that cannot run here, and why; None: no listener.
    """

    def __init__(self) -> None:
        self.counts: dict[tuple[str, str], Count] = {}
        self.running: dict[Attempt, float] = {}
        self.current: Envelope | None = None
        self.ended = 0
        self.on_start: StartListener | None = None
        self.on_end: EndListener | None = None
        self.on_park: Callable[[Delivery, Parked], None] | None = None
        self._listeners: tuple[RunListener, ...] = ()

    def listen(self, listener: RunListener) -> None:
        """Call the listener for each run from now on."""
        self._set_listeners((*self._listeners, listener))

    def stop_listening(self, listener: RunListener) -> None:
        """Stop calling the listener. It may have been removed already."""
        self._set_listeners(tuple(each for each in self._listeners if each is not listener))

    def _set_listeners(self, listeners: tuple[RunListener, ...]) -> None:
        self._listeners = listeners
        self.on_start = _call_all([each.on_start for each in listeners])
        self.on_end = _call_all([each.on_end for each in listeners])

    def start(self, attempt: Attempt, *, now: float) -> None:
        """Count a run that starts."""
        self.running[attempt] = now
        if self.on_start is not None:
            self.on_start(attempt.delivery, attempt.envelope, attempt.job_id, None)

    def end(self, attempt: Attempt, outcome: Outcome, *, now: float) -> None:
        """Count an ended run by its outcome."""
        seconds = now - self.running.pop(attempt, now)
        self.ended += 1
        envelope = attempt.envelope
        key = (envelope.task, attempt.delivery.queue)
        count = self.counts.get(key) or self.count_of(*key)
        name, outcomes = OUTCOME_NAMES[type(outcome)], count.outcomes
        outcomes[name] = outcomes.get(name, 0) + 1
        count.run.add(seconds)
        if attempt.started is not None:
            waited = first_wait(attempt.delivery, envelope, started=attempt.started)
            if waited is not None:
                count.waited.add(waited)
        if self.on_end is not None:
            processor = None if attempt.execution is None else attempt.execution.processor
            self.on_end(attempt.delivery, envelope, attempt.job_id, outcome, seconds, processor)

    def end_anew(self, attempt: Attempt, outcome: Outcome) -> None:
        """Count what a run that was counted has come to after all."""
        outcomes, name = self.count_of(attempt.envelope.task, attempt.delivery.queue).outcomes, type(outcome)
        outcomes[OUTCOME_NAMES[name]] = outcomes.get(OUTCOME_NAMES[name], 0) + 1

    def count_success(
        self, count: Count, delivery: Delivery, envelope: Envelope, seconds: float, *, started: int
    ) -> None:
        """Count a plain run that started at `started` (ms), succeeded after `seconds`, and is settled at once."""
        self.ended += 1
        if envelope.attempt != 1:
            due = None
        else:
            due = envelope.enqueued if (invitation := envelope.store) is None else invitation.due
        count.count_success(seconds, None if due is None else (started - due) / 1000)
        if self.on_end is not None:
            self.on_end(delivery, envelope, envelope.id, _SUCCESS, seconds, None)

    def count_of(self, task: str, queue: str) -> Count:
        """Return the count of a task in a physical queue."""
        key = (task, queue)
        count = self.counts.get(key)
        if count is None:
            count = self.counts[key] = Count(task, logical_queue(queue))
        return count

    def park(self, delivery: Delivery, parked: Parked) -> None:
        """Report a delivery that does not run here."""
        if self.on_park is not None:
            self.on_park(delivery, parked)

    def names(self) -> list[str]:
        """Return the task and job of every current run for people, the longest first."""
        runs = [(attempt.envelope.task, attempt.job_id) for attempt in tuple(self.running)]
        # A run that blocks the loop in its first step is not known otherwise.
        if (current := self.current) is not None:
            runs.append((current.task, current.id))
        return [f"{task} (job {job_id})" for task, job_id in runs]

    def forget(self, attempt: Attempt) -> None:
        """Drop a run that was interrupted before it had an outcome."""
        self.running.pop(attempt, None)


def first_wait(delivery: Delivery, envelope: Envelope, *, started: int) -> float | None:
    """Return the seconds from due to the first start of a job; None for a later start.

    A redelivered message, or one that an outage returned, may belong to a job that started before.

    Args:
        started: start of this run, ms since the epoch.
    """
    if envelope.attempt != 1 or delivery.redelivered:
        return None
    # Only a message with a due time can be a copy.
    if envelope.eta is not None and header.OUTAGES in delivery.headers:
        return None
    due = due_instant(envelope)
    return None if due is None else max(started - due, 0) / 1000


def _call_all(functions: Sequence[Callable[P, None]]) -> Callable[P, None] | None:
    """Return a function that calls these in order: the only one itself, because it is called for each run."""
    if len(functions) < 2:
        return functions[0] if functions else None

    def call(*args: P.args, **kwargs: P.kwargs) -> None:
        for function in functions:
            function(*args, **kwargs)

    return call


# Observers of plain successes do not get the value.
_SUCCESS: Final = Succeeded(None)
