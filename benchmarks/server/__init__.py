"""`python -m benchmarks.server`: what a job costs over HTTP, beside a server that only echoes and beside the store.

    echo       a bare Litestar application on the same uvicorn, which reads the same body and answers
    store      `app.jobs.asubmit` by as many callers, from the process that sends the requests
    post       POST /jobs at 1, 16 and 64 clients, each with a connection of its own
    get        one job, 16 and 64 clients
    list       pages of 50 among --rows ended jobs, by several filters, one client
    pages      what each page of the dashboard asks for among --rows ended jobs: lists, counts, figures, failures
    streams    POST while 50 streams of events are open
    idle       POST while 1,000 connections rest
    accepted   from the answer of POST to the first line of the task at a worker, one job at a time
    memory     resident memory of the server at each quarter of --requests requests, half of them submissions, by
               --memory-clients clients

`--only` chooses some of them. A PostgreSQL in $TASKMQ_TEST_POSTGRES_URL keeps the database of --rows for next time.

PostgreSQL, RabbitMQ, server, scheduler and worker are processes of this machine, and share its processors with the
clients. In small, as a test: `--seconds 0.5 --rows 600 --requests 500`.
"""

from benchmarks.server.command import main

__all__ = ["main"]
