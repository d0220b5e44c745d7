"""Reports of workers about the jobs of one partition, applied to the store.

consumer   the partition's queue: read, applied together, acknowledged
applier    applies reports to the store, and starts what follows from them
queue      declares that queue
inventions reports with tokens that the store never issued: counted, and logged at most once a minute
journals   progress and saved values of runs
letters    other messages in that queue: dropped invitations, unknown jobs, malformed messages
refusals   jobs that workers refuse: retried with growing delays, then failed
returned_jobs  jobs whose invitation was redelivered: published again
results    accepted results, stored where `Job.result` waits
"""

from taskmq.scheduler.reports.applier import ReportApplier
from taskmq.scheduler.reports.consumer import ReportConsumer
from taskmq.scheduler.reports.journals import ReportedJournals
from taskmq.scheduler.reports.letters import WORKER_LOST, ParkedReports, worker_lost
from taskmq.scheduler.reports.queue import ReportsQueue
from taskmq.scheduler.reports.results import AcceptedEnd, AcceptedResults
from taskmq.scheduler.reports.returned_jobs import ReturnedJobs

__all__ = [
    "WORKER_LOST",
    "AcceptedEnd",
    "AcceptedResults",
    "ParkedReports",
    "ReportApplier",
    "ReportConsumer",
    "ReportedJournals",
    "ReportsQueue",
    "ReturnedJobs",
    "worker_lost",
]
