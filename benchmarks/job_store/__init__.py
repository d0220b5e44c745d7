"""`python -m benchmarks.job_store`: jobs of the store, from their submission to their place in the history.

A PostgreSQL that writes to its disk as in production, a RabbitMQ node, schedulers and one worker process, all on this
machine; the sender is this process. Processor time is that of each process, for one job.

    bulk              submitted a thousand at a time; jobs a second from the first submission to the last end
    submits           `asubmit` by one caller, and by 64 at a time: how long until the job is kept
    starts            200 submissions a second: from `asubmit` to the first line of the task
    lateness          500 jobs a second become due among millions that wait; others are changed and cancelled
    lists             the newest 50 of every filter that has an index, among millions of ended jobs; `get`
    day dropped       what that takes, and how long lists take meanwhile
    tenants           what the dispatch of a job costs with 10,000 tenants in the queue, beside 10
    scheduler killed  with SIGKILL: jobs lost and run twice, and how long after its lease another one works
    SQLite            a file, one process
    peers             PgQueuer, Procrastinate and Oban on the same PostgreSQL
"""

from benchmarks.job_store.command import ROWS, main
from benchmarks.job_store.figures import GOALS, percentile

__all__ = ["GOALS", "ROWS", "main", "percentile"]
