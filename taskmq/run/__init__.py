"""Parts of a run that the task's code uses.

`Context` is injected into the task; `facts` are those of its attempt. `journal` collects the progress and the
checkpoints that the task reports, and `detached_writer` writes them for plain functions. `locks` are held while it
runs; `log_fields` adds the job's id to log records.
`execution` is what an executor receives: the function, its decoded arguments and the context.
"""
