"""Progress and saved values that the runs of one partition report.

    progress -> the store, before the reports of the runs' ends
    saving   -> the store, after all other reports -> the answer on the topic that the run listens to

An answer that is lost is asked for again: a request that arrives twice has the same answer.
"""

import logging
from collections.abc import Sequence
from typing import Final

from taskmq.contracts.broker import Broker
from taskmq.contracts.broker_abilities import Broadcasting
from taskmq.contracts.jobs import JournalStore
from taskmq.errors import StoreUnavailable
from taskmq.model.history.journals import SaveAnswer, encode_answers
from taskmq.model.jobs.reports import Report
from taskmq.model.states import JobState
from taskmq.scheduler.reports.results import AcceptedEnd

_log = logging.getLogger("taskmq.scheduler")

_FORGETS: Final = frozenset({JobState.SUCCEEDED, JobState.CANCELLED})


class ReportedJournals:
    """Writer of progress and saved values.

    Args:
        broker: announces the answers.
    """

    def __init__(self, broker: Broker, store: JournalStore) -> None:
        self._broker = broker
        self._store = store
        self._progress: dict[str, Report] = {}
        self._saving: list[Report] = []

    @property
    def is_saving(self) -> bool:
        """Whether runs wait for answers."""
        return bool(self._saving)

    def add(self, report: Report) -> bool:
        """Collect the report if it is of this kind; return whether it is."""
        if report.kind == "progress":
            self._progress[report.id] = report
        elif report.kind == "saving":
            self._saving.append(report)
        else:
            return False
        return True

    def clear(self) -> None:
        """Drop everything collected, because its messages are requeued."""
        self._progress.clear()
        self._saving.clear()

    async def keep_progress(self) -> None:
        """Write the collected progress.

        Raises:
            StoreUnavailable: nothing was written.
        """
        reports, self._progress = list(self._progress.values()), {}
        if not reports:
            return
        try:
            await self._store.report(reports)
        except StoreUnavailable:
            raise
        except Exception as error:  # noqa: BLE001 - a broken report of progress must not hold up the others
            _log.error("dropping the progress of %d jobs that the store cannot keep", len(reports), exc_info=error)

    async def forget(self, ends: Sequence[AcceptedEnd]) -> None:
        """Delete the saved values of jobs that succeeded or were cancelled; a failed one may be resumed with them."""
        ids = [end.report.id for end in ends if end.report.has_saved and end.state in _FORGETS]
        if ids:
            await self._store.forget(ids)

    async def save(self) -> None:
        """Save the collected values, and answer the runs.

        Raises:
            StoreUnavailable: nothing was saved, or a second call has the same effect.
        """
        reports, self._saving = self._saving, []
        if reports:
            await self._save(reports)

    async def _save(self, reports: Sequence[Report]) -> None:
        try:
            answers = await self._store.save(reports)
        except StoreUnavailable:
            raise
        except Exception as error:  # noqa: BLE001 - one bad value must not stop all the others
            if len(reports) > 1:
                middle = len(reports) // 2
                await self._save(reports[:middle])
                await self._save(reports[middle:])
                return
            _log.error("job %s: dropping a value that the store cannot save", reports[0].id, exc_info=error)
            return
        if not isinstance(self._broker, Broadcasting):
            return
        topics = {each.saving.run: each.saving.reply for each in reports if each.saving is not None}
        found: dict[str, list[SaveAnswer]] = {}
        for answer in answers:
            found.setdefault(topics[answer.run], []).append(answer)
        for topic, its in found.items():
            self._broker.announce(topic, encode_answers(its))
