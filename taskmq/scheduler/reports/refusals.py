"""Jobs that workers refuse come back later and later, and have failed after an hour.

While workers are replaced one after the other, some do not know a task yet; a task that was removed is known to none
ever again.
"""

import logging
from collections.abc import Sequence
from typing import Final

import msgspec

from taskmq.contracts.jobs import HistoryEntry, JobStore
from taskmq.model.jobs.reports import Report
from taskmq.model.outcome import ErrorRecord

__all__ = ["judge", "judged"]

_log = logging.getLogger("taskmq.scheduler")

_LONGEST_MS: Final = 300_000
_PATIENCE_MS: Final = 3_600_000
# Of the job between two refusals in a row: it became due, was dispatched, was refused. Whatever else it does, such as
# a run, makes more of them.
_VERSIONS: Final = 3


async def judge(report: Report, store: JobStore) -> Report:
    """A report that a worker has refused a job, as it counts: see `judged`.

    Raises:
        StoreUnavailable: it is not known how often that was before.
    """
    record = await store.get(report.id)
    if record is None or record.token != report.token:
        # It will not count: no history is read for it.
        return report
    refusals = _in_a_row(await store.events(report.id), record.version)
    found = judged(report, refusals, await store.now_ms())
    if found.kind == "failed":
        _log.error("job %s: %s", report.id, found.error.message if found.error else "")
    return found


def judged(report: Report, refusals: Sequence[int], now: int) -> Report:
    """The report with twice the delay for each refusal just before it, 5 minutes at most; after an hour: a failure.

    Args:
        refusals: instants of those just before it, in ms, the earliest first.
    """
    if refusals and now - refusals[0] >= _PATIENCE_MS:
        error = report.error or ErrorRecord(type_name="Refused", message="", traceback="")
        why = msgspec.structs.replace(error, message=f"refused by workers for an hour: {error.message}")
        return msgspec.structs.replace(report, kind="failed", delay=0, error=why)
    longest = max(report.delay, _LONGEST_MS)
    return msgspec.structs.replace(report, delay=min(report.delay << min(len(refusals), 16), longest))


def _in_a_row(events: Sequence[HistoryEntry], version: int) -> list[int]:
    """When the job was refused before it was dispatched with this version, and nothing else happened between."""
    found: list[int] = []
    after = version + 1
    for event in reversed(events):
        if event.kind != "refused" or event.version != after - _VERSIONS:
            break
        found.append(event.at)
        after = event.version
    return found[::-1]
