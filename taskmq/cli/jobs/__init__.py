"""Commands about jobs, definitions and tasks.

A job is looked up in the store first, if the app has one, then in the state, the dead letters and the workers.
`job.py` has the commands for every job, `stored_jobs.py` and `history.py` those that need a store.
"""
