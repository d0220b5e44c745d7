"""Second half of the demo: jobs of the store, which people can list, change, cancel and run again."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from taskmq.demo.measure import FileReport
from taskmq.demo.tasks import app, measure_file
from taskmq.errors import TaskFailed
from taskmq.model.jobs.filters import JobFilter
from taskmq.model.states import JobState

_SUBMITTED: Final = 20
_LABEL: Final[tuple[str, str]] = ("demo", "store")
_PATIENCE: Final = "60s"


@dataclass(frozen=True, slots=True)
class StoredFindings:
    """Results of submitted jobs.

    Attributes:
        reports: reports of the jobs that ran, in file order.
        listed: number of jobs found by their label.
        brought_forward: state of a job that was delayed by an hour, and then brought forward.
        cancelled: state of a job that was cancelled while it waited.
        again: whether a failed job succeeded as another job, once its file existed.
    """

    reports: list[FileReport]
    listed: int
    brought_forward: JobState
    cancelled: JobState
    again: bool


async def use_the_store(files: Sequence[Path], scratch: Path) -> StoredFindings:
    """Submit, list, change, cancel and retry jobs.

    Args:
        files: at least one; up to 20 of them are measured.
        scratch: a folder for a file that is missing at first.
    """
    labels: dict[str, str] = dict([_LABEL])
    jobs = [await app.jobs.asubmit(measure_file, path, labels=labels) for path in files[:_SUBMITTED]]
    later = await app.jobs.asubmit(measure_file, files[0], delay="1h", labels=labels)
    never = await app.jobs.asubmit(measure_file, files[0], delay="1h", labels=labels)
    await app.jobs.achange(later.id, delay="0s", note="the demo does not wait for an hour")
    await app.jobs.acancel(never.id, note="not needed")
    reports = list(await asyncio.gather(*(job.aresult(_PATIENCE) for job in jobs)))
    await later.aresult(_PATIENCE)
    page = await app.jobs.alist(JobFilter(labels=(_LABEL,)), limit=_SUBMITTED + 10)
    return StoredFindings(
        reports,
        len(page.jobs),
        (await app.jobs.aget(later.id)).state,
        (await app.jobs.aget(never.id)).state,
        await _run_again(scratch / "missing.py"),
    )


async def _run_again(missing: Path) -> bool:
    job = await app.jobs.asubmit(measure_file, missing)
    try:
        await job.aresult(_PATIENCE)
    except TaskFailed:
        await asyncio.to_thread(missing.write_text, "x = 1\n")
        again = await app.jobs.aretry(job.id)
        return again.id != job.id and (await again.aresult(_PATIENCE)).lines == 1
    return False
