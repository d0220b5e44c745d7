"""Jobs that were sent, as their senders see them.

`Job` is the handle that `send` returns: it awaits the result, says how far the job is, and cancels it. `as_completed`
gives the results of many as they end. Both use `app.jobs`, a `taskmq.client.job_service.JobService`.
"""
