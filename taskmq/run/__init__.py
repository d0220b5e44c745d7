"""Parts of a run that the task's code uses.

`Context` is injected into the task and carries the attempt's facts; `journal` collects the progress and the
checkpoints that the task reports; `locks` are held while it runs; `log_fields` adds the job's id to log records.
`execution` is what an executor receives: the function, its decoded arguments and the context.
"""
