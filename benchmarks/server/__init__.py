"""`python -m benchmarks.server`: cost of a job over HTTP, compared with an echo server and with the store alone.

    echo       a bare Litestar application on the same uvicorn that reads the same body and answers
    store      `app.jobs.asubmit` by as many callers, in the process that sends the requests
    post       POST /jobs by 1, 16 and 64 clients, each with its own connection
    get        one job, by 16 and 64 clients
    list       pages of 50 among --rows ended jobs, with several filters, one client
    pages      the requests of each dashboard page among --rows ended jobs: lists, counts, figures, failures
    streams    POST while 50 streams of events are open
    idle       POST while 1,000 connections rest
    accepted   time from the answer to POST to the start of the task, one job at a time
    memory     resident memory of the server at each quarter of --requests requests, half of them submissions, by
               --memory-clients clients

`--only` selects rows. A PostgreSQL in $TASKMQ_TEST_POSTGRES_URL keeps the database of --rows for next time.

PostgreSQL, RabbitMQ, server, scheduler and worker run on this machine and share its processors with the clients. For
a small test run: `--seconds 0.5 --rows 600 --requests 500`.
"""

from benchmarks.server.command import main

__all__ = ["main"]
