"""Retries of jobs that workers refuse, with growing delays; they fail after an hour.

During a rolling update some workers do not know a task yet. A removed task stays unknown to all of them.
"""

import logging
from collections.abc import Sequence
from typing import Final

import msgspec

from taskmq.contracts.jobs import HistoryEntry, JobStore
from taskmq.model.jobs.reports import Report
from taskmq.model.outcome import ErrorRecord

_log = logging.getLogger("taskmq.scheduler")

_LONGEST_MS: Final = 300_000
_PATIENCE_MS: Final = 3_600_000
# Versions between two consecutive refusals: it became due, was dispatched, was refused. Anything else, such as a run,
# adds versions.
_VERSIONS: Final = 3


async def judge(report: Report, store: JobStore) -> Report:
    """Return the report to apply for a refusal; see `judge_refusals`.

    Raises:
        StoreUnavailable: the number of earlier refusals is unknown.
    """
    record = await store.get(report.id)
    if record is None or record.token != report.token:
        # The report is outdated, so its history is not needed.
        return report
    refusals = _consecutive_refusals(await store.events(report.id), record.version)
    found = judge_refusals(report, refusals, await store.now_ms())
    if found.kind == "failed":
        _log.error("job %s: %s", report.id, found.error.message if found.error else "")
    return found


def judge_refusals(report: Report, refusals: Sequence[int], now: int) -> Report:
    """Double the report's delay for each consecutive refusal, up to 5 minutes; fail the job after an hour.

    Args:
        refusals: times of the consecutive refusals before it in ms, earliest first.
    """
    if refusals and now - refusals[0] >= _PATIENCE_MS:
        error = report.error or ErrorRecord(type_name="Refused", message="", traceback="")
        why = msgspec.structs.replace(error, message=f"refused by workers for an hour: {error.message}")
        return msgspec.structs.replace(report, kind="failed", delay=0, error=why)
    longest = max(report.delay, _LONGEST_MS)
    return msgspec.structs.replace(report, delay=min(report.delay << min(len(refusals), 16), longest))


def _consecutive_refusals(events: Sequence[HistoryEntry], version: int) -> list[int]:
    """Return the times of consecutive refusals before the dispatch with this version."""
    found: list[int] = []
    after = version + 1
    for event in reversed(events):
        if event.kind != "refused" or event.version != after - _VERSIONS:
            break
        found.append(event.at)
        after = event.version
    return found[::-1]
