"""`taskmq job`: one job, or some of them, as people at a terminal see them.

A job is looked for in the store first, where the app has one, then in the state, the dead letters and the workers.
`job.py` has the commands for every job, `stored_jobs.py` those that only a store makes possible.
"""
