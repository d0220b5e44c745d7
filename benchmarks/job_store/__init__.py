"""`python -m benchmarks.job_store`: cost and speed of jobs in the store, from submission to history.

PostgreSQL (durable, as in production), a RabbitMQ node, schedulers and one worker process all run on this machine;
this process submits the jobs. Processor time is per job and process.

    bulk              jobs submitted a thousand at a time; jobs/s from the first submission to the last end
    submits           `asubmit` by one caller and by 64 callers: time until the job is committed
    starts            200 submissions/s: time from `asubmit` to the first line of the task
    lateness          500 jobs/s become due among millions of scheduled ones; others are changed and cancelled
    lists             the newest 50 jobs of every indexed filter, among millions of ended jobs; `get`
    day dropped       time to drop a day of the history, and duration of lists meanwhile
    tenants           cost of dispatching a job with 10,000 tenants in the queue, compared with 10
    scheduler killed  with SIGKILL: lost jobs, jobs run twice, and the delay of the takeover after the lease expires
    saved steps       steps that do nothing: time until the store has one, and its cost
    batches           processor time of a dispatch and of ends in the store, by the jobs in a statement
    SQLite            a file, one process
    peers             PgQueuer, Procrastinate and Oban on the same PostgreSQL
"""

from benchmarks.job_store.command import ROWS, main
from benchmarks.job_store.figures import GOALS, percentile

__all__ = ["GOALS", "ROWS", "main", "percentile"]
