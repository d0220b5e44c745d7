"""Services of a worker besides running tasks.

They publish events, obey commands, keep the list of cancelled jobs, and relay delayed messages from the state to the
broker. None of them may hold up a job.
"""
