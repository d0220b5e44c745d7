"""Handles of jobs for their senders.

`Job` is the handle that `send` returns: it awaits the result, shows the job's state, and cancels it. `as_completed`
yields the results of many jobs as they end. Both use `app.jobs`, a `taskmq.client.job_service.JobService`.
"""
