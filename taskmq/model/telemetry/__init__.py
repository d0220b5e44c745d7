"""What workers report about themselves and their jobs. Pure.

`events` are published while jobs run, `worker_status` answers the command that asks a worker how it is, and `metrics`
are what an exporter reads. None of it is stored by the core, and losing it never affects a job.
"""
