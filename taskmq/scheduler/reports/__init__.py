"""Reports of workers about the jobs of one partition, applied to the store.

consumer   the partition's queue: read, applied together, acknowledged
queue      declares that queue
inventions reports whose tokens the store has not given out: counted, and logged now and then
letters    what comes there and is no report: dropped invitations, unknown jobs, unreadable messages
refusals   jobs that workers refuse: later and later, then failed
returned_jobs  jobs whose invitation a worker got a second time: published again
results    accepted ends, put where `Job.result` waits
"""

from taskmq.scheduler.reports.consumer import ReportConsumer
from taskmq.scheduler.reports.letters import WORKER_LOST, ParkedReports, worker_lost
from taskmq.scheduler.reports.queue import ReportsQueue
from taskmq.scheduler.reports.results import AcceptedEnd, AcceptedResults
from taskmq.scheduler.reports.returned_jobs import ReturnedJobs

__all__ = [
    "WORKER_LOST",
    "AcceptedEnd",
    "AcceptedResults",
    "ParkedReports",
    "ReportConsumer",
    "ReportsQueue",
    "ReturnedJobs",
    "worker_lost",
]
