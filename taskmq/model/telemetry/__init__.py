"""Reports of workers about themselves and their jobs. Pure.

`events` are published while jobs run, `worker_status` is the answer to a status command, and `metrics` are what an
exporter reads. The core stores none of it, and losing it never affects a job.
"""
