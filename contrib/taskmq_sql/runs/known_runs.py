"""Runs that this process has just written, and that wait for a job: its end is applied without a read.

    a run is advanced alone -> kept -> the job of its step ends -> the end is noted -> taken by the next advance

An entry is a guess: the change checks that neither the run nor its inbox has changed since. Otherwise it changes
nothing, and the run is read.
"""

from collections.abc import Iterable
from time import monotonic
from typing import Final, NamedTuple

from taskmq.model.jobs.reports import Report
from taskmq.model.runs.records import InboxRow, StepRecord
from taskmq.model.runs.rules import StepState
from taskmq.model.states import JobState
from taskmq_sql.jobs.codes import CODES
from taskmq_sql.runs.inbox import Inbox, LoneRun, read_end

_MOST: Final = 1_000
# Bytes of a run's record, and of a result.
_LARGEST: Final = 16 * 1024


class _KnownRun(NamedTuple):
    """A run that waits for the job of this step.

    Attributes:
        ahead: milliseconds by which the store's clock is ahead of the monotonic one.
        end: the end of the job, once it is in the run's inbox.
    """

    mark: str
    record: bytes
    ahead: float
    step: StepRecord
    end: InboxRow | None = None


class KnownRuns:
    """The runs that were written last; the oldest ones are forgotten first."""

    def __init__(self) -> None:
        self._runs: dict[str, _KnownRun] = {}

    def forget(self) -> None:
        """Forget all: a new connection may lead to a restored database."""
        self._runs.clear()

    def keep(self, run_id: str, run: LoneRun, steps: Iterable[StepRecord]) -> None:
        """Keep a run that was written with these steps and has an empty inbox, if it started a single job."""
        running = [step for step in steps if step.state is StepState.RUNNING and step.job]
        if len(running) == 1 and not running[0].key.is_child and len(run.record) <= _LARGEST:
            if len(self._runs) >= _MOST:
                del self._runs[next(iter(self._runs))]
            self._runs[run_id] = _KnownRun(run.mark, run.record, run.now - monotonic() * 1000, running[0])

    def note_end(self, run_id: str, report: Report) -> None:
        """Note that the report has ended a job of the run, and that this is in the run's inbox."""
        if (known := self._runs.pop(run_id, None)) is not None:
            step = known.step
            is_expected = known.end is None and report.id == step.job and report.kind == "succeeded"
            if is_expected and len(report.result) <= _LARGEST:
                end = (*step.key, CODES[JobState.SUCCEEDED], report.content_type, report.result, None)
                self._runs[run_id] = known._replace(end=read_end(1, step.job, end))

    def take(self, run_id: str) -> LoneRun | None:
        """Return a run whose job has ended, and forget it."""
        known = self._runs.pop(run_id, None)
        if known is None or known.end is None:
            return None
        inbox = Inbox()
        inbox.events, inbox.steps = [known.end], [known.step]
        return LoneRun(int(known.ahead + monotonic() * 1000), known.mark, known.record, inbox)
